"""Orders, ranges and verdicts without a database."""

from __future__ import annotations

from typing import Any, cast

import click
import pytest

from tests.unit.reports.test_text_output import topology as status_of
from txtopo.cli.ranges import Span, one_span, spans
from txtopo.operating.dry_runs import (
    FILES_TOLD_MAX,
    NotOrderedError,
    OrderPreview,
    PreviewedBatch,
    nothing_to_retry,
    preview,
    preview_text,
)
from txtopo.operating.orders import NewOrder
from txtopo.operating.verify import Verdict, Verified, exit_code_of, verified_text
from txtopo.reports.interventions import Redos
from txtopo.reports.model import SourceFile


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("17", ((17, 17),)),
        ("17..42", ((17, 42),)),
        ("17..", ((17, None),)),
        ("..42", ((None, 42),)),
        ("1,5, 7..9", ((1, 1), (5, 5), (7, 9))),
    ],
)
def test_ranges_are_read_as_people_type_them(text: str, expected: tuple[Span, ...]) -> None:
    """Promise: RANGE like 17, 17..42, 1,5,7..9, open at either end."""
    assert spans(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1..x", "4..2", "0", "..0", "-1", "1-3", "1...3", "1,,2", "1 ..2", "9" * 30])
def test_what_is_no_range_is_refused(text: str) -> None:
    """A range that is guessed at would replay the wrong batches."""
    with pytest.raises(click.BadParameter):
        spans(text)


def test_audit_takes_one_range_only() -> None:
    """`txtopo audit` and `txtopo replay` read the same notation; commas are for replay."""
    assert one_span("3..4") == (3, 4)
    with pytest.raises(click.BadParameter):
        one_span("3,4")


def test_the_same_order_has_the_same_arguments() -> None:
    """One open order of a kind about the same txids is found again by what it says."""
    assert NewOrder(topology="f", kind="retry", txids=(5, 6)).arguments == '{"txids": [5, 6]}'
    assert NewOrder(topology="f", kind="replan").arguments == "{}"


@pytest.mark.parametrize(("state", "who"), [("STOPPED", "the next leader carries it out"), ("RUNNING", "its leader")])
def test_an_order_to_retry_that_is_open_is_no_nothing(state: str, who: str) -> None:
    """Its leader began the attempt and died: the batch has not failed now, and the order still stands."""
    topology = status_of(state=state, leader=None)

    said = nothing_to_retry(topology, ["batch 7 has not failed: it is processed in its turn"], {5: 12})
    without = nothing_to_retry(topology, [], {})

    assert "batch 7 has not failed" in said
    assert f"order 12 to retry batch 5 is open and not answered yet: {who}" in said
    assert without == "flights has no failed batch. Nothing to retry."


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["MATCH"], 0),
        (["MATCH", "UNVERIFIED"], 3),
        (["UNVERIFIED", "MISMATCH", "MATCH"], 1),
        (["MISMATCH"], 1),
        ([], 3),
    ],
)
def test_a_difference_wins_over_what_could_not_be_found_out(verdicts: list[Verdict], code: int) -> None:
    """Promise: exit 0/1/3, 1 wins over 3; nothing verified is never MATCH."""
    assert exit_code_of([Verified(txid=n, verdict=verdict) for n, verdict in enumerate(verdicts, 1)]) == code


def test_findings_do_not_steer_the_terminal() -> None:
    """What comes from files and tracebacks is spelled out."""
    told = verified_text(Verified(txid=7, verdict="MISMATCH", findings=("key \x1b[31m",)))

    assert told == "batch 7  MISMATCH\n  key \\x1b[31m"


def test_the_last_applied_redo_counts_for_its_whole_family() -> None:
    """Promise: batches redone already: the last applied redo in the chain is what counts."""
    redos = Redos(first={7: 3, 9: 3}, applied={3: 9})

    assert [redos.applied_for(txid) for txid in (3, 7, 9, 4)] == [9, 9, 9, None]


def test_many_files_are_named_in_part_and_counted() -> None:
    """A preview fits on a screen; control characters in names are spelled out."""
    files = tuple(SourceFile(spout="f", path=f"/in/{n}\n", size=n, fingerprint="") for n in range(FILES_TOLD_MAX + 2))
    batch = PreviewedBatch(
        txid=5, state="failed", attempts=1, next_attempt=1, files=files, metadata={}, failure=None, reason=None
    )

    told = preview_text(OrderPreview(topology="f", kind="retry", effect="x", batches=(batch,), tables={}))

    assert "  file      /in/0\\n  0 B\n" in told
    assert "            and 2 more" in told
    assert "/in/5" not in told


@pytest.mark.parametrize("ranges", [(), ((17, 42),), ((None, 5),), ((1, 1), (2, 2))])
def test_a_skip_of_anything_but_one_batch_is_refused(ranges: tuple[Span, ...]) -> None:
    """A preview of one of them would not show what is asked for."""
    with pytest.raises(NotOrderedError, match="one batch is skipped at a time\n  next: txtopo skip"):
        preview(cast(Any, None), status_of(), "skip", ranges)
