"""Parquet: which columns are read as what, which rows are rejected, and what a damaged file does."""

from __future__ import annotations

import datetime as dt
import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.contracts.format_contract import Emission, emission, plan
from txtopo.core.fields import parse_fields
from txtopo.errors import BatchDataError, TopologyError
from txtopo.formats import Csv, Opened, Parquet, Section
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats.parquet import footer, parquet_file
from txtopo.topology.components import Position, Tally

D = Decimal
UTC = dt.UTC


def written(folder: Path, table: pa.Table | Mapping[str, pa.Array], **options: Any) -> Path:
    """A file of this table."""
    path = folder / "file.parquet"
    parquet.write_table(table if isinstance(table, pa.Table) else pa.table(dict(table)), path, **options)
    return path


def read(path: Path, fields: str, **options: Any) -> tuple[FileSpout, dict[str, Any], Emission]:
    """The source, the plan and all records of a file."""
    spout = FileSpout(path, fields, format=Parquet(**options), settled_s=0, rejected_max=1)
    metadata = plan(spout)
    return spout, metadata, emission(spout, metadata)


def column(folder: Path, values: pa.Array, declared: str, **options: Any) -> tuple[list[Any], list[str]]:
    """The values of one column as declared, and why the others are rejected."""
    found = read(written(folder, {"a": values}, **options), f"a {declared}")[2]
    assert [json.loads(reject.raw).keys() for reject in found.rejects] == [{"a"}] * len(found.rejects)
    return [row[0] for row in found.rows], [reject.reason for reject in found.rejects]


_POOLS: list[pa.MemoryPool] = []
"""Kept for ever: what was taken from a pool is given back to it, whenever that is."""


@contextmanager
def counted_memory() -> Iterator[pa.MemoryPool]:
    """A pool that counts what Arrow takes from here on."""
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(default)


BAD = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a\xff", b"ok"]).buffers())
"""Texts that are not UTF-8, as Parquet can have them."""
GIVEN: Sequence[tuple[str, pa.Array, list[Any]]] = (
    ("tinyint", pa.array([-128, None], pa.int64()), [-128, None]),
    ("bigint", pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
    ("smallint", pa.array([7], pa.uint64()), [7]),
    ("decimal(20,0)", pa.array([2**64 - 1], pa.uint64()), [D(2**64 - 1)]),
    ("decimal(5,2)", pa.array([-5], pa.int8()), [D("-5.00")]),
    ("decimal(38,10)", pa.array([D("1.5")], pa.decimal128(3, 1)), [D("1.5000000000")]),
    ("decimal(5,1)", pa.array([D("1.500"), D("-9999.900")], pa.decimal128(20, 3)), [D("1.5"), D("-9999.9")]),
    ("decimal(38,0)", pa.array([D(10) ** 37], pa.decimal256(60, 0)), [D(10) ** 37]),
    ("decimal(9,2)", pa.array([D("1.5")], pa.decimal32(5, 1)), [D("1.50")]),
    ("float", pa.array([1.5], pa.float16()), [1.5]),
    ("float", pa.array([1.5, float("inf")], pa.float32()), [1.5, float("inf")]),
    ("double", pa.array([0.5, -0.0], pa.float32()), [0.5, -0.0]),
    ("double", pa.array([1e300]), [1e300]),
    ("boolean", pa.array([True, None]), [True, None]),
    ("string", pa.array(["é", ""], pa.large_string()), ["é", ""]),
    ("string", pa.array(["x", None], pa.string_view()), ["x", None]),
    ("string", pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
    ("string", pa.array([b"\xc3\xa9"]), ["é"]),
    ("string", pa.array(['{"a": 1}'], pa.json_()), ['{"a": 1}']),
    ("binary", pa.array([b"\xff\0"]), [b"\xff\0"]),
    ("binary", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    ("binary", BAD, [b"a\xff", b"ok"]),
    ("date", pa.array([dt.date(2024, 2, 29)]), [dt.date(2024, 2, 29)]),
    (
        "timestamp",
        pa.array([5000], pa.timestamp("ns", "Asia/Tokyo")),
        [dt.datetime(1970, 1, 1, microsecond=5, tzinfo=UTC)],
    ),
    ("timestamp", pa.array([-1], pa.timestamp("ms", "UTC")), [dt.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)]),
    ("timestamp_ntz", pa.array([5], pa.timestamp("us")), [dt.datetime(1970, 1, 1, microsecond=5)]),
    ("timestamp_ntz", pa.array([5], pa.timestamp("s")), [dt.datetime(1970, 1, 1, second=5)]),
    *((kind, pa.nulls(2), [None, None]) for kind in ("int", "decimal(5,2)", "string", "timestamp", "boolean", "date")),
)


@pytest.mark.parametrize(
    ("declared", "values", "expected"), GIVEN, ids=lambda one: str(getattr(one, "type", "")) or None
)
def test_a_column_gives_a_declared_type_exactly(
    declared: str, values: pa.Array, expected: list[Any], tmp_path: Path
) -> None:
    assert column(tmp_path, values, declared) == (expected, [])


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("int", pa.float64()),
        ("int", pa.decimal128(5, 0)),
        ("int", pa.bool_()),
        ("bigint", pa.timestamp("us")),
        ("bigint", pa.duration("us")),
        ("float", pa.float64()),
        ("double", pa.int32()),
        ("double", pa.decimal128(5, 0)),
        ("decimal(5,2)", pa.float64()),
        ("decimal(5,2)", pa.string()),
        ("boolean", pa.int8()),
        ("string", pa.int32()),
        ("string", pa.list_(pa.field("element", pa.string()))),
        ("binary", pa.int32()),
        ("date", pa.timestamp("us")),
        ("date", pa.string()),
        ("timestamp", pa.date32()),
        ("timestamp", pa.timestamp("us")),
        ("timestamp_ntz", pa.timestamp("us", "UTC")),
        ("timestamp", pa.time64("us")),
        ("string", pa.map_(pa.string(), pa.field("a", pa.string()))),
    ],
    ids=str,
)
def test_a_column_that_does_not_give_the_declared_type_is_refused(
    declared: str, found: pa.DataType, tmp_path: Path
) -> None:
    """Both types and the column are named, when it is planned."""
    path = written(tmp_path, pa.table({"a": pa.array([], found)}))
    with pytest.raises(BatchDataError, match=r"file\.parquet: column 'a' has type .*, declared as ") as told:
        plan(FileSpout(path, f"a {declared}", settled_s=0))
    assert f"has type {found}" in str(told.value) and "docs/parquet.md" in str(told.value)


REJECTED: Sequence[tuple[str, pa.Array, str]] = (
    ("tinyint", pa.array([1, 128], pa.int64()), "column 'a': 128 of type int64 is no tinyint"),
    ("bigint", pa.array([2**63, 1], pa.uint64()), f"column 'a': {2**63} of type uint64 is no bigint"),
    ("decimal(5,2)", pa.array([1000, 1]), "column 'a': 1000 of type int64 is no decimal(5,2)"),
    ("decimal(5,2)", pa.array([D("1.005"), D(1)], pa.decimal128(9, 3)), '"1.005" of type decimal128(9, 3) is no'),
    ("decimal(5,2)", pa.array([D(1000), D(1)], pa.decimal128(9, 3)), '"1000.000" of type decimal128(9, 3) is no'),
    ("string", pa.array(["a\0b", "x"]), r'"a\u0000b" of type string is no string in UTF-8 without NUL'),
    ("string", BAD, r'"a\\xff" of type string is no string in UTF-8 without NUL'),
    ("string", pa.array([b"\xff", b"x"]), r'"\\xff" of type binary is no string in UTF-8 without NUL'),
    ("int not null", pa.array([None, 1]), "column 'a' is NULL, declared NOT NULL"),
    ("date", pa.array([-719163, 1], pa.date32()), "-719163 of type date32[day] is no date"),
    ("date", pa.array([2932897, 1], pa.date32()), "2932897 of type date32[day] is no date"),
    ("timestamp", pa.array([-1, 0], pa.timestamp("ns", "UTC")), '"1969-12-31T23:59:59.999999999Z" of type'),
    ("timestamp_ntz", pa.array([2**61, 0], pa.timestamp("ms")), f"{2**61 * 1000} of type timestamp[ms] is no"),
    ("timestamp_ntz", pa.array([253402300800000000, 0], pa.timestamp("us")), "253402300800000000 of type"),
    ("timestamp_ntz", pa.array([-62135596800000001, 0], pa.timestamp("us")), "-62135596800000001 of type"),
)


@pytest.mark.parametrize(("declared", "values", "reason"), REJECTED, ids=str)
def test_a_value_that_the_declared_type_does_not_have_rejects_its_row(
    declared: str, values: pa.Array, reason: str, tmp_path: Path
) -> None:
    rows, reasons = column(tmp_path, values, declared)
    assert len(rows) == 1
    assert len(reasons) == 1 and reason in reasons[0], reasons


def test_timestamps_of_int96_are_instants_and_never_cut_off(tmp_path: Path) -> None:
    """Also where nanoseconds overflow."""
    far = [
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        None,
        dt.datetime(1, 1, 1),
        dt.datetime(2024, 1, 1, 0, 0, 0, 5),
    ]
    old = {"use_deprecated_int96_timestamps": True}
    expected = [one and one.replace(tzinfo=UTC) for one in far]
    assert column(tmp_path, pa.array(far, pa.timestamp("us")), "timestamp", **old) == (expected, [])
    rows, reasons = column(tmp_path, pa.array([1000, -1500, 1999, None], pa.timestamp("ns")), "timestamp", **old)
    assert rows == [dt.datetime(1970, 1, 1, microsecond=1, tzinfo=UTC), None]
    assert [reason.rpartition(" of type ")[0] for reason in reasons] == [
        """column 'a': "1969-12-31T23:59:59.999998Z\"""",
        """column 'a': "1970-01-01T00:00:00.000001Z\"""",
    ]
    with pytest.raises(BatchDataError, match="declare it as timestamp"):
        column(tmp_path, pa.array([0], pa.timestamp("ns")), "timestamp_ntz", **old)


INNER = pa.struct({"id": pa.int64(), "more": pa.struct({"id": pa.int64(), "y": pa.list_(pa.int8())})})


def test_each_column_is_the_one_that_is_named(tmp_path: Path) -> None:
    """Not one whose path is written alike, of another case, or of a neighbour's child; NULL inside of NULL."""
    user = [{"id": 1, "a.b": 2}, None, {"id": None, "a.b": 3}]
    table = pa.table(
        {
            "user": pa.array(user, pa.struct({"x": INNER, "id": pa.int64(), "a.b": pa.int64()})),
            "tags": pa.array([["x"], [], None]),
            "user.id": [10, 20, 30],
            "ID": [7, 8, 9],
            "id": [4, 5, 6],
        }
    )
    path = written(tmp_path, table)
    fields = "`user.id` bigint, i bigint, again bigint, dots bigint, id bigint"
    paths: dict[str, Any] = {"i": ("user", "id"), "again": ("user", "id"), "dots": ("user", "a.b")}
    assert read(path, fields, paths=paths)[2].rows == [
        (10, 1, 1, 2, 4),
        (20, None, None, None, 5),
        (30, None, None, 3, 6),
    ]
    with pytest.raises(BatchDataError, match="column 'Id' is missing; the file has 'user', 'tags'"):
        read(path, "Id bigint")
    with pytest.raises(BatchDataError, match=r"column \('user', 'nr'\) is missing; 'user' has 'x', 'id', 'a.b'"):
        read(path, "n bigint", paths={"n": ("user", "nr")})
    with pytest.raises(BatchDataError, match=r"column 'tags' has type list.*, so there is no 'x' in it"):
        read(path, "n bigint", paths={"n": ("tags", "x")})


def test_the_row_that_is_kept_is_json_of_the_declared_columns(tmp_path: Path) -> None:
    """Exact, in the order of the fields, whatever the types of the file."""
    table = pa.table(
        {
            "more": ["not declared"],
            "k": pa.array([None], pa.int8()),
            "s": ['é"\n\u2028'],
            "y": [b"\xff\0"],
            "c": pa.array([D("1E-10")], pa.decimal128(20, 10)),
            "f": pa.array([0.1], pa.float32()),
            "nan": pa.array([float("nan")]),
            "d": [dt.date(1, 2, 3)],
            "t": pa.array([1_500_000], pa.timestamp("us", "UTC")),
            "n": pa.array([86_400_000], pa.timestamp("ms")),
            "o": [True],
        }
    )
    fields = (
        "o boolean, k int not null, s string, y binary, c decimal(20,10), f float, nan double, "
        "d date, t timestamp, n timestamp_ntz"
    )
    found = read(written(tmp_path, table), f"{fields}, _row bigint")[2]
    (reject,) = found.rejects
    assert reject.raw.decode() == (
        '{"o": true, "k": null, "s": "é\\"\\n\u2028", "y": "ff00", "c": "0.0000000001", "f": 0.10000000149011612, '
        '"nan": "NaN", "d": "0001-02-03", "t": "1970-01-01T00:00:01.5Z", "n": "1970-01-02T00:00:00"}'
    )
    assert (reject.line, reject.unit, reject.position) == (1, "row", f"{reject.path}, row 1")
    assert reject.raw_bytes == len(reject.raw)


def test_a_long_row_is_kept_in_part(tmp_path: Path) -> None:
    found = read(written(tmp_path, {"s": pa.array(["x" * 100_000 + "\0"])}), "s string")[2]
    (reject,) = found.rejects
    assert len(reject.raw) == 65536 and reject.raw_bytes == len('{"s": "\\u0000"}') + 100_000
    assert len(reject.reason) < 300


def test_parts_are_runs_of_row_groups_by_the_bytes_of_the_declared_columns(tmp_path: Path) -> None:
    """A large column that is not declared counts for nothing; a file without a row has one part."""
    table = pa.table({"a": range(40), "wide": ["x" * 1000] * 40})
    path = written(tmp_path, table, row_group_size=4, compression="none", use_dictionary=False)
    format_, (_, metadata, _) = Parquet(), read(path, "a bigint, _row bigint")
    (file,) = metadata["files"]
    assert [rows for rows, _ in file["groups"]] == [4] * 10 and all(size < 200 for _, size in file["groups"])
    size = file["groups"][0][1]
    assert format_.sections(file, 2 * size) == [Section(at, at + 2) for at in range(0, 10, 2)]
    assert format_.sections(file, 3 * size) == [Section(0, 3), Section(3, 6), Section(6, 9), Section(9, 10)]
    assert format_.section_bytes(file, Section(3, 6)) == 3 * size
    assert format_.sections({**file, "groups": []}, 1) == [Section(0, 0)]
    divided = {**metadata, "format": {**metadata["format"], "part_bytes": 2 * size}}
    found = emission(FileSpout(path, "a bigint, _row bigint", settled_s=0), divided)
    assert len(found.parts) == 5
    assert found.rows == [(number, number + 1) for number in range(40)]


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_page_that_is_not_what_its_checksum_says_fails_the_batch(tmp_path: Path) -> None:
    """Not one value of it is a row or a reject."""
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    path = written(tmp_path, {"a": pa.array(range(1000))}, **options)
    flipped(path, 700)
    with pytest.raises(BatchDataError, match=r"file\.parquet: its Parquet data is damaged: .*CRC checksum") as told:
        read(path, "a bigint")
    assert told.value.fault == "damaged Parquet file"


def test_a_page_that_cannot_be_decoded_fails_the_batch(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": pa.array(["some text"] * 1000)}, compression="gzip", use_dictionary=False)
    column = parquet.read_metadata(path).row_group(0).column(0)
    flipped(path, column.data_page_offset + column.total_compressed_size - 6)
    with pytest.raises(BatchDataError, match=r"its Parquet data is damaged"):
        read(path, "a string")


def test_a_row_group_with_fewer_rows_than_planned_fails_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = parquet_file.ParquetFile._batches

    def cut(self: Any, *arguments: Any) -> Iterator[Any]:
        yield from list(whole(self, *arguments))[:-1]

    path = written(tmp_path, {"a": pa.array(range(10))})
    monkeypatch.setattr(parquet_file, "ROWS_MAX", 4)
    monkeypatch.setattr(parquet_file.ParquetFile, "_batches", cut)
    with pytest.raises(BatchDataError, match="row group 0 has 8 rows, and 10 by its footer"):
        read(path, "a bigint")


def test_other_row_groups_than_planned_fail_the_batch(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": pa.array(range(10))}, row_group_size=5)
    spout, metadata, _ = read(path, "a bigint")
    metadata["files"][0]["groups"][1][0] = 4
    with pytest.raises(BatchDataError, match="its row groups are not those that were planned"):
        emission(spout, metadata)


def test_a_disk_that_fails_is_no_damage(tmp_path: Path) -> None:
    """The error is that of the disk, so that it is tried again."""
    path = written(tmp_path, {"a": pa.array(range(10_000))}, use_dictionary=False, compression="none")
    spout, metadata, _ = read(path, "a bigint")
    (file,) = metadata["files"]
    data = path.read_bytes()

    def read_at(offset: int, size_: int) -> bytes:
        if offset < 4096:
            raise OSError(errno.EIO, "no disk")
        return data[offset : offset + size_]

    opened = Opened(str(path), read_at, file["size"], b"PAR1")
    with pytest.raises(OSError, match="no disk") as told:
        list(Parquet().emit(opened, file, Section(0, 1), spout.fields))
    assert told.value.errno == errno.EIO


def test_memory_does_not_grow_with_a_row_group(tmp_path: Path) -> None:
    """40 MB of values in one row group are read in less than half of that, and columns that are not declared not at
    all.
    """
    texts = [f"{number:0100d}" for number in range(400_000)]
    path = written(tmp_path, {"a": pa.array(texts), "b": pa.array(texts)}, use_dictionary=False, compression="none")
    del texts
    spout = FileSpout(path, "a string", settled_s=0)
    metadata = plan(spout)
    assert len(metadata["files"][0]["groups"]) == 1
    with counted_memory() as pool:
        rows = 0
        for part in spout.parts(metadata):
            for batch in spout.emit_part(metadata, part, Tally()):
                rows += batch.num_rows
    assert rows == 400_000
    assert pool.max_memory() < 20_000_000


def test_a_row_group_is_read_in_pieces(tmp_path: Path) -> None:
    """Of the declared columns only: a task keeps no more stored bytes of a column than one piece, wherever they are."""
    texts = [f"{number:0100d}" for number in range(60_000)]
    path = written(tmp_path, {"a": pa.array(texts), "b": pa.array(texts)}, use_dictionary=False, compression="none")
    spout, metadata, _ = read(path, "b string")
    (file,) = metadata["files"]
    data, asked = path.read_bytes(), list[tuple[int, int]]()

    def read_at(offset: int, size: int) -> bytes:
        asked.append((offset, size))
        return data[offset : offset + size]

    rows = Parquet().emit(Opened(str(path), read_at, len(data), data[:4]), file, Section(0, 1), spout.fields)
    assert sum(one.batch.num_rows for one in rows if one.batch is not None) == 60_000
    assert file["groups"][0][1] > 5 * parquet_file.BUFFER_BYTES
    assert max(size for _, size in asked) <= 2 * parquet_file.BUFFER_BYTES
    assert sum(size for _, size in asked) < 1.2 * file["groups"][0][1]


def with_footer(rows: Sequence[int]) -> Opened:
    """A file with row groups of so many rows, without columns."""
    groups = b"".join(bytes([0x19, 0x0C, 0x26, number << 1 ^ number >> 63, 0]) for number in rows)
    data = bytes([0x49, len(rows) << 4 | 0x0C]) + groups + b"\0"
    data = b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1"
    return in_memory(data)


def in_memory(data: bytes) -> Opened:
    """A file that is these bytes."""
    return Opened("f", lambda at, size: data[at : at + size], len(data))


def test_a_damaged_footer_is_refused_in_words(tmp_path: Path) -> None:
    """Whichever byte of it is another one: it can be planned, or not, and the process goes on."""
    texts = pa.array([f"text {number % 7}" if number % 5 else None for number in range(20)])
    path = written(tmp_path, {"a": pa.array(range(20)), "u": pa.StructArray.from_arrays([texts], ["s"])})
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    refused = 0
    for at in range(start, len(data)):
        for value in (data[at] ^ 1, 255 - data[at]):
            damaged = data[:at] + bytes([value]) + data[at + 1 :]
            opened = in_memory(damaged)
            try:
                found = Parquet(paths={"s": ("u", "s")}).describe(opened, parse_fields("a bigint, s string"))
                assert sum(rows for rows, _ in found["groups"]) >= 0
            except ValueError as error:
                refused += 1
                assert str(error)
    assert refused > len(data) - start


@pytest.mark.parametrize(("rows", "total"), [([5, 5], 11), ([-1, 11], 10)])
def test_a_footer_that_contradicts_itself_is_refused(rows: list[int], total: int) -> None:
    with pytest.raises(ValueError, match="its footer contradicts itself"):
        footer.row_groups(with_footer(rows), [], 0, total)
    assert [group.rows for group in footer.row_groups(with_footer([5, 6]), [], 0, 11)] == [5, 6]
    with pytest.raises(ValueError, match="its footer is damaged"):
        footer.row_groups(with_footer([5, 6]), [], 1, 11)
    with pytest.raises(ValueError, match="its columns cannot be told apart"):
        schema = SimpleNamespace(schema_arrow=pa.schema({"a": pa.int8()}), schema=["a", "b"])
        footer.columns_of(schema, parse_fields("a int"), {})


def test_a_row_is_located_by_its_number_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind rejected rows and other row groups."""
    monkeypatch.setattr(parquet_file, "ROWS_MAX", 2)
    path = written(tmp_path, {"a": pa.array([1, None, 3, None, 5, 6])}, row_group_size=4)
    spout, metadata, found = read(path, "a bigint not null")
    assert [row[0] for row in found.rows] == [1, 3, 5, 6]
    (part,) = spout.parts(metadata)
    assert spout.locate(metadata, part, 2) == Position(position=f"{path}, row 5", raw='{"a": 5}')
    assert spout.locate(metadata, part, 4) is None


def test_the_ending_of_a_path_names_the_format() -> None:
    assert FileSpout("in/*.parquet", "a int").format == Parquet()
    assert FileSpout("in", "a int", format="parquet").format == Parquet()
    assert FileSpout("in/x.PARQUET", "a int", delimiter=";").format == Csv(delimiter=";")
    with pytest.raises(TopologyError, match="_row is the number of the row: declare it as bigint"):
        FileSpout("x.parquet", "a int, _row int")
    with pytest.raises(TopologyError, match="at least one field other than _row"):
        FileSpout("x.parquet", "_row bigint")
    with pytest.raises(TopologyError, match="paths has 'b', which is no declared field"):
        FileSpout("x.parquet", "a int", format=Parquet(paths={"b": "c"}))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
@pytest.mark.parametrize("is_inside", [False, True])
def test_memory_does_not_grow_with_a_value_that_is_stored_once_for_many_rows(
    kind: pa.DataType, is_inside: bool, tmp_path: Path
) -> None:
    """A file of some kilobytes holds a text of 200 kB in each of its 1,500 rows, after many short ones."""
    texts = pa.array([b"x", b"y" * 200_000], pa.binary()).cast(kind)
    values = texts.take(pa.array([*[0] * 200, *[1] * 1500], pa.int32()))
    column_ = pa.StructArray.from_arrays([values], ["t"]) if is_inside else values
    path = written(tmp_path, {"a": column_}, compression="zstd")
    del values, column_
    assert path.stat().st_size < 100_000
    paths = {"a": ("a", "t")} if is_inside else {}
    spout = FileSpout(path, "a binary", format=Parquet(paths=paths), settled_s=0)
    metadata = plan(spout)
    with counted_memory() as pool:
        sizes = []
        for part in spout.parts(metadata):
            for batch in spout.emit_part(metadata, part, Tally()):
                sizes.append((batch.num_rows, batch.nbytes))
    assert sum(number for number, _ in sizes) == 1700
    assert max(size for _, size in sizes) <= parquet_file.BATCH_BYTES
    assert pool.max_memory() < 5 * parquet_file.BATCH_BYTES


def test_rows_are_read_many_at_a_time_where_no_value_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look into dictionaries does not make the pieces of plain files smaller."""
    texts = pa.array([f"text {number % 50}" for number in range(100_000)])
    spout, metadata, _ = read(written(tmp_path, {"a": texts, "d": texts.dictionary_encode()}), "a string, d string")
    (part,) = spout.parts(metadata)
    sizes = [batch.num_rows for batch in spout.emit_part(metadata, part, Tally())]
    assert sum(sizes) == 100_000 and max(sizes) == parquet_file.ROWS_MAX


LONG, LONG_FIXED = 20_000, 2000
"""Bytes of a long value."""
FEW, MANY = pa.array([b"x" * 8], pa.binary()), pa.array([b"y" * LONG], pa.binary())


def long_values(kind: pa.DataType, short: int, long: int) -> pa.Array:
    """So many values of 8 bytes, and then so many long ones, all with the same text; for bytes of a fixed length, NULLs
    and then values.
    """
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([None] * short + [b"z" * kind.byte_width] * long, kind)
    return pa.concat_arrays([FEW, MANY]).cast(kind).take(pa.array([0] * short + [1] * long, pa.int32()))


@pytest.mark.parametrize(("version", "is_inside"), [("1.0", False), ("2.0", True)])
@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        (pa.string(), "DELTA_BYTE_ARRAY"),
        (pa.binary(), "DELTA_BYTE_ARRAY"),
        (pa.binary(LONG_FIXED), None),
        (pa.string(), "PLAIN"),
        (pa.string(), "DELTA_LENGTH_BYTE_ARRAY"),
    ],
    ids=str,
)
def test_memory_does_not_grow_with_values_that_are_far_longer_than_what_is_stored(
    kind: pa.DataType, encoding: str | None, is_inside: bool, version: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """Each value has what it shares with the one before; a NULL of a fixed length takes its bytes; long values are
    among many short ones.
    """
    monkeypatch.setattr(parquet_file, "BATCH_BYTES", 1_000_000)
    monkeypatch.setattr(parquet_file, "UNEVEN_BYTES", 4_000_000)
    values = long_values(kind, 15_000, 1500)
    name = "a.t" if is_inside else "a"
    options: dict[str, Any] = {} if encoding is None else {"use_dictionary": False, "column_encoding": {name: encoding}}
    table = {"a": pa.StructArray.from_arrays([values], ["t"]) if is_inside else values}
    options |= {"compression": "zstd", "data_page_version": version, "data_page_size": 200_000, "write_batch_size": 10}
    path = written(tmp_path, table, **options)
    whole = values.nbytes
    del values, table
    spout = FileSpout(path, "a binary", format=Parquet(paths={"a": ("a", "t")} if is_inside else {}), settled_s=0)
    metadata = plan(spout)
    with counted_memory() as pool:
        (part,) = spout.parts(metadata)
        sizes = [batch.num_rows for batch in spout.emit_part(metadata, part, Tally())]
    assert sum(sizes) == 16_500
    assert pool.max_memory() < 18_000_000 < 30_000_000 < whole


def test_short_values_are_judged_many_at_a_time_whatever_their_encoding(tmp_path: Path, monkeypatch: Any) -> None:
    """What is read in small pieces is put together again: the same rows and rejected rows."""
    monkeypatch.setattr(parquet_file, "UNEVEN_BYTES", 200_000)
    monkeypatch.setattr(parquet_file, "ROWS_MAX", 1500)
    texts = pa.array([None if number % 70 == 3 else f"text {number}" for number in range(4000)])
    times = pa.array([number * 10**9 + (number % 70 == 5) for number in range(4000)], pa.timestamp("ns"))
    found = []
    for encoding in ("DELTA_BYTE_ARRAY", "PLAIN"):
        options = {"use_dictionary": False, "column_encoding": {"a": encoding}, "use_deprecated_int96_timestamps": True}
        path = written(tmp_path, {"a": texts, "t": times}, **options)
        spout, metadata, all_of_it = read(path, "a string not null, t timestamp, _row bigint")
        found.append((all_of_it.rows, [(one.line, one.reason, one.raw) for one in all_of_it.rejects]))
        (part,) = spout.parts(metadata)
        sizes = [batch.num_rows for batch in spout.emit_part(metadata, part, Tally())]
        assert len(sizes) == 3
    assert found[0] == found[1]
    assert [line for line, *_ in found[0][1]][:3] == [4, 6, 74] and len(found[0][1]) == 116


def test_a_page_that_is_too_large_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: Any) -> None:
    """It is one fault of a batch, with words; its numbers are those of the header, not of the footer."""
    monkeypatch.setattr(parquet_file, "UNEVEN_BYTES", 50_000)
    monkeypatch.setattr(parquet_file, "PAGE_BYTES_MAX", 100_000)
    path = written(tmp_path, {"a": pa.array([1] * 50_000), "b": pa.array(range(50_000))}, use_dictionary=False)
    spout = FileSpout(path, "b int", settled_s=0)
    metadata = plan(spout)
    with pytest.raises(BatchDataError, match=r"column 'b' of row group 0 has a page of \d+ bytes, .* 100000") as found:
        emission(spout, metadata)
    assert found.value.fault == "Parquet page too large"
    path = written(tmp_path, {"b": pa.array(range(50_000))}, use_dictionary=False, data_page_size=50_000)
    assert len(read(path, "b int")[2].rows) == 50_000


def test_values_of_a_fixed_length_that_is_too_large_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    """One NULL of it would take so much memory."""
    monkeypatch.setattr(footer, "FIXED_BYTES_MAX", 99)
    path = written(tmp_path, {"a": pa.array([None], pa.binary(100)), "b": pa.array([None], pa.binary(99))})
    with pytest.raises(BatchDataError, match="column 'a' has values of 100 bytes; the maximum is 99"):
        plan(FileSpout(path, "a binary", settled_s=0))
    assert read(path, "b binary")[2].rows == [(None,)]
