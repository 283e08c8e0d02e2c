"""Whatever the code of a spout, a bolt or a committer raises ends in a halt with its words: never in exit code 0, never
without an end.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib
import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow
import pytest

from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.bolts import BasicBolt, BatchBolt, BatchCommitter
from txtopo.core.state import Rules
from txtopo.driver.load_application import load_application
from txtopo.driver.runner import Runner
from txtopo.errors import BatchDataError, ConfigurationError, Stopped
from txtopo.spouts import TransactionalSpout
from txtopo.spouts.user_spout import errors_of
from txtopo.testing.simulated import SimulatedDriver, SimulatedStores
from txtopo.topology.user_exceptions import is_of_code, is_of_user, said, user_line
from txtopo.tuples.user_errors import spout_failure_of, user_frame


class Mute(Exception):
    """Its words cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Own(BaseException):
    """What an `except Exception` passes on."""


def error_of(kind: type[BaseException]) -> BaseException:
    if issubclass(kind, BaseExceptionGroup):
        return kind("several", [ValueError("the first"), KeyError("two")])
    if issubclass(kind, UnicodeDecodeError):
        return kind("utf-8", b"x", 0, 1, "bad")
    if issubclass(kind, UnicodeEncodeError):
        return kind("utf-8", "x", 0, 1, "bad")
    return kind("x", 0, 1, "bad") if issubclass(kind, UnicodeTranslateError) else kind("bad")


BUILT_IN = sorted(
    {kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)}, key=str
)
KINDS = [kind for kind in BUILT_IN if kind not in (KeyboardInterrupt, MemoryError)] + [
    Mute,
    Own,
    asyncio.CancelledError,
]
"""All but Ctrl-C, and what says that the driver itself is full."""
UNUSUAL = [SystemExit, GeneratorExit, asyncio.CancelledError, Own, Mute, ExceptionGroup, StopIteration]


class Raising:
    """Raises at one place of the topology, in the second batch of the source where there is a choice."""

    def __init__(self, place: str, kind: type[BaseException]) -> None:
        self.place = place
        self.raised = kind

    def reach(self, place: str) -> None:
        if place == self.place:
            raise error_of(self.raised)


class Source(Raising, TransactionalSpout):
    """Three batches; it counts them itself, so that one it raised over would be gone."""

    outputs = ("word string",)
    given = 0

    def is_ready(self) -> bool:
        self.reach("is_ready")
        return self.given < 3

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        self.given += 1
        if self.given == 2:
            self.reach("initialize_transaction")
        return {"n": self.given}

    def emit_batch(self, attempt: Any, metadata: Any) -> Iterator[Any]:
        yield ("a",)
        self.reach("emit_batch")


class Hearing(Source):
    def settled(self, txid: int, metadata: Any, state: str) -> None:
        self.reach("settled")


class Middle(Raising, BatchBolt):
    outputs = ("word string",)

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None:
        self.reach("prepare")
        self.collector = collector

    def execute(self, tup: Any) -> None:
        self.reach("execute")
        self.collector.emit(tup.values)

    def finish_batch(self) -> None:
        self.reach("finish_batch")

    def cleanup(self) -> None:
        self.reach("cleanup")


class Passing(Raising, BatchCommitter):
    outputs = ("word string",)

    def commit(self, transaction: Any, rows: Any, collector: Any) -> None:
        self.reach("commit")
        for row in rows:
            collector.emit(row.values)


class Downstream(Raising, BasicBolt):
    outputs = ("word string",)

    def execute(self, tup: Any, collector: Any) -> None:
        self.reach("downstream")
        collector.emit(tup.values)


def topology(place: str, kind: type[BaseException]) -> Topology:
    builder = TopologyBuilder("raising")
    builder.set_spout("source", (Hearing if place == "settled" else Source)(place, kind))
    builder.set_bolt("middle", Middle(place, kind)).shuffle_grouping("source")
    builder.set_committer_bolt("passing", Passing(place, kind)).shuffle_grouping("middle")
    builder.set_bolt("downstream", Downstream(place, kind)).shuffle_grouping("passing")
    builder.set_committer_bolt("counts", CountCommitter("counts", ["word"])).fields_grouping("downstream", ["word"])
    return builder.build()


PLACES = [
    "is_ready",
    "initialize_transaction",
    "settled",
    "emit_batch",
    "prepare",
    "execute",
    "finish_batch",
    "cleanup",
    "commit",
    "downstream",
]
CASES = [(place, kind) for place in PLACES for kind in (KINDS if place == "commit" else UNUSUAL)]


@pytest.mark.parametrize("place", PLACES)
def test_whatever_code_raises_halts_and_is_told_by_its_name(place: str) -> None:
    """An order to end the process, such as `sys.exit()`, too: it ended the run with exit code 0, its batches left out."""  # noqa: E501
    for kind in [kind for where, kind in CASES if where == place]:
        driver = SimulatedDriver(
            topology=topology(place, kind), stores=SimulatedStores(), rules=Rules(workers=2, attempts_max=2)
        )
        end = driver.run()

        name = type(error_of(kind)).__name__
        assert (end.kind, name in end.reason) == ("halted", True), (kind, end)
        assert "the first" in end.reason or name != "ExceptionGroup"


def test_what_ends_the_process_is_told_from_what_code_raises() -> None:
    """Ctrl-C and SIGTERM while code of the topology runs are not its failure."""
    assert is_of_code(SystemExit(0)) and is_of_code(Own()) and is_of_code(ValueError())
    assert not is_of_code(Stopped(143)) and not is_of_code(KeyboardInterrupt())
    assert said(Mute()) == ""


def test_code_that_ends_the_process_anywhere_else_halts_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever queue it is in: a `parts` of a spout's own, say."""

    def ends(*_: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(Runner, "_process", ends)

    end = SimulatedDriver(topology=topology("nowhere", Own), stores=SimulatedStores()).run()

    assert end.kind == "halted"
    assert f"raised an exception that ends a process: {__file__}:" in end.reason and "SystemExit: 0" in end.reason


@pytest.mark.parametrize("by_name", [True, False])
def test_a_module_that_ends_the_process_while_it_is_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_name: bool
) -> None:
    """A script whose last line is `sys.exit(main())`: the run ended with exit code 0 and had done nothing."""
    (tmp_path / "a_script.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ConfigurationError, match=r"SystemExit: 0; put code that only a script needs below"):
        load_application("a_script" if by_name else str(tmp_path / "a_script.py"))


PACKAGE = Path(load_application.__code__.co_filename).parents[1]


@pytest.mark.parametrize(
    ("file", "is_own"),
    [
        (__file__, True),
        ("/home/ann/app.py", True),
        (f"{PACKAGE}_of_mine/app.py", True),
        (f"{PACKAGE.parent / 'committers'}_of_mine/app.py", True),
        (str(PACKAGE / "app.py"), False),
        (str(PACKAGE / "committers" / "protocol" / "commit.py"), False),
        (str((PACKAGE / "committers" / "protocol" / "commit.py").resolve()), False),
        (str((PACKAGE / "coordinators" / "memory.py").resolve()), False),
        (json.__file__, False),
        (pyarrow.__file__, False),
        ("/opt/spark/python/pyspark/sql/udf.py", False),
        ("/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", False),
        ("pyarrow/error.pxi", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_a_file_is_the_users_where_neither_txtopo_nor_spark_nor_a_library_has_it(file: str, is_own: bool) -> None:
    """One rule for what spouts, bolts and committers raise: rooms of txtopo count through their links and without, and
    a folder with a similar name does not.
    """
    assert is_of_user(file) == is_own


def test_the_package_of_an_installed_component_is_the_users_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spout from a wheel fails with the line of its own package, not with one of a library that it calls, and not
    without a line; a file outside of libraries comes first.
    """
    libraries = tmp_path / "site-packages"
    for package, text in {
        "acme_sources": "from txtopo.spouts import TransactionalSpout\nfrom acme_sources.parse import number\n"
        "class Numbers(TransactionalSpout):\n    outputs = ['n bigint']\n"
        "    def read(self, text): return number(text)\n",
        "acme_library": "def whole(text): return int(text)\n",
    }.items():
        (libraries / package).mkdir(parents=True)
        (libraries / package / "__init__.py").write_text(text, encoding="utf-8")
    called = "from acme_library import whole\n\ndef number(text):\n    return whole(text)\n"
    (libraries / "acme_sources" / "parse.py").write_text(called, encoding="utf-8")
    monkeypatch.syspath_prepend(str(libraries))
    read: Any = importlib.import_module("acme_sources").Numbers.read

    with pytest.raises(ValueError) as raised:
        read(None, "seven")
    frames = [frame for frame in traceback.extract_tb(raised.value.__traceback__) if "site-packages" in frame.filename]
    installed = ValueError("x").with_traceback(cast(Any, raised.value.__traceback__).tb_next)
    trace = "".join(traceback.format_list(frames))

    assert user_line(installed) == f"{libraries}/acme_sources/parse.py:4" == user_frame(trace)
    assert user_line(raised.value) == f"{__file__}:{cast(Any, raised.value.__traceback__).tb_lineno}"


def test_a_coordinator_that_calls_a_library_wrongly_is_told_by_its_own_line() -> None:
    """The line in the library says nothing to its user."""
    with pytest.raises(BatchDataError) as found, errors_of("lines", "initialize_transaction"):
        json.loads("{")
    cause = found.value.__cause__

    assert cause is not None
    line = user_line(cause)
    assert line is not None
    assert line.startswith(f"{__file__}:")
    assert str(found.value).startswith(f"{line}: JSONDecodeError in initialize_transaction: ")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (BatchDataError("a.csv: 3 bytes", component="spout", fault="file changed"), "data (file changed) in files"),
        (BatchDataError("a.csv: 3 bytes", component="spout", cause="23514 in files"), "BatchDataError in files"),
        (BatchDataError("a.csv: 3 bytes", component="spout"), "BatchDataError in files"),
    ],
)
def test_a_fault_that_a_spout_of_txtopo_finds_has_a_cause_of_the_spout(error: BatchDataError, cause: str) -> None:
    """W7: the emitter does not know the name of its spout, and its words have values in them."""
    assert spout_failure_of(error, "files").cause == cause
    with pytest.raises(BatchDataError) as again, errors_of("files", "initialize_transaction"):
        raise error
    assert again.value.cause == (cause if error.fault else error.cause)
