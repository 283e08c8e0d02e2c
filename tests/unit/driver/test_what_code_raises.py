"""Whatever the code of a spout, a bolt or a committer raises ends in a halt with its words: never in exit code 0, never
without an end.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.bolts import BasicBolt, BatchBolt, BatchCommitter
from txtopo.core.state import Rules
from txtopo.driver.load_application import load_application
from txtopo.driver.runner import Runner
from txtopo.errors import ConfigurationError, Stopped
from txtopo.spouts import TransactionalSpout
from txtopo.testing.simulated import SimulatedDriver, SimulatedStores
from txtopo.topology.user_exceptions import is_of_code, said


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
    """Whatever lane it is in: a `parts` of a spout's own, say."""

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

    with pytest.raises(ConfigurationError, match=r"SystemExit: 0; what only a script does belongs below `if __name__"):
        load_application("a_script" if by_name else str(tmp_path / "a_script.py"))
