"""What a person reads who has to find out what is wrong: one line for what is the same, no words that say nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from txtopo.audit.audit_text import SHOWN_MAX, audit_text
from txtopo.audit.verdicts import Auditor, AuditReport, Finding, Verdict
from txtopo.tuples.user_errors import failure_of, user_frame


def finding(message: str, *txids: int, verdict: Verdict = Verdict.UNVERIFIED) -> Finding:
    """Of the recount."""
    return Finding(check="source.content", verdict=verdict, message=message, txids=txids)


def shown(*findings: Finding) -> list[str]:
    """The lines of the report about findings."""
    paragraphs = audit_text(report(findings)).split("\n\n")
    return [line for line in paragraphs[1].splitlines() if "[source.content]" in line or line.startswith("and ")]


def report(findings: tuple[Finding, ...]) -> AuditReport:
    """Of an audit that found nothing but these."""
    return AuditReport(
        topology="t",
        first_txid=1,
        last_txid=0,
        committed_txid=0,
        planned_ahead=0,
        generated_at=datetime(2026, 1, 1, tzinfo=UTC),
        verdict=Verdict.UNVERIFIED,
        checks=(),
        findings=findings,
        by_design=(),
        failures=(),
        attempts={},
        failures_by_kind={},
        actions=(),
        orders=(),
        holes=(),
        batches=(),
        auditor=Auditor(user="ann", host="desk", role="reader", version="1"),
        head=None,
        last_action=None,
        code_hash=None,
        unbatched=(),
        staging_left=(),
        dead_lettered=0,
    )


def test_a_reason_that_many_batches_share_is_told_once() -> None:
    """A topology with a source of one's own has the same reason in each batch: the one that differs must be seen among
    them.
    """
    lines = shown(*(finding("no recount", txid) for txid in (1, 2, 3, 5)), finding("gone", 4), finding("gone", 5, 6))

    assert lines == [
        "UNVERIFIED  batches 1, 2, 3, 5: no recount  [source.content]",
        "UNVERIFIED  batch 4: gone  [source.content]",
        "UNVERIFIED  gone  [source.content]",
    ]


@pytest.mark.parametrize(
    ("txids", "where"),
    [
        (range(7, 8), "batch 7"),
        (range(7, 9), "batches 7, 8"),
        (range(1, 2001), "batches 1 to 2000"),
        (range(2, 60, 2), "batches 2, 4, 6, 8, 10, 12, 14, 16, 18, 20 and 19 more"),
    ],
)
def test_batches_are_named_in_short(txids: Any, where: str) -> None:
    """A stretch by its ends, others by the first ones and how many there are."""
    assert shown(*(finding("no recount", txid) for txid in txids)) == [
        f"UNVERIFIED  {where}: no recount  [source.content]"
    ]


def test_other_verdicts_and_messages_stay_apart_and_what_is_not_listed_is_counted() -> None:
    """Nothing is merged that differs, and the number of what is left out is that of the findings."""
    wrong = finding("same words", 1, verdict=Verdict.MISMATCH)
    many = [finding(f"reason {number}", number) for number in range(SHOWN_MAX)]

    lines = shown(wrong, finding("same words", 2), *many, finding("reason 49", 70))

    assert lines[:2] == [
        "MISMATCH  batch 1: same words  [source.content]",
        "UNVERIFIED  batch 2: same words  [source.content]",
    ]
    assert (len(lines), lines[-1]) == (SHOWN_MAX + 1, "and 3 more (--json lists all)")


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("/tmp/spark-0f1e-22/userFiles-0a1b2c3d-ff00/helper.py", "helper.py:7"),
        ("/tmp/spark-0f1e-22/userFiles-0a1b2c3d-ff00/lib.zip/own/parts.py", "lib.zip/own/parts.py:7"),
        ("/home/ann/app.py", "/home/ann/app.py:7"),
    ],
)
def test_a_module_that_was_shipped_has_the_name_under_which_it_was_shipped(file: str, named: str) -> None:
    """Spark's folder of this run is gone when somebody reads the error."""
    assert user_frame(f'Traceback:\n  File "{file}", line 7, in clean\nValueError: no') == named


def test_an_error_without_words_is_told_by_its_name_alone() -> None:
    """MemoryError has no message: a colon with nothing behind it reads as if something had been cut off."""
    assert failure_of(MemoryError(), "split", on="n=1").message == "MemoryError; on n=1"
    assert failure_of(ValueError("no"), "split", on="n=1").message == "ValueError: no; on n=1"
