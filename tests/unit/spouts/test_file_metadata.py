"""What the metadata of a batch of files says, and which files cannot be a batch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.unit.spouts.test_file_spout import FIELDS, Driver, names, write
from txtopo.audit.recount import recount
from txtopo.errors import BatchDataError
from txtopo.spouts.file_spout import FileSpout
from txtopo.topology.components import Tally


def test_metadata_names_files_header_schema_and_fingerprints(tmp_path: Path) -> None:
    """Metadata of a batch: file names with size, mtime and content fingerprint, the header and the declared schema;
    JSON only.
    """
    first = write(tmp_path / "a.csv", "\ufeffdistance,carrier,x\r\n1,UA,\r\n")
    second = write(tmp_path / "b.csv", 'carrier,distance\n"U\0A",1\n')
    third = write(tmp_path / "c.csv", "")
    write(tmp_path / "d.csv", "distance,carrier,x\n")
    driver = Driver(tmp_path, files_per_batch=9)

    (batch,) = driver.settled()

    assert json.loads(json.dumps(batch)) == batch
    assert batch["format"] == {"kind": "csv", "delimiter": ",", "null_values": [""], "part_bytes": 64 * 1024 * 1024}
    assert batch["schema"] == "`carrier` string, `distance` int"
    assert batch["headers"] == [["distance", "carrier", "x"], ["carrier", "distance"]]
    files = batch["files"]
    assert [file["header"] for file in files] == [0, 1, None, 0]
    assert [(file["quotes"], file["nul"], file["data"]) for file in files] == [
        (False, False, 23),
        (True, True, 17),
        (False, False, 0),
        (False, False, 19),
    ]
    for file, path in zip(files, (first, second, third), strict=False):
        status = path.stat()
        assert (file["path"], file["size"], file["mtime_ns"], file["inode"], file["ctime_ns"]) == (
            str(path),
            status.st_size,
            status.st_mtime_ns,
            status.st_ino,
            status.st_ctime_ns,
        )
        assert file["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    inputs = driver.spout.inputs(batch)
    assert [(found.path, found.fingerprint.hex()) for found in inputs] == [
        (file["path"], file["sha256"]) for file in files
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"carrier,dist\nUA,1\n", r"column 'distance' is missing; the header has 'carrier', 'dist'"),
        (b"carrier,distance,carrier\n", r"column 'carrier' stands 2 times"),
        (b'"carrier,distance\n', r"not closed"),
        (b"carrier,distance,\xff\n", r"not UTF-8"),
        (b"\x1f\x8b\x08\x00", r"gzip, not UTF-8 text; deliver it under a name that ends with \.gz \(docs/files\.md\)$"),
        (b"carrier;distance\nUA;1\n", r"is ';' its delimiter\? Say FileSpout\(…, delimiter=';'\)"),
        (b"\xfd7zXZ\x00\x00\x04", r"xz"),
        (b"BZh91AY&SY\x00", r"bzip2"),
        (b"PAR1\x15\x04\x15\x10", r"Parquet"),
        ("carrier,distance\n".encode("utf-32"), r"UTF-32"),
        (b'{"carrier": "UA", "distance": 1}\n', r"looks like JSON"),
        (b'[{"carrier": "UA"}]\n', r"looks like JSON"),
        (b"May 16 10:05:00 host kernel: up, and more\n", r"has the file no header line\?"),
        (b"Carrier , distanCE\n", r"exactly, including blanks and case"),
        (b"x" * 3000 + b",y\n", r"missing; the header has 'x{300,400}…;"),
        ("carrier,distance\nUA,1\n".encode("utf-16-le"), r"column 'carrier' is missing; the header has 'c\\x00a"),
        ("carrier,distance\n".encode("utf-16"), r"UTF-16"),
        (b"x" * 2_000_000, r"header record is longer"),
    ],
)
def test_a_file_without_a_fitting_header_cannot_be_a_batch(tmp_path: Path, content: bytes, complaint: str) -> None:
    """A missing column halts with file and column; asking again gives the same answer, the file is never skipped."""
    (tmp_path / "a.csv").write_bytes(content)
    driver = Driver(tmp_path, once=True)

    for _ in range(2):
        with pytest.raises(BatchDataError, match=rf"a\.csv: .*{complaint}") as error:
            driver.settled()
        assert error.value.component == "lines"
        assert error.value.position == f"{tmp_path / 'a.csv'}:1"
        assert not driver.coordinator.is_exhausted()


@pytest.mark.parametrize("content", [b"", b"\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_without_anything_in_it_is_a_batch_without_records(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)

    (batch,) = Driver(tmp_path).settled()

    assert (batch["headers"], batch["files"][0]["header"]) == ([], None)
    tally = Tally()
    spout = FileSpout(tmp_path, FIELDS)
    assert [list(spout.emit_part(batch, part, tally)) for part in spout.parts(batch)] == [[]]
    assert tally.read == 0
    assert recount(batch, [], lambda path: iter(()))[0].records == 0


@pytest.mark.parametrize("names", ["PAR1,distance", "BZhou,distance", "ORC,distance"])
def test_a_header_may_begin_with_the_letters_of_another_format(tmp_path: Path, names: str) -> None:
    write(tmp_path / "a.csv", f"{names}\nUA,1\n")

    assert len(Driver(tmp_path, fields="distance int").settled()) == 1


def test_files_before_a_bad_one_are_a_batch_and_the_repaired_one_follows(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    bad = write(tmp_path / "b.csv", "carrier\n")
    driver = Driver(tmp_path, files_per_batch=5)
    driver.look()

    assert driver.look(2.0)
    assert names([driver.coordinator.initialize_transaction(1, None)]) == [["a.csv"]]
    assert driver.look()
    with pytest.raises(BatchDataError):
        driver.coordinator.initialize_transaction(2, None)
    write(bad)

    driver.look()
    assert names(driver.settled()) == [["b.csv"]]
