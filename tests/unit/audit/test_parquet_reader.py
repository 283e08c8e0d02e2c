"""The audit's reader of Parquet: it agrees with the tasks about every value, and says what it cannot read."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.contracts.format_contract import Emission
from tests.unit.spouts.formats.test_parquet import BAD, GIVEN, REJECTED, D, read, written
from txtopo.audit import recount as recounting
from txtopo.audit.readers import parquet_reader
from txtopo.audit.readers.reader import HashedFile
from txtopo.audit.recount import Recounted, UnknownSourceError, UnreadableError, recount
from txtopo.audit.recount_rejects import KeptReject
from txtopo.core.fields import parse_fields

ALL = [(declared, values) for declared, values, _ in (*GIVEN, *REJECTED)]
FAR = 2**63 - 1


def recounted(metadata: Mapping[str, Any], found: Emission) -> Recounted:
    """What the audit says of a batch with these rejected records."""

    def kept(path: str) -> Iterator[KeptReject]:
        for one in found.rejects:
            yield KeptReject(line=one.line, unit=one.unit, reason=one.reason, raw=one.raw, raw_bytes=one.raw_bytes)

    return recount(metadata, [], kept)[0]


@pytest.mark.parametrize(("declared", "values"), ALL, ids=str)
def test_both_decoders_reject_the_same_rows_with_the_same_text(declared: str, values: pa.Array, tmp_path: Path) -> None:
    """Texts that are not UTF-8, and timestamps far outside of what DuckDB has, are not judged, which it says."""
    _, metadata, found = read(written(tmp_path, {"a": values}), f"a {declared}")
    if values.equals(BAD) or (values.type == pa.timestamp("ms") and 2**61 in values.cast(pa.int64()).to_pylist()):
        with pytest.raises(UnreadableError, match="DuckDB does not read it"):
            recounted(metadata, found)
        return
    if pa.types.is_decimal256(values.type):
        with pytest.raises(UnreadableError, match="DuckDB reads column 'a' as DOUBLE"):
            recounted(metadata, found)
        return
    judged = recounted(metadata, found)
    assert (judged.records, judged.judged.rejected) == (len(values), len(found.rejects))
    assert (judged.judged.wrong.lines, judged.judged.unsure.lines) == ([], [])


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_what_duckdb_takes_for_infinity_is_a_number_here(unit: str, zone: str | None, tmp_path: Path) -> None:
    """The rejected rows that were kept are those of the source."""
    values = pa.array([FAR, -FAR, -FAR - 1, 0], pa.timestamp(unit, zone))
    _, metadata, found = read(written(tmp_path, {"a": values}), f"a {'timestamp' if zone else 'timestamp_ntz'}")
    assert len(found.rejects) == 3
    judged = recounted(metadata, found).judged
    assert (judged.wrong.lines, judged.unsure.lines, judged.rejected) == ([], [], 3)


def test_a_row_that_was_rejected_for_nothing_or_not_rejected_is_wrong(tmp_path: Path) -> None:
    _, metadata, found = read(written(tmp_path, {"a": pa.array([1, None, 3])}), "a int not null")
    (reject,) = found.rejects
    wrong = recounted(metadata, Emission(rejects=[])).judged.wrong.lines
    assert wrong == [f"{reject.position} does not parse (column a is NULL), but is not among the rejected records"]
    first = KeptReject(line=1, unit="row", reason="none", raw=b'{"a": 1}', raw_bytes=8)
    second = KeptReject(line=2, unit="row", reason=reject.reason, raw=b'{"a": 7}', raw_bytes=8)
    found_wrong = recount(metadata, [], lambda path: iter([first, second]))[0].judged.wrong.lines
    assert found_wrong == [
        f"{reject.path}, row 1 was rejected (none), but nothing is wrong with it",
        f"{reject.path}, row 2: the rejected record that was kept is not the one in the source",
    ]


def test_a_timestamp_that_duckdb_cuts_off_is_not_judged(tmp_path: Path) -> None:
    """INT96 has nanoseconds, of which it gives microseconds."""
    values = pa.array([1000, 1500], pa.timestamp("ns"))
    path = written(tmp_path, {"a": values}, use_deprecated_int96_timestamps=True)
    _, metadata, found = read(path, "a timestamp")
    assert [one.line for one in found.rejects] == [2]
    judged = recounted(metadata, found).judged
    assert (judged.wrong.lines, len(judged.unsure.lines), judged.rejected) == ([], 1, 1)


def test_without_duckdb_the_audit_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, metadata, found = read(written(tmp_path, {"a": pa.array([1])}), "a int")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UnknownSourceError, match=r"duckdb, which is not installed: pip install 'txtopo\[audit\]'"):
        recounted(metadata, found)


def test_a_file_that_is_written_while_the_audit_reads_it_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, {"a": pa.array([1])})
    _, metadata, found = read(path, "a int")
    judge = recounting._Recounter._take

    def touched(*arguments: Any) -> None:
        path.write_bytes(path.read_bytes())
        judge(*arguments)

    monkeypatch.setattr(recounting._Recounter, "_take", touched)
    with pytest.raises(UnreadableError, match="it changed while it was read"):
        recounted(metadata, found)


def test_rows_that_come_in_another_order_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, metadata, found = read(written(tmp_path, {"a": pa.array([1, 2])}), "a int")
    ordered = f"(select * from {parquet_reader._FOUND} order by 1 desc)"
    monkeypatch.setattr(parquet_reader, "_FOUND", ordered)
    with pytest.raises(UnreadableError, match="DuckDB returns row 2 instead of row 1"):
        recounted(metadata, found)


def test_columns_are_found_by_their_place(tmp_path: Path) -> None:
    """Names that DuckDB takes for equal, or for parts of an expression, and keys of a folder, are nothing special."""
    folder = tmp_path / "day=1" / "a[1]*"
    folder.mkdir(parents=True)
    table = pa.table(
        {
            "A": ["x"],
            "a": [5],
            'q"; drop table t': [6],
            "day": [7],
            "user": [{"Id": 8, "id": 9}],
        }
    )
    names = 'a int, `q"; drop table t` int, day int, i int, A string'
    _, metadata, found = read(written(folder, table), names, paths={"i": ("user", "id")})
    assert found.rows == [(5, 6, 7, 9, "x")]
    reader = parquet_reader.ParquetReader({"paths": {"i": ["user", "id"]}}, parse_fields(metadata["schema"]))
    (file,) = metadata["files"]
    with Path(file["path"]).open("rb", buffering=0) as opened:
        taken = [(one.number, tuple(one.values)) for one in reader.read(file, HashedFile(opened))]
    assert taken == [(1, (5, 6, 7, 9, "x"))]


def test_decimals_are_exact(tmp_path: Path) -> None:
    value = D("12345678901234567890123456789.123456789")
    _, metadata, found = read(written(tmp_path, {"a": pa.array([value], pa.decimal128(38, 9))}), "a decimal(38,9)")
    assert found.rows == [(value,)]
    reader = parquet_reader.ParquetReader({"paths": {}}, parse_fields(metadata["schema"]))
    (file,) = metadata["files"]
    with Path(file["path"]).open("rb", buffering=0) as opened:
        (one,) = reader.read(file, HashedFile(opened))
    assert one.values == [value]


def test_a_file_that_is_elsewhere_is_read_from_a_copy_of_what_was_hashed(tmp_path: Path) -> None:
    """Its bytes come once, one after the other."""
    path = written(tmp_path, {"a": pa.array(range(5000))})
    _, metadata, _ = read(path, "a bigint")
    reader = parquet_reader.ParquetReader({"paths": {}}, parse_fields(metadata["schema"]))
    (file,) = metadata["files"]
    hashed = HashedFile(BytesIO(path.read_bytes()))
    assert [one.values for one in reader.read(file, hashed)] == [[number] for number in range(5000)]
    assert (hashed.size, hashed.sha256) == (file["size"], file["sha256"])


def test_a_plan_that_says_other_things_than_the_file_is_wrong(tmp_path: Path) -> None:
    """A number of rows, or a column."""
    _, metadata, found = read(written(tmp_path, {"a": pa.array([1, 2]), "b": pa.array([3, 4])}), "a int")
    metadata["files"][0]["groups"][0][0] = 3
    (wrong,) = recounted(metadata, found).judged.wrong.lines
    assert wrong.endswith("it has 2 rows, planned 3")
    metadata["format"]["paths"] = {"a": ["c"]}
    (wrong,) = recounted(metadata, found).judged.wrong.lines
    assert wrong.endswith("column 'c' stands 0 times in it")
