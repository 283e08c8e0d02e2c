"""The face for programs: what `txtopo` offers, what `run` returns and raises, and which settings it takes."""

from __future__ import annotations

import builtins
import collections.abc
import importlib
import inspect
import re
import textwrap
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest

import txtopo
import txtopo.errors
from tests.kit.applications import orders_topology
from txtopo import ConfigurationError, Halted, RunResult, RunSettings, StoreUnavailable, Topology, TxtopoError
from txtopo.app import Driver, tell_end
from txtopo.config import Settings, known_settings
from txtopo.core.events import End
from txtopo.core.state import Rules
from txtopo.driver.console import Reporter
from txtopo.driver.signals import StopSignals
from txtopo.errors import Fenced, InvariantBroken, TopologyTypeError
from txtopo.testing.harness_rules import HarnessRules
from txtopo.topology.spec_method import MakeSpec

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
AWAY = {"dsn": "postgresql://ann:Geheim1@127.0.0.1:1/nowhere", "zookeeper": "127.0.0.1:1/txtopo"}
WHERE_TO_LOOK = {"config", "target"}
"""No settings themselves: they say which file has them."""
STATES = {
    "DriverFull",
    "ExecutorLost",
    "Fenced",
    "Halted",
    "InvariantBroken",
    "LeadLost",
    "NoBatchAtFault",
    "PostgresUnavailable",
    "StoreUnavailable",
    "ZooKeeperUnavailable",
}
"""Errors whose names say how the world is, not that something given is wrong; docs/python.md says so."""


def test_a_run_gives_its_result_to_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: `txtopo.run` returns a value; `run_cli` and its old name `run` return its exit code."""
    result = RunResult(
        topology="orders", ended="stopped", reason="asked", last_txid=3, batches=2, quarantined=1, exit_code=130
    )
    given: list[tuple[Topology, Settings]] = []

    def driven(topology: Topology, application: str, settings: Settings, executor: object) -> RunResult:
        given.append((topology, settings))
        return result

    monkeypatch.setattr("txtopo.app.drive_to_end", driven)
    topology = orders_topology(tmp_path)

    assert txtopo.run(topology, once=True, workers=3) is result
    assert topology.run_cli(once=True, workers=3) == topology.run(once=True, workers=3) == 130
    assert [(one, settings.once, settings.workers) for one, settings in given] == [(topology, True, 3)] * 3


def test_a_run_raises_what_a_script_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: a program can catch the error; a script gets its exit code, and no password is shown."""
    topology = orders_topology(tmp_path)

    with pytest.raises(StoreUnavailable, match="postgres") as caught:
        txtopo.run(topology, once=True, quiet=True, dsn=AWAY["dsn"], zookeeper=AWAY["zookeeper"])
    assert capsys.readouterr().err == ""

    assert topology.run_cli(once=True, dsn=AWAY["dsn"], zookeeper=AWAY["zookeeper"]) == caught.value.exit_code == 3
    said = capsys.readouterr().err
    assert said.startswith("txtopo: postgres")
    assert "Geheim1" not in said + str(caught.value)


def test_a_mistake_of_txtopo_itself_keeps_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no matter of the script's, and is not told as one."""

    def broken(*_: object, **__: object) -> RunResult:
        raise InvariantBroken("two batches have one place")

    monkeypatch.setattr("txtopo.app.drive_to_end", broken)

    with pytest.raises(InvariantBroken):
        orders_topology(tmp_path).run_cli(once=True)


def test_what_is_no_topology_is_refused_in_words() -> None:
    """The builder is forgotten easily."""
    with pytest.raises(TopologyTypeError, match=r"TopologyBuilder is no topology: give run\(\) what build\(\) returns"):
        txtopo.run(txtopo.TopologyBuilder("orders"))  # type: ignore[arg-type]


def test_a_session_that_is_given_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: `spark=` is where the topology runs, whatever session is active in this thread."""
    used: list[Any] = []
    monkeypatch.setattr("txtopo.spark.session.spark_session.running_session", lambda: "another session")
    monkeypatch.setattr("txtopo.spark.executor.SparkExecutor", lambda *_, **more: used.append(more["session"]))
    monkeypatch.setattr(
        "txtopo.app.drive_to_end",
        lambda topology, application, settings, make_executor: make_executor(topology, b"", settings),
    )

    session: Any = SimpleNamespace()
    txtopo.run(orders_topology(tmp_path), spark=session)
    txtopo.run(orders_topology(tmp_path))

    assert used == [session, "another session"]


@pytest.mark.parametrize("setting", [{"master": "local[2]"}, {"conf": {"spark.executor.memory": "4g"}}])
def test_settings_that_a_given_session_cannot_take_are_refused(tmp_path: Path, setting: Any) -> None:
    """A session that runs already has its memory: to pass the setting over would say that it holds."""
    session: Any = SimpleNamespace()

    with pytest.raises(ConfigurationError, match=f"{next(iter(setting))} would change nothing"):
        txtopo.run(orders_topology(tmp_path), spark=session, **setting)


def test_the_target_of_a_run_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: `target="prod"` reads [target.prod]; it was passed over without a word."""
    (tmp_path / "txtopo.toml").write_text("[default]\nworkers = 2\n[target.prod]\nworkers = 5\n")
    monkeypatch.chdir(tmp_path)
    found: list[int] = []

    def driven(topology: Topology, application: str, settings: Settings, executor: object) -> RunResult:
        found.append(settings.workers)
        return RunResult(
            topology="orders", ended="finished", reason="-", last_txid=0, batches=0, quarantined=0, exit_code=0
        )

    monkeypatch.setattr("txtopo.app.drive_to_end", driven)

    txtopo.run(orders_topology(tmp_path), target="prod")
    txtopo.run(orders_topology(tmp_path))

    assert found == [5, 2]


# ----------------------------------------------------------------------------------------------------------------------


def driver_of(folder: Path) -> Driver:
    """A driver that has not led yet."""
    topology = orders_topology(folder)
    return Driver(topology, "test", Settings(), b"", Reporter("orders", quiet=True), StopSignals())


def test_a_result_counts_what_this_run_committed(tmp_path: Path) -> None:
    """Batches of an earlier run do not count, nor those of another leader between two leads; those without effect count
    apart.
    """
    driver = driver_of(tmp_path)
    for before, steps in ((10, [(10, 0), (12, 1), (13, 1)]), (20, [(20, 0), (21, 0)])):
        driver._counted = (before, 0)
        for last_txid, quarantined in steps:
            driver._watch(SimpleNamespace(last_txid=last_txid, quarantined=quarantined, trouble=None))

    result = tell_end(End(kind="finished", reason="all input is committed"), driver)

    assert result == RunResult(
        topology="orders",
        ended="finished",
        reason="all input is committed",
        last_txid=21,
        batches=3,
        quarantined=1,
        exit_code=0,
    )


@pytest.mark.parametrize(
    ("kind", "error"),
    [("halted", Halted), ("fenced", Fenced), ("lead_lost", TxtopoError), ("executor_lost", TxtopoError)],
)
def test_a_run_that_ended_badly_has_no_result(tmp_path: Path, kind: Any, error: type[TxtopoError]) -> None:
    """A program that forgets to look at a result must not take it for a good one."""
    with pytest.raises(error, match="the words"):
        tell_end(End(kind=kind, reason="the words"), driver_of(tmp_path))


# ----------------------------------------------------------------------------------------------------------------------

KINDS: dict[str, set[object]] = {
    "text": {str},
    "address": {str},
    "number": {int},
    "seconds": {float, str},
    "bytes": {int, str},
    "flag": {bool},
    "folder": {str, Path},
}


def test_the_typed_settings_are_those_that_there_are() -> None:
    """Promise: what may be given by a keyword is what a type checker knows, and the other way round."""
    hints = get_type_hints(RunSettings)
    kinds = {item.name: item.metadata["key"].kind for item in fields(Settings) if "key" in item.metadata}

    assert set(hints) - WHERE_TO_LOOK == {one.name for one in known_settings()} == set(kinds)
    for name, kind in kinds.items():
        if kind in KINDS:
            assert set(get_args(hints[name]) or {hints[name]}) == KINDS[kind], name
    assert set(get_args(hints["on_poison"])) == set(get_args(get_type_hints(Settings)["on_poison"]))


def test_the_typed_rules_of_a_harness_are_those_of_the_machine() -> None:
    """`once` is an argument of its own, `opaque` a property of the spouts, `joins_mirrors` no setting of anyone."""
    rules = get_type_hints(Rules)
    others = ("once", "opaque", "joins_mirrors")

    assert get_type_hints(HarnessRules) == {name: rules[name] for name in rules if name not in others}


def test_every_error_says_error_or_names_a_state() -> None:
    """And docs/python.md names those that do not."""
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")

    assert {name for name in txtopo.errors.__all__ if not name.endswith("Error")} == STATES
    assert [name for name in sorted(STATES) if f"`{name}`" not in page] == []


def test_no_name_of_the_face_is_untyped() -> None:
    """Promise: no `**Any`: a keyword that is misspelt is found before anything runs."""
    for function in (txtopo.run, Topology.run_cli, Topology.run):
        hint = function.__annotations__["settings"]
        assert hint == "Unpack[RunSettings]", function

    values = [getattr(module, name) for module in map(importlib.import_module, PUBLIC) for name in module.__all__]
    functions = {function for value in values for function in functions_of(value)}
    by_name = {function.__qualname__: function for function in functions}

    assert {"Spout.__init_subclass__", "ClassTopology.__init_subclass__", "MakeSpec.__call__", "Client.batches"} <= {
        *by_name
    }
    assert [name for name, function in by_name.items() if takes_anything(function)] == []


def functions_of(value: Any) -> Iterator[FunctionType]:
    """It, or all functions of a class and of the classes of txtopo above it; what `spec` of a component is, too."""
    if inspect.isfunction(value):
        yield value
    for kind in (*value.__mro__, MakeSpec) if isinstance(value, type) else ():
        for member in vars(kind).values() if kind.__module__.startswith("txtopo") else ():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if inspect.isfunction(function):
                yield function


def takes_anything(function: FunctionType) -> bool:
    """True if it takes any keywords, or arguments, of type Any."""
    code = function.__code__
    many = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :]
    return any(function.__annotations__.get(name) == "Any" for name in many)


def test_help_teaches_with_code_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise: what `help(txtopo)` shows runs a topology as it stands there, and names what is public."""
    said = txtopo.__doc__ or ""
    ran: list[Topology] = []
    monkeypatch.setattr("txtopo.app.drive_to_end", lambda topology, *_: ran.append(topology))
    shown = said.partition("one batch:\n")[2].partition("`txtopo dev up`")[0]

    exec(textwrap.dedent(shown), {})

    assert [topology.name for topology in ran] == ["flights"]
    assert re.findall(r"^    (txtopo[.a-z]*)  ", said, re.MULTILINE) == list(PUBLIC)
    assert "Every other module and name is internal and may change" in said
    for module in PUBLIC:
        assert importlib.import_module(module).__all__


def test_the_version_is_that_of_the_distribution() -> None:
    """Promise: audits, `txtopo version` and the wheel name one version."""
    assert txtopo.__version__ == tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"]


# ----------------------------------------------------------------------------------------------------------------------

PUBLIC = (
    "txtopo",
    "txtopo.client",
    "txtopo.bolts",
    "txtopo.spouts",
    "txtopo.formats",
    "txtopo.errors",
    "txtopo.testing",
)
OF_THE_ENGINE = {
    *("Aggregation", "Block", "Header", "Input", "Metadata", "Position", "SpoutCoordinator", "Subscription", "Tally"),
    *("BoltComponent", "CommitterComponent", "SpoutComponent", "TupleBoltComponent", "Draft", "Origin", "StreamSpec"),
    *("RowKeys", "RowTable", "StagingPlace"),
    *("MemoryPostgres", "MemoryZooKeeper", "SimulatedClock", "CommitterTables", "NewOrder"),
}
"""Types of what the engine calls on spouts and committers, of what `build()` makes and of what a harness runs on: no
program writes them.
"""
SHORT_NAMES = {
    *("Field", "FrameFunction", "GroupingKind", "InputSpecs", "Inputs", "Later", "Patience", "Row", "SpecMethod"),
    *("SpoutKind", "Unit"),
}
"""Of unions and the like, which stand for what a program writes out."""
OF_OTHERS = {"Array", "DataFrame", "Decimal", "Path", "PathLike", "RecordBatch", "SparkSession", "Table"}


def annotations_of(value: Any) -> Iterator[str]:
    """Of a function, or of what is public in a class and the classes of txtopo above it."""
    if not isinstance(value, type):
        yield from map(str, getattr(value, "__annotations__", {}).values())
        return
    for kind in value.__mro__:
        for name, member in vars(kind).items() if kind.__module__.startswith("txtopo") else ():
            if name == "__init__" or not name.startswith("_"):
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if inspect.isfunction(function):
                    yield from map(str, function.__annotations__.values())
        for name, hint in inspect.get_annotations(kind).items() if kind.__module__.startswith("txtopo") else ():
            if not name.startswith("_"):
                yield getattr(hint, "__forward_arg__", str(hint))


def test_whatever_a_program_is_given_can_be_named_by_it() -> None:
    """Promise: a type of a public function or field has a public name, so that a program can write it in its own
    annotations.
    """
    modules = [importlib.import_module(module) for module in PUBLIC]
    public = {name for module in modules for name in module.__all__}
    known = public | OF_THE_ENGINE | SHORT_NAMES | OF_OTHERS | {*dir(typing), *dir(collections.abc), *dir(builtins)}
    nameless: dict[str, set[str]] = {}
    for module in modules:
        for name in module.__all__:
            for hint in annotations_of(getattr(module, name)):
                for word in re.findall(r"(?<![\w'\"])[A-Z]\w+", re.sub(r"'[^']*'", "", hint)):
                    if word not in known:
                        nameless.setdefault(word, set()).add(name)

    assert nameless == {}


def test_the_same_name_is_the_same_thing_in_every_public_module() -> None:
    """A program may import it from any of them."""
    found: dict[str, set[int]] = {}
    for module in map(importlib.import_module, PUBLIC):
        for name in module.__all__:
            found.setdefault(name, set()).add(id(getattr(module, name)))

    assert {name for name, values in found.items() if len(values) > 1} == set()
