"""What the audit says of seals, on rows made by hand: each deviation alone, which a real database shows only together
with others.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from txtopo.audit import check_seal
from txtopo.audit.check_seal import DESCRIBED, LOGGED, Around, Chain, Seals
from txtopo.audit.expected_seals import Expected, check_expected, read_expected
from txtopo.audit.verdicts import Findings
from txtopo.errors import ConfigurationError

A, B = "a" * 64, "b" * 64


class Answering:
    """A database that answers with these rows."""

    def __init__(self, *rows: Any) -> None:
        self._rows = rows

    def execute(self, statement: Any, bound: Any) -> Any:
        return self._rows


def messages(findings: Findings) -> list[str]:
    return [finding.message for finding in findings.findings()]


def report(tmp_path: Path, **other: Any) -> str:
    """A report of an earlier audit, as a file."""
    kept = {
        "schema": "txtopo.audit/1",
        "topology": "t",
        "batches": [{"txid": 4, "seal": A}, {"txid": 5, "seal": None}],
        "head": {"txid": 9, "seal": B},
        "last_action": {"number": 3, "seal": A},
        **other,
    }
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    return str(tmp_path / "kept.json")


def test_a_kept_report_brings_the_seals_of_batches_head_and_actions(tmp_path: Path) -> None:
    expected = read_expected("t", [report(tmp_path), f"4:{A.upper()}"])

    assert (expected.batches, expected.actions) == ({4: A, 9: B}, {3: A})


@pytest.mark.parametrize(
    ("other", "given", "words"),
    [
        ({"topology": "u"}, [], "a report about u, not t"),
        ({}, [f"4:{B}"], "two seals of 4"),
        ({"schema": "txtopo.status/2"}, [], "not a report of"),
    ],
)
def test_seals_that_cannot_be_meant_are_refused(
    other: dict[str, Any], given: list[str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read_expected("t", [report(tmp_path, **other), *given])


def test_kept_seals_are_compared_with_those_stored() -> None:
    """Of batches and of actions; what lies before the range says nothing."""
    findings = Findings()
    actions = Chain(findings, LOGGED, "action", {3: SimpleNamespace(seal=bytes.fromhex(A))})
    connection: Any = Answering(SimpleNamespace(txid=4, seal=A), SimpleNamespace(txid=5, seal=A))

    check_expected(findings, connection, "t", Expected({4: A}, {3: A}), actions, 1)
    assert (messages(findings), findings.limits()) == ([], ())
    check_expected(findings, connection, "t", Expected({5: B, 6: B}, {3: B, 4: A}), actions, 2)

    first, *rest = messages(findings)
    assert first.startswith(
        f"expected is seal {B}, the ledger has seal {A}; of 2 seals expected the first that differs"
    )
    assert [words.partition(" seal")[0] for words in rest] == ["of action 3", "of action 4"]
    assert [one.reason.partition(":")[0] for one in findings.limits()] == ["only seals from batch 2 on were recomputed"]


def row(**other: Any) -> Any:
    """A ledger row of version 2, as far as it is looked at before its seal."""
    return SimpleNamespace(
        **{
            "txid": 2,
            "seal_version": 2,
            "seal": None,
            "sealed_attempts": [[0, "applied"]],
            "sealed_description": 1,
            "sealed_action": 1,
            "state": "applied",
            "code_hash": b"c",
            **other,
        }
    )


def sealed(row: Any, *attempts: int, before: Any = None, **chains: Any) -> list[str]:
    """What is found wrong with ties and version of a row, with these attempts beside it."""
    findings = Findings()
    there = {1: SimpleNamespace(code_hash=b"c", seal=b"d")}
    seals = Seals(
        findings=findings,
        descriptions=Chain(findings, DESCRIBED, "description", chains.get("descriptions", there)),
        actions=Chain(findings, LOGGED, "action", chains.get("actions", there)),
    )
    around = Around(counts=(), edges=(), plans=(), attempts=[SimpleNamespace(attempt=one) for one in attempts])
    if before is None:
        seals._check_ties(row, around)
    else:
        seals.check(row, around, before)
    return messages(findings)


def test_what_a_seal_counts_on_is_there() -> None:
    assert sealed(row(), 0) == []
    assert sealed(row()) == ["of its attempts, by its seal, attempt 0 is gone"]
    assert sealed(row(), 0, 1) == ["its seal knows nothing of its attempt 1"]
    assert sealed(row(state="quarantined"), 0, 1) == []
    assert sealed(row(), 0, descriptions={}) == ["description 1, which its seal covers, is missing"]
    other = {1: SimpleNamespace(code_hash=b"other", seal=b"d")}
    assert "described was code" in sealed(row(), 0, descriptions=other)[0]
    assert sealed(row(), 0, actions={}) == ["action 1, which its seal covers, is missing"]


def test_a_version_of_seals_that_is_not_known_is_not_called_right() -> None:
    assert "of version 3, which a later release makes" in sealed(row(seal_version=3), 0, before=row())[0]


def test_versions_of_seals_never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is sealed as the first release did covers less: whoever forges would like that."""
    monkeypatch.setattr(check_seal, "_seal_1", lambda *_: b"s")

    assert sealed(row(seal_version=1, seal=b"s"), 0, before=row()) == [
        "its seal is of version 1, that of the batch before of version 2"
    ]
    assert sealed(row(seal_version=1, seal=b"s"), 0, before=row(seal_version=1)) == []
    assert "recomputed" in sealed(row(seal_version=1, seal=b"t"), 0, before=row(seal_version=1))[0]


def chained(*rows: tuple[int | None, bytes | None]) -> list[str]:
    """What is found wrong with a chain of these numbers and seals."""
    findings = Findings()
    at = datetime(2026, 1, 1, tzinfo=UTC)
    Chain(findings, LOGGED, "action").read(
        [SimpleNamespace(number=number, seal=seal, at=at) for number, seal in rows], lambda one: [one.number]
    )
    return messages(findings)


def test_a_chain_has_no_gap_no_change_and_nothing_beside_it() -> None:
    first = check_seal._digest([1, None])
    second = check_seal._digest([2, first.hex()])

    assert chained((1, first), (2, second)) == []
    assert "was never sealed" in chained((1, first), (None, None), (2, second))[0]
    assert "1 action before action 2" in chained((2, second))[0]
    assert "action 2 was changed" in chained((1, first), (2, check_seal._digest([2, None])))[0]
