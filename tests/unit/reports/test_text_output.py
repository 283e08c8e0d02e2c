"""Plain text and JSON of the reading commands: units, alignment, nothing that steers a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from txtopo.reports.as_json import batches_json, status_json
from txtopo.reports.formatting import clean, count, duration, instant, size, table
from txtopo.reports.model import BatchRow, CommitterNumbers, FailureCounts, LastLeader, TopologyStatus
from txtopo.reports.status_text import batches_text, status_text

NOON = datetime(2026, 11, 21, 12, 0, 0, 1500, tzinfo=UTC)


def topology(**changed: object) -> TopologyStatus:
    """A topology that fares well."""
    values: dict[str, object] = {
        "topology": "flights",
        "state": "RUNNING",
        "epoch": 3,
        "incarnation": "i",
        "application": "f.py:topology",
        "last_txid": 12_345,
        "last_committed_at": NOON,
        "planned_txid": 12_400,
        "problem": None,
        "reason": None,
        "halted_txid": None,
        "failed_attempts": 0,
        "failures": FailureCounts(data=0, infrastructure=0, suspect=0),
        "failed_txids": (),
        "quarantined": 0,
        "holes": 0,
        "hole_txids": (),
        "rejected": 0,
        "dead_lettered": 0,
        "open_order_count": 0,
        "open_orders": (),
        "leader": LastLeader(host="box", pid=1, since=NOON, heartbeat_at=NOON, heartbeat_age_s=1.5),
    }
    return TopologyStatus(**{**values, **changed})  # type: ignore[arg-type]


def row(txid: int, *committers: CommitterNumbers, read: int | None = 1_200) -> BatchRow:
    """A committed batch."""
    return BatchRow(
        txid=txid,
        state="committed",
        attempts=1,
        failed_attempts=0,
        files=1,
        read=read,
        rejected=0,
        redo_of=None,
        committers=committers,
        committed_at=NOON,
        duration_s=0.35,
    )


def numbers(name: str, arrived: int, written: int) -> CommitterNumbers:
    """A committer's numbers."""
    return CommitterNumbers(
        committer=name,
        arrived=arrived,
        counted=arrived,
        results=written,
        written=written,
        ignored=0,
        reversed=0,
        digest="1",
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.35, "350 ms"),
        (0.9999, "1.00 s"),
        (1.849, "1.85 s"),
        (59.999, "1 min 0 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (3 * 86_400 + 4 * 3600, "3 d 4 h"),
        (-5, "0 ms"),
    ],
)
def test_durations_have_a_unit(seconds: float, words: str) -> None:
    """Promise: durations with unit."""
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (999, "999"), (1_000, "1\u2009000"), (1_234_567, "1\u2009234\u2009567")]
)
def test_counts_have_thin_spaces(value: int, words: str) -> None:
    """Promise: thin spaces for thousands."""
    assert count(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_572_864, "1.5 MiB"),
        (1024**2 - 1, "1.0 MiB"),
        (5 * 1024**5, "5120.0 TiB"),
    ],
)
def test_sizes_are_binary(value: int, words: str) -> None:
    """Promise: byte sizes binary."""
    assert size(value) == words


def test_times_are_utc_with_z() -> None:
    """Promise: UTC with Z, whatever zone the database speaks."""
    assert instant(NOON) == "2026-11-21T12:00:00.001Z"
    assert instant(NOON.astimezone(timezone(timedelta(hours=5)))) == "2026-11-21T12:00:00.001Z"


def test_tables_align_numbers_to_the_right_and_names_to_the_left() -> None:
    """Promise: plain text tables."""
    assert (
        table(["txid", "state"], [["7", "ok"], ["1000", "failed"]], left=("state",))
        == "txid  state\n   7  ok\n1000  failed"
    )


def test_control_characters_are_spelled_out() -> None:
    """Promise: text from data never steers the reader's terminal; lines of a traceback stay lines."""
    assert clean("a\x1b[2Jb\nc\u202ed") == "a\\x1b[2Jb\\nc\\u202ed"
    assert clean("a\n\tb\x07", lines=True) == "a\n\tb\\x07"
    assert "\x1b" not in table(["h"], [["\x1b[31m"]])


def test_each_committer_has_a_column() -> None:
    """Promise: per committer counts; one that a batch lacks is a dash."""
    text = batches_text("t", [row(2, numbers("a", 1_000, 3)), row(1, numbers("b", 7, 7))])

    header, second, first = text.splitlines()
    assert header.split() == [
        "txid",
        "state",
        "attempts",
        "files",
        "read",
        "rejected",
        "a",
        "b",
        "committed",
        "at",
        "duration",
    ]
    assert "1\u2009000 > 3" in second
    assert first.count(" - ") == 1


def test_no_batches_is_a_sentence() -> None:
    """Promise: an empty list is a sentence."""
    assert batches_text("flights", []) == "flights has no such batches."


def test_status_counts_what_is_planned_ahead() -> None:
    """Promise: planned ahead."""
    assert "55 ahead, up to txid 12\u2009400" in status_text([topology()])
    assert "nothing ahead" in status_text([topology(planned_txid=12_345)])


def test_json_has_a_schema_and_stable_keys() -> None:
    """Promise: every --json has a schema version; programs rely on these keys."""
    status = json.loads(status_json([topology()]))
    batches = json.loads(batches_json("t", [row(1, numbers("a", 1, 1))]))

    assert status["schema"] == "txtopo.status/2"
    assert sorted(status["topologies"][0]) == [
        "advice",
        "application",
        "dead_lettered",
        "epoch",
        "failed_attempts",
        "failed_inputs",
        "failed_runs",
        "failed_runs_total",
        "failed_txids",
        "failures",
        "halted_txid",
        "hole_txids",
        "holes",
        "incarnation",
        "lag",
        "last_committed_at",
        "last_txid",
        "leader",
        "next_commands",
        "open_order_count",
        "open_orders",
        "planned_ahead",
        "planned_txid",
        "problem",
        "quarantined",
        "reason",
        "rejected",
        "settings",
        "state",
        "topology",
        "waiting",
    ]
    assert batches["schema"] == "txtopo.batches/1"
    assert sorted(batches["batches"][0]) == [
        "attempts",
        "backfills",
        "committed_at",
        "committer",
        "committers",
        "duration_s",
        "failed_attempts",
        "files",
        "read",
        "redo_of",
        "rejected",
        "state",
        "txid",
    ]
    assert batches["batches"][0]["committed_at"] == "2026-11-21T12:00:00.001Z"
