"""Compressed files give the same rows, rejected records and places as what was compressed, or fail their batch."""

from __future__ import annotations

import hashlib
import os
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.archives import ENDINGS, WRITERS
from tests.unit.spouts.test_file_spout import Driver
from txtopo.audit.recount import ChangedError, Recounted, UnknownSourceError, UnreadableError, recount
from txtopo.audit.recount_rejects import KeptReject
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError
from txtopo.spouts import unpacked_file
from txtopo.spouts.formats.csv import windows
from txtopo.spouts.formats.lines import line_windows
from txtopo.spouts.text_spout import TextSpout
from txtopo.topology.components import Position, Spout, SpoutContext, Tally

FIELDS = "id int not null, name string, price decimal(10,2)"
KINDS = tuple(WRITERS)
every_kind = pytest.mark.parametrize("kind", KINDS)


def content(rows: int, *, hostile: bool = True) -> bytes:
    """CSV with quotes, line ends inside values, blank lines and records that do not parse."""
    chance = random.Random(3)
    lines = [b"\xef\xbb\xbfname,id,price\r\n"]
    for number in range(rows):
        name = chance.choice([b"plain", b'"two\r\nlines"', b'"a ""b"" c"', b"", b'""', "é".encode(), b"0x1F"])
        price = b"%d.%02d" % (number, number % 100)
        if hostile and chance.random() < 0.02:
            number_text = chance.choice([b"x", b"0x1F", b"1,2", b"", b'1"'])
            lines.append(name + b"," + number_text + b"," + price + b"\n")
        else:
            lines.append(name + b",%d," % number + price + chance.choice([b"\n", b"\r\n"]))
        if chance.random() < 0.01:
            lines.append(b"\n")
    return b"".join(lines)


def planned(folder: Path, name: str, data: bytes, **options: Any) -> tuple[Driver, Any]:
    """Return the driver and the plan of a folder with one file."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    driver = Driver(folder, fields=FIELDS, settled_s=0, **options)
    (metadata,) = driver.batches()
    return driver, metadata


def emitted(driver: Driver, metadata: Any) -> tuple[list[dict[str, Any]], list[RejectedRow], Tally]:
    """Return rows, rejected records, and the tally."""
    rows: list[dict[str, Any]] = []
    tally = Tally()
    for part in driver.spout.parts(metadata):
        for batch in driver.spout.emit_part(metadata, part, tally):
            rows += batch.to_pylist()
    return rows, list(tally.rejects), tally


def placed(rejects: list[RejectedRow]) -> list[tuple[int, str, bytes, int]]:
    """Return rejected records without their file."""
    return [(reject.line, reject.reason, reject.raw, reject.raw_bytes) for reject in rejects]


def audited(metadata: Any, rejects: list[RejectedRow]) -> Recounted:
    """Return what the audit finds."""

    def kept(path: str) -> Iterator[KeptReject]:
        for reject in rejects:
            yield KeptReject(line=reject.line, reason=reject.reason, raw=reject.raw, raw_bytes=reject.raw_bytes)

    return recount(metadata, [], kept)[0]


@every_kind
def test_a_compressed_file_gives_what_was_compressed(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, rejected records with line, reason and raw text, wherever windows and archives end. The audit agrees."""
    monkeypatch.setattr(windows, "WINDOW_BYTES", 3_000)
    data = content(1_500)
    plain_rows, plain_rejects, plain_tally = emitted(*planned(tmp_path / "plain", "a.csv", data))
    at = len(data) // 3
    stored = WRITERS[kind](data[:at]) + WRITERS[kind](data[at:])
    driver, metadata = planned(tmp_path / kind, f"a.csv{ENDINGS[kind]}", stored, part_bytes=1000)

    rows, rejects, tally = emitted(driver, metadata)

    assert len(driver.spout.parts(metadata)) == 1
    assert metadata["files"][0]["codec"] == kind
    assert metadata["files"][0]["sha256"] == hashlib.sha256(stored).hexdigest()
    assert rows == plain_rows
    assert placed(rejects) == placed(plain_rejects)
    assert len(rejects) > 10
    assert tally.read == plain_tally.read == len(rows) + len(rejects)
    found = audited(metadata, rejects)
    assert (found.records, found.judged.rejected, found.judged.wrong.lines) == (tally.read, len(rejects), [])


@every_kind
def test_a_row_of_a_compressed_file_is_located(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", 3_000)
    data = content(500)
    plain, plain_metadata = planned(tmp_path / "plain", "a.csv", data)
    driver, metadata = planned(tmp_path / kind, f"a.csv{ENDINGS[kind]}", WRITERS[kind](data))
    rows, _, _ = emitted(driver, metadata)
    (part,) = driver.spout.parts(metadata)
    for number in (0, 1, len(rows) // 2, len(rows) - 1):
        found = driver.spout.locate(metadata, part, number)
        wanted = plain.spout.locate(plain_metadata, plain.spout.parts(plain_metadata)[0], number)
        assert isinstance(found, Position)
        assert isinstance(wanted, Position)
        assert found.raw == wanted.raw
        assert found.position.rpartition(":")[2] == wanted.position.rpartition(":")[2]
    assert driver.spout.locate(metadata, part, len(rows)) is None


@every_kind
@pytest.mark.parametrize("damage", ["cut", "behind", "flipped"])
def test_a_damaged_archive_fails_its_batch_and_rejects_nothing(
    tmp_path: Path, kind: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacked_file, "CHUNK_BYTES", 100)  # The header is read long before the damage.
    chance = random.Random(4)
    data = b"name,id,price\n" + b"".join(b"n,%d,1.5\n" % chance.randrange(10**8) for _ in range(40_000))
    stored = WRITERS[kind](data)
    middle = len(stored) * 3 // 4
    damaged = {
        "cut": stored[:-1],
        "behind": stored + b"x",
        "flipped": stored[:middle] + bytes([stored[middle] ^ 0x10]) + stored[middle + 1 :],
    }[damage]
    message = rf"a\.csv\{ENDINGS[kind]}: its {kind} archive .*byte \d+"
    if (kind, damage) == ("bzip2", "flipped"):  # Its only block is damaged, so its header is wrong.
        with pytest.raises(BatchDataError, match=message):
            planned(tmp_path / kind, f"a.csv{ENDINGS[kind]}", damaged)
        return
    driver, metadata = planned(tmp_path / kind, f"a.csv{ENDINGS[kind]}", damaged, on_bad_line="fail")
    with pytest.raises(BatchDataError, match=message) as caught:
        emitted(driver, metadata)
    assert caught.value.fault == "damaged archive"
    with pytest.raises(UnreadableError, match=r"in it is (damaged|cut off)"):
        audited(metadata, [])


def test_a_record_that_damage_made_is_not_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes come out before their checksum is known."""
    monkeypatch.setattr(unpacked_file, "CHUNK_BYTES", 100)
    monkeypatch.setattr(windows, "WINDOW_BYTES", 100)
    data = b"name,id,price\nn,x,1.5\n" + b"n,1,1.5\n" * 100_000
    driver, metadata = planned(tmp_path / "a", "a.gz", WRITERS["gzip"](data)[:-1], on_bad_line="fail")
    with pytest.raises(BatchDataError, match="its gzip archive is damaged or cut off"):
        emitted(driver, metadata)
    driver, metadata = planned(tmp_path / "b", "a.gz", WRITERS["gzip"](data), on_bad_line="fail")
    with pytest.raises(BatchDataError, match=r"a\.gz:2: column 'id': 'x' is no int"):
        emitted(driver, metadata)


@every_kind
def test_a_file_that_is_no_such_archive_is_not_planned(tmp_path: Path, kind: str) -> None:
    for name, data, message in (
        ("empty", b"", f"it holds no byte, so it is no {kind} archive"),
        ("plain", b"name,id,price\n", f"it is no {kind} archive: it begins with 6e"),
    ):
        with pytest.raises(BatchDataError, match=message):
            planned(tmp_path / name, f"a{ENDINGS[kind]}", data)


def test_a_compressed_file_under_another_name_is_not_planned(tmp_path: Path) -> None:
    for kind, ending in ENDINGS.items():
        message = rf"a\.csv: it is {kind}, not UTF-8 text; .*a name that ends with \{ending}"
        with pytest.raises(BatchDataError, match=message):
            planned(tmp_path / kind, "a.csv", WRITERS[kind](b"name,id,price\n"))


@every_kind
@pytest.mark.parametrize("data", [b"", b"\n\n", b"name,id,price\n", b"name,id,price"])
def test_a_compressed_file_without_records_is_a_batch_without_records(tmp_path: Path, kind: str, data: bytes) -> None:
    driver, metadata = planned(tmp_path / kind, f"a{ENDINGS[kind]}", WRITERS[kind](data))
    rows, rejects, tally = emitted(driver, metadata)
    assert (rows, rejects, tally.read) == ([], [], 0)
    assert audited(metadata, []).records == 0


@every_kind
def test_a_header_longer_than_a_decoder_gives_at_first(tmp_path: Path, kind: str) -> None:
    noise = random.Random(1).randbytes(400_000).hex().encode()
    data = b"name,id,price," + noise + b"\nx,1,2\n"
    driver, metadata = planned(tmp_path / kind, f"a{ENDINGS[kind]}", WRITERS[kind](data))
    assert emitted(driver, metadata)[1][0].reason == "3 columns, the header has 4"


def test_content_of_exactly_the_bytes_that_are_looked_at_is_whole(tmp_path: Path) -> None:
    for less in (-1, 0, 1):
        data = b"name,id,price," + b"n" * (1024 * 1024 - 14 - less)
        driver, metadata = planned(tmp_path / str(less), "a.gz", WRITERS["gzip"](data)) if less >= 0 else (None, None)
        if driver is not None:
            assert emitted(driver, metadata)[0] == []
        else:
            with pytest.raises(BatchDataError, match="its header record is longer than"):
                planned(tmp_path / str(less), "a.gz", WRITERS["gzip"](data))


def test_a_file_that_is_replaced_by_a_whole_archive_has_changed(tmp_path: Path) -> None:
    driver, metadata = planned(tmp_path / "a", "a.gz", WRITERS["gzip"](content(10)))
    path = Path(metadata["files"][0]["path"])
    path.write_bytes(WRITERS["gzip"](content(11)))
    with pytest.raises(BatchDataError, match="the source changed after it was planned"):
        emitted(driver, metadata)
    with pytest.raises(ChangedError):
        audited(metadata, [])


def test_bytes_that_differ_while_stat_does_not_are_noticed(tmp_path: Path) -> None:
    """What is decoded is hashed: a write through a memory mapping changes no time stamp."""
    driver, metadata = planned(tmp_path / "a", "a.gz", WRITERS["gzip"](content(10)))
    path = Path(metadata["files"][0]["path"])
    data = bytearray(path.read_bytes())
    data[4] ^= 1  # The time in the header of gzip, which no checksum covers.
    path.write_bytes(data)
    status = path.stat()
    metadata["files"][0].update(mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns, inode=status.st_ino)
    with pytest.raises(BatchDataError, match="the source changed after it was planned"):
        emitted(driver, metadata)


def test_a_codec_that_is_not_known_here_stops_the_batch_and_the_audit_says_nothing(tmp_path: Path) -> None:
    driver, metadata = planned(tmp_path / "a", "a.gz", WRITERS["gzip"](content(10)))
    metadata["files"][0]["codec"] = "brotli"
    with pytest.raises(BatchDataError, match=r"a\.gz: the batch was planned with codec 'brotli', which this release"):
        emitted(driver, metadata)
    with pytest.raises(UnknownSourceError, match="files compressed with 'brotli' are not read by this audit"):
        audited(metadata, [])


def test_a_large_file_is_read_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", 256 * 1024)
    data = b"name,id,price\n" + b"plain,1,2.50\n" * 1_000_000
    driver, metadata = planned(tmp_path / "a", "a.gz", WRITERS["gzip"](data))
    check_memory(driver.spout, metadata, 1_000_000)


def test_a_large_text_is_read_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_windows, "WINDOW_BYTES", 64 * 1024)
    spout, metadata = planned_text(tmp_path / "a.log.gz", WRITERS["gzip"](b"a line of a log\n" * 1_000_000))
    check_memory(spout, metadata, 1_000_000)


def check_memory(spout: Spout, metadata: Any, wanted: int) -> None:
    """Read a batch of one part, which is many times as large as the memory that may be used."""
    (part,) = spout.parts(metadata)
    rows = 0
    tracemalloc.start()
    try:
        for batch in spout.emit_part(metadata, part, Tally()):
            rows += batch.num_rows
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == wanted
    assert peak < 4 * 1024 * 1024


def test_small_compressed_files_share_a_part(tmp_path: Path) -> None:
    for name in ("a.gz", "b.csv", "c.gz"):
        data = content(20, hostile=False)
        (tmp_path / name).write_bytes(data if name.endswith("csv") else WRITERS["gzip"](data))
    driver = Driver(tmp_path, fields=FIELDS, settled_s=0, files_per_batch=3)
    (metadata,) = driver.batches()
    assert len(driver.spout.parts(metadata)) == 1
    assert len(emitted(driver, metadata)[0]) == 60


def planned_text(path: Path, stored: bytes) -> tuple[TextSpout, Any]:
    """Return a spout over one file of text, and its plan."""
    path.write_bytes(stored)
    spout = TextSpout(os.fspath(path), settled_s=0)
    context = SpoutContext(topology="t", spout="s", consumed={}, once=False, monotonic=lambda: 0.0, say=print)
    coordinator = spout.open_coordinator(context)
    assert coordinator.is_ready()
    return spout, coordinator.initialize_transaction(1, None)


@every_kind
def test_lines_of_a_compressed_text_are_read(tmp_path: Path, kind: str) -> None:
    data = b"\xef\xbb\xbffirst\r\n\nbad \xff line\nlast"
    spout, metadata = planned_text(tmp_path / f"a.log{ENDINGS[kind]}", WRITERS[kind](data))
    tally = Tally()
    (part,) = spout.parts(metadata)
    texts = [text for batch in spout.emit_part(metadata, part, tally) for text in batch.column(0).to_pylist()]
    assert texts == ["first", "", "last"]
    assert [(reject.line, reject.raw) for reject in tally.rejects] == [(3, b"bad \xff line")]
