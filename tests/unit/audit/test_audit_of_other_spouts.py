"""The audit of spouts that are not made of files: UNVERIFIED with the reason, never MATCH without proof; several
spouts, idle ones.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from txtopo.audit.check_ledger import LedgerCheck
from txtopo.audit.check_redos import Chains
from txtopo.audit.check_seal import Chain, Seals
from txtopo.audit.check_source import SourceCheck
from txtopo.audit.verdicts import Findings, Verdict
from txtopo.core.fields import parse_fields
from txtopo.core.plan import Plan
from txtopo.reports.stored_description import CommitterTables, committers_of
from txtopo.reports.stored_plans import files_of, metadata_of
from txtopo.spouts.file_spout import FileSpout
from txtopo.topology.components import SpoutContext

OTHER = {"txid": 1, "count": 1, "partitions": [{"range": [0, 2]}]}
MESSAGES = {"txid": 1, "tuples": [[["a"], "m1"]]}
CODE = b"c" * 32


def planned(tmp_path: Path, rows: int) -> dict[str, Any]:
    """The metadata of a file with so many records."""
    path = tmp_path / "a.csv"
    path.write_text("n\n" + "1\n" * rows)
    spout = FileSpout(str(path), parse_fields("n int"), settled_s=0)
    context = SpoutContext(topology="t", spout="files", consumed={}, once=True, monotonic=lambda: 1.0, say=print)
    coordinator = spout.open_coordinator(context)
    while not coordinator.is_ready():
        pass
    return dict(coordinator.initialize_transaction(1, None))


def committer(spout: str, name: str = "c") -> CommitterTables:
    """Reads a spout straight."""
    return CommitterTables(
        name=name,
        target="public.t",
        keys=("n",),
        count="rows",
        aggregates=(),
        contributions=True,
        spout=spout,
        way="direct",
        alone=False,
    )


def checked(
    metadata: dict[str, Any], *, read: int, contributed: dict[str, dict[Any, Any]] | None = None, **committers: str
) -> tuple[Findings, int | None]:
    """The findings of one applied batch with this plan, and how many records were counted. `contributed`: key -> count,
    by committer.
    """
    findings = Findings()

    class Recounting(SourceCheck):
        def _contributions(self, committer: CommitterTables, txid: int) -> Any:
            return (contributed or {}).get(committer.name, {})

    connection: Any = None
    source = Recounting(
        findings=findings,
        connection=connection,
        topology="t",
        committers={name: committer(spout, name) for name, spout in committers.items()},
        described_code=CODE,
        chains=Chains([]),
        recounting=True,
        readable=set(committers),
    )
    plan = Plan(topology="t", incarnation="i", txid=1, previous_digest=b"", metadata=metadata)
    files = [
        SimpleNamespace(spout=spout, path=file["path"], fingerprint=bytes.fromhex(file["sha256"]), redo=False)
        for spout, value in metadata.items()
        for file in value.get("files", ())
    ]
    row = SimpleNamespace(txid=1, state="applied", redo_of=None, backfills=None, read=read, rejected=0, code_hash=CODE)
    return findings, source.check(row, SimpleNamespace(bytes=plan.bytes, txid=1), files, [], [])


def told(findings: Findings) -> list[str]:
    return [finding.message for finding in findings._found]


@pytest.mark.parametrize(
    "metadata", [OTHER, MESSAGES, {"txid": 1, "metadata": {"files": 3}}, {"txid": 1, "metadata": 7}]
)
def test_a_spout_without_files_is_unverified_with_the_reason(metadata: dict[str, Any]) -> None:
    """Never MATCH without proof, never a crash."""
    findings, records = checked({"words": metadata}, read=2)

    assert (findings.verdict_of(1), records) == (Verdict.UNVERIFIED, None)
    assert told(findings) == ["there is no independent recount of this kind of spout"]


def test_files_beside_another_spout_are_still_recounted(tmp_path: Path) -> None:
    """Of several spouts each says its own; the sum of records cannot be compared, the keys of the files' committer can."""  # noqa: E501
    metadata = {"words": OTHER, "files": planned(tmp_path, rows=3)}
    right, _ = checked(metadata, read=5, c="files", contributed={"c": {(1,): [3]}})
    wrong, _ = checked(metadata, read=5, c="files", contributed={"c": {(1,): [2]}})

    assert (right.verdict_of(1), wrong.verdict_of(1)) == (Verdict.UNVERIFIED, Verdict.MISMATCH)
    assert told(right) == ["spout words: there is no independent recount of this kind of spout"]
    assert "committer c, key n 1: rows 3 in its files, rows 2 contributed" in told(wrong)


def test_an_idle_spout_is_no_part_of_the_batch(tmp_path: Path) -> None:
    """Its last metadata is not counted again, and its committer contributed nothing."""
    metadata = {"files": planned(tmp_path, rows=3), "words": {"$idle": OTHER}, "never": {"$idle": None}}
    right, records = checked(metadata, read=3, c="files", w="words", contributed={"c": {(1,): [3]}})
    wrong, _ = checked(metadata, read=3, c="files", w="words", contributed={"c": {(1,): [3]}, "w": {("a",): [1]}})

    assert (right.verdict_of(1), records, told(right)) == (Verdict.MATCH, 3, [])
    assert wrong.verdict_of(1) is Verdict.MISMATCH
    assert "committer w, key n 'a': nothing in its files, rows 1 contributed" in told(wrong)


def test_show_and_files_leave_idle_spouts_out() -> None:
    """What a batch consists of is what is shown of it; spouts without files have none."""
    plan = Plan(
        topology="t",
        incarnation="i",
        txid=1,
        previous_digest=b"",
        metadata={"a": OTHER, "b": {"$idle": {"$part": "00"}}},
    )
    nowhere: Any = None
    row: Any = {"bytes": plan.bytes}

    metadata, problem = metadata_of(nowhere, row)

    assert (dict(metadata), problem) == ({"a": OTHER}, None)
    assert files_of(metadata, []) == ()


COUNT = {"kind": "count", "table": "public.t", "keys": ["k"], "count": "n", "sums": {}, "contributions": True}


def test_the_row_equation_of_several_spouts_is_a_bound() -> None:
    """The ledger counts the records of all spouts together: what arrived of one of them is at most as many."""
    description = {
        "spouts": {"s": {}, "u": {}},
        "bolts": {},
        "committers": {"c": {**COUNT, "input": "s"}, "d": {**COUNT, "input": "u"}},
    }
    committers = committers_of(description)
    one_spout = committers_of({**description, "spouts": {"s": {}}, "committers": {"c": {**COUNT, "input": "s"}}})
    row = SimpleNamespace(txid=1, read=5, rejected=0, dead_lettered=0, code_hash=CODE)

    def verdict(committers: Any, *arrived: int) -> Verdict:
        findings = Findings()
        counts = [SimpleNamespace(committer=name, arrived=number) for name, number in zip("cd", arrived, strict=False)]
        around: Any = SimpleNamespace(counts=counts)
        nothing = Chain(findings, "", "")
        seals = Seals(findings=findings, descriptions=nothing, actions=nothing)
        LedgerCheck(findings, "t", "i", 1, committers, seals, CODE, frozenset())._check_equation(row, around)
        return findings.verdict_of(1)

    assert verdict(committers, 2, 3) is Verdict.MATCH
    assert verdict(committers, 6, 3) is Verdict.MISMATCH
    assert verdict(one_spout, 2) is Verdict.MISMATCH
    assert verdict(one_spout, 5) is Verdict.MATCH
