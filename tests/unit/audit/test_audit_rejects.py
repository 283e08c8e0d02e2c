"""Rejected records in the recount: the audit's own reader beside what the file source rejected, record by record."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from txtopo import FileSpout
from txtopo.audit.recount import Recounted, recount
from txtopo.audit.recount_rejects import KeptReject
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.topology.components import SpoutContext, Tally

FIELDS = "a int, b string not null, d decimal(6,2)"


def planned(path: Path) -> tuple[FileSpout, dict[str, Any]]:
    """The metadata of a batch that consists of this file."""
    spout = FileSpout(str(path), FIELDS, settled_s=0.0)
    coordinator = spout.open_coordinator(
        SpoutContext(topology="t", spout="s", consumed={}, once=True, monotonic=time.monotonic, say=lambda _: None)
    )
    while not coordinator.is_ready():
        time.sleep(0.001)
    return spout, dict(coordinator.initialize_transaction(1, None))


def emitted(path: Path) -> tuple[dict[str, Any], Tally, list[KeptReject]]:
    """What the file source makes of it."""
    spout, metadata = planned(path)
    tally = Tally()
    for part in spout.parts(metadata):
        for _ in spout.emit_part(metadata, part, tally):
            pass
    kept = sorted(tally.rejects, key=lambda one: one.line)
    return (
        metadata,
        tally,
        [KeptReject(line=one.line, reason=one.reason, raw=one.raw, raw_bytes=one.raw_bytes) for one in kept],
    )


def audited(metadata: dict[str, Any], kept: Sequence[KeptReject]) -> Recounted:
    """The recount beside these rejected records."""
    return recount(metadata, [], lambda _: iter(kept))[0]


def write(folder: Path, content: bytes) -> Path:
    """An input file."""
    path = folder / "a.csv"
    path.write_bytes(content)
    return path


BAD = b'a,b,d\n1,x,2\nz,x,2\n3,"x\ny",2\n4,x\n5,x,2,2\n6,,2\n7,x\0,2\n8,\xff,2\n9,"x\n\nq",1.005\n10,x,2\n11,"x,2\n12,x,2\n'  # noqa: E501
"""Lines 3, 6, 7, 8, 9, 10, 11 and 15 do not parse."""


def test_the_file_source_and_the_audit_reject_the_same_records(tmp_path: Path) -> None:
    """Promise: wrong number of columns, an unparsable value, NULL in NOT NULL, NUL, no UTF-8, an unclosed quote: one
    line each, with its bytes.
    """
    metadata, tally, kept = emitted(write(tmp_path, BAD))

    found = audited(metadata, kept)

    assert [one.line for one in kept] == [3, 6, 7, 8, 9, 10, 11, 15]
    assert (found.judged.wrong.lines, found.judged.unsure.lines) == ([], [])
    assert (found.records, found.judged.rejected, found.judged.compared) == (tally.read, tally.rejected, 8)
    assert found.first_rejected is not None
    assert found.first_rejected.startswith(f"{tmp_path / 'a.csv'}:3: ")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pyarrow, about a row that is not UTF-8
@pytest.mark.parametrize("seed", range(3))
def test_random_scraps_are_rejected_alike(tmp_path: Path, seed: int) -> None:
    """Promise: two readers that share no code agree about every record, its line and its bytes, whatever the file looks
    like.
    """
    chance = random.Random(seed)
    pieces = [
        b"1",
        b"x",
        b",",
        b",",
        b'"',
        b"\n",
        b"\r\n",
        b"\r",
        b'""',
        b"1,y,2\n",
        b'2,"z",3\n',
        b"\0",
        b"\xff",
        b" ",
        b"-1.5",
    ]
    rejected = 0
    for _ in range(60):
        content = b"a,b,d\n" + b"".join(chance.choices(pieces, k=chance.randrange(1, 40)))
        metadata, tally, kept = emitted(write(tmp_path, content))
        found = audited(metadata, kept)
        rejected += tally.rejected

        assert (found.judged.wrong.lines, found.judged.unsure.lines) == ([], []), content
        assert (found.records, found.judged.rejected) == (tally.read, tally.rejected), content
    assert rejected > 100


def change(one: KeptReject, **values: Any) -> KeptReject:
    return KeptReject(**{"line": one.line, "reason": one.reason, "raw": one.raw, "raw_bytes": one.raw_bytes, **values})


@pytest.mark.parametrize(
    ("at", "values", "said"),
    [
        (0, None, ":3 does not parse (no whole number), but is not among the rejected records"),
        (7, None, ":15 does not parse (a quoted value is not closed), but is not among"),
        (0, {"raw": b"y,x,2"}, ":3: the rejected record that was kept is not the one in the source"),
        (0, {"raw_bytes": 6}, ":3: the rejected record that was kept is not the one in the source"),
        (0, {"line": 2, "raw": b"1,x,2"}, ":2 was rejected (column 'a'"),
        (2, {"line": 5, "raw": b"y"}, ":5: a rejected record was kept, but no record starts there"),
        (7, {"line": 99}, ":99: a rejected record was kept, but no record starts there"),
    ],
)
def test_a_rejected_record_that_was_changed_is_told(
    tmp_path: Path, at: int, values: dict[str, Any] | None, said: str
) -> None:
    """Promise: removed, edited, moved or made up: each is found."""
    metadata, _, kept = emitted(write(tmp_path, BAD))
    assert "'a'" in kept[0].reason
    kept[at : at + 1] = [] if values is None else [change(kept[at], **values)]

    found = audited(metadata, sorted(kept, key=lambda one: one.line))

    assert any(said in line for line in found.judged.wrong.lines), found.judged.wrong.lines


def test_many_wrong_records_are_counted(tmp_path: Path) -> None:
    """Promise: the first are named, the rest is counted."""
    metadata, _, _ = emitted(write(tmp_path, BAD))

    assert audited(metadata, []).judged.wrong.lines[-1] == "3 more records like these"


def test_a_long_record_is_compared_as_far_as_it_was_kept(tmp_path: Path) -> None:
    """Promise: the first 64 KiB are kept, and the length of the whole."""
    long = b"z," + b"x" * (2 * REJECTED_RAW_BYTES_MAX) + b",1"
    metadata, _, kept = emitted(write(tmp_path, b"a,b,d\n" + long + b"\n1,x,2\n"))

    assert (len(kept[0].raw), kept[0].raw_bytes) == (REJECTED_RAW_BYTES_MAX, len(long))
    assert audited(metadata, kept).judged.wrong.lines == []
    assert audited(metadata, [change(kept[0], raw_bytes=len(long) + 1)]).judged.wrong.number == 1


def test_what_the_audit_cannot_judge_is_unsure_and_never_right(tmp_path: Path) -> None:
    """Promise: a spelling on which readers disagree is UNVERIFIED, both where it was rejected and where it was not."""
    metadata, _, kept = emitted(write(tmp_path, b"a,b,d\n1,x,1e2\n2,x,1e9\n3,x,3\n"))
    rejected = KeptReject(line=2, reason="no number", raw=b"1,x,1e2", raw_bytes=7)

    without, added = audited(metadata, []), audited(metadata, [rejected, *kept])

    assert [one.line for one in kept] == [3]
    assert (without.judged.wrong.number, without.judged.unsure.number, without.judged.rejected) == (0, 1, 0)
    assert (added.judged.wrong.number, added.judged.unsure.number, added.judged.rejected) == (0, 1, 2)


def test_a_plain_mistake_beside_a_doubtful_value_is_no_doubt(tmp_path: Path) -> None:
    """Promise: doubt covers only the value that is doubtful."""
    metadata, _, _ = emitted(write(tmp_path, b"a,b,d\nz,x,1e2\n"))

    assert audited(metadata, []).judged.wrong.number == 1


def test_a_header_that_is_not_the_planned_one_is_a_difference(tmp_path: Path) -> None:
    """A file with the planned bytes whose plan names other columns: none of its records is counted."""
    metadata, _, kept = emitted(write(tmp_path, b"a,b,d\n1,x,2\n"))

    found = audited({**metadata, "headers": [["b", "a", "d"]]}, kept)

    (told,) = found.judged.wrong.lines
    assert told == f"{tmp_path}/a.csv:1: the header is ['a', 'b', 'd'], planned ['b', 'a', 'd']"
    assert found.records == 0


def test_a_rejected_record_that_counts_something_else_is_a_difference(tmp_path: Path) -> None:
    """Row 3 of a file of lines is no place in it."""
    metadata, _, kept = emitted(write(tmp_path, b"a,b,d\n1,x,2\nz,x,2\n"))

    found = audited(metadata, [replace(one, unit="row") for one in kept])

    assert found.judged.wrong.lines == [f"{tmp_path}/a.csv:3: the rejected record that was kept counts in rows"]
