"""What differs between kinds of committers is in their class and in one table a room: nothing else asks for a kind."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from txtopo import (
    AggregateCommitter,
    AppendCommitter,
    CountCommitter,
    NewIds,
    ReplaceCommitter,
    TopologyBuilder,
    UpsertCommitter,
)
from txtopo.bolts import BatchCommitter
from txtopo.committers.memory.memory_applying import MemoryDraft
from txtopo.committers.memory.memory_halves import MEMORY_HALVES, MemoryApplying
from txtopo.committers.memory.memory_store import MemoryPostgres
from txtopo.committers.postgres.postgres_halves import POSTGRES_HALVES
from txtopo.core.fields import Fields
from txtopo.core.values import CommitterCount, CommitterResult, Lead
from txtopo.errors import InvariantBroken, TopologyTypeError
from txtopo.operating.verify import COMPARED
from txtopo.reports.stored_description import TABLES
from txtopo.spouts import TextSpout
from txtopo.testing import TopologyHarness
from txtopo.testing.capturing import Capture
from txtopo.topology.batch_committer import CommitCollector, CommitTransaction
from txtopo.topology.committer_bolt import Aggregation, CommitterBolt
from txtopo.topology.components import CommitterComponent, Topology
from txtopo.topology.streams import Tuple
from txtopo.tuples.executor_halves import EXECUTOR_HALVES, CountHalf

ROOT = Path(__file__).resolve().parents[3]
CLASSES = (
    AggregateCommitter,
    AppendCommitter,
    CountCommitter,
    ReplaceCommitter,
    UpsertCommitter,
    BatchCommitter,
    NewIds,
    Capture,
)
KINDS = {
    "AggregateCommitter",
    "AppendCommitter",
    "CountCommitter",
    "ReplaceCommitter",
    "UpsertCommitter",
    "BatchCommitter",
    "NewIds",
    "Capture",
}


class Same(BatchCommitter):
    """Emits its rows unchanged."""

    outputs = ["line string"]

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for row in rows:
            collector.emit(row.values)


def asked(tree: ast.AST) -> list[int]:
    """Return the lines that ask which class a committer has: isinstance, issubclass, a class pattern, a comparison."""
    lines = []
    for node in ast.walk(tree):
        asks: list[ast.expr] = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("isinstance", "issubclass"):
            asks = node.args[1:]
        elif isinstance(node, ast.MatchClass):
            asks = [node.cls]
        elif isinstance(node, ast.Compare):
            asks = [one for one in (node.left, *node.comparators) if isinstance(one, ast.Name)]
        if KINDS & {one.id for ask in asks for one in ast.walk(ask) if isinstance(one, ast.Name)}:
            lines.append(getattr(node, "lineno", 0))
    return lines


def test_no_code_asks_for_a_kind() -> None:
    """A new kind of committer is one class and a row in each table; no `isinstance` has to be found and extended."""
    assert asked(ast.parse("if isinstance(committer.bolt, BatchCommitter | str): pass")) == [1]
    assert asked(ast.parse("match bolt:\n  case CountCommitter(): pass")) == [2]
    assert asked(ast.parse("type(bolt) is NewIds")) == [1]
    assert {kind.__name__ for kind in CLASSES} == KINDS
    files = [file for room in ("txtopo", "committers", "coordinators") for file in sorted((ROOT / room).rglob("*.py"))]
    assert len(files) > 300
    texts = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}
    found = {name: asked(ast.parse(text)) for name, text in texts.items() if any(kind in text for kind in KINDS)}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "table",
    [EXECUTOR_HALVES, MEMORY_HALVES, POSTGRES_HALVES, COMPARED],
    ids=["executor", "memory", "postgres", "compared"],
)
def test_each_room_has_its_half_of_every_kind(table: Mapping[str, object]) -> None:
    """A kind that is missing in a room would fail in the first batch, or in the first audit."""
    assert set(table) == {kind.committer_kind for kind in CLASSES}


def test_reports_read_the_tables_of_kinds_that_keep_some() -> None:
    """What `describe` calls its kind is what the audit finds; a custom committer has no tables that it could count."""
    counting = (CountCommitter("words", ["word"]), AggregateCommitter("words", ["word"]))
    bolts = (
        *counting,
        AppendCommitter("words"),
        UpsertCommitter("words", ["word"]),
        ReplaceCommitter("words", partition="word"),
    )
    assert set(TABLES) == {str(bolt.describe()["kind"]) for bolt in bolts}


def built(*committers: tuple[str, CommitterBolt, str], lines: str = "nowhere") -> Topology:
    """Return a topology of lines with committers, each with its name and what it reads."""
    builder = TopologyBuilder("lines")
    builder.set_spout("source", TextSpout(lines))
    for name, bolt, source in committers:
        builder.set_committer_bolt(name, bolt).shuffle_grouping(source)
    return builder.build()


COUNTS = CountCommitter("by_line", ["line"])


def test_a_half_gets_the_class_of_its_own_kind_only() -> None:
    """A half that is called for another kind must not continue with wrong attributes."""
    (component,) = built(("counts", COUNTS, "source")).committers
    assert component.bolt_as(CountCommitter) is COUNTS
    with pytest.raises(InvariantBroken, match="committer counts is no NewIds"):
        component.bolt_as(NewIds)


@pytest.mark.parametrize(
    ("committers", "why"),
    [
        ([("counts", COUNTS, "source")], None),
        (
            [
                ("rows", AppendCommitter("rows"), "source"),
                ("last", UpsertCommitter("last", ["line"]), "source"),
                ("days", ReplaceCommitter("days", partition="line"), "source"),
            ],
            None,
        ),
        ([("same", Same(), "source")], "committer same is a Same, which commits batches one by one"),
        (
            [("same", Same(), "source"), ("counts", COUNTS, "same")],
            "committer same is a Same, which commits batches one by one",
        ),
    ],
)
def test_a_topology_says_why_its_batches_are_not_committed_in_runs(
    committers: list[tuple[str, CommitterBolt, str]], why: str | None
) -> None:
    """Only a committer whose tables txtopo keeps, and that reads no other one, leaves in runs what it leaves alone."""
    assert built(*committers).single_commits == why


def test_what_is_downstream_of_a_committer_is_not_committed_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its input exists only when the committer upstream is applied, batch by batch."""
    monkeypatch.setattr(Same, "commits_in_runs", True)
    topology = built(("same", Same(), "source"), ("counts", COUNTS, "same"))
    assert (
        topology.single_commits
        == "committer counts is downstream of a committer, so it runs in the commit of each batch"
    )


class Third(CommitterBolt):
    """A kind that the product does not have: it counts lines, and stores them in its own way."""

    committer_kind: ClassVar[str] = "third"

    def aggregation(self) -> Aggregation:
        return Aggregation(keys=("line",), count="n")

    def required_fields(self) -> tuple[str, ...]:
        return ("line",)

    def check_fields(self, fields: Fields) -> None: ...

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.committer_kind}


class ThirdInMemory:
    """Its half of the ledger in memory."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.rows: list[dict[str, Any]] = []

    def prepare(self, store: MemoryPostgres, lead: Lead, committer: CommitterComponent) -> None:
        self.prepared.append(committer.name)

    def apply(
        self,
        applying: MemoryApplying,
        committer: CommitterComponent,
        result: CommitterResult,
        collector: CommitCollector | None,
    ) -> CommitterCount:
        self.rows += result.rows.to_pylist()
        return CommitterCount(
            committer=committer.name,
            arrived=result.arrived,
            counted=result.arrived,
            results=result.row_count,
            written=result.row_count,
            digest=0,
        )

    def last_contributed(self, draft: MemoryDraft, committer: CommitterComponent) -> CommitterResult | None:
        return None


def test_a_new_kind_is_its_class_and_a_row_in_each_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted here in the rooms that a harness uses: nothing else has to know of it."""
    stored = ThirdInMemory()
    monkeypatch.setitem(EXECUTOR_HALVES, "third", CountHalf())
    monkeypatch.setitem(MEMORY_HALVES, "third", stored)
    (tmp_path / "a.txt").write_text("x\ny\nx\n", encoding="utf-8")
    topology = built(("third", Third(), "source"), lines=str(tmp_path))
    assert topology.describe()["committers"]["third"]["kind"] == "third"
    assert topology.single_commits == "committer third is a Third, which commits batches one by one"
    with TopologyHarness(topology) as harness:
        harness.run()
    assert stored.prepared == ["third"]
    assert stored.rows == [{"line": "x", "n": 2}, {"line": "y", "n": 1}]


def test_a_committer_without_a_kind_is_refused_when_it_is_set() -> None:
    """No room has halves for it, so it could never be applied."""

    class Bare(Third):
        committer_kind: ClassVar[str] = ""

    with pytest.raises(
        TopologyTypeError, match="Bare subclasses CommitterBolt directly; it must derive from BatchComm"
    ):
        built(("bare", Bare(), "source"))
