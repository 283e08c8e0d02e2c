"""Fields that are not in the records of a file: number of the record, path, time of the last change, and keys in the
names of folders.
"""

from __future__ import annotations

import io
import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spouts.test_file_spout import Driver
from txtopo import FileSpout, TopologyError
from txtopo.audit.readers.known_readers import PlannedReader
from txtopo.audit.readers.reader import HashedFile, NotAsPlannedError
from txtopo.core.fields import parse_fields
from txtopo.errors import BatchDataError
from txtopo.formats import Json, Text
from txtopo.topology.components import Tally


def rows(spout: FileSpout, metadata: Any) -> list[tuple[Any, ...]]:
    return [
        tuple(row.values())
        for part in spout.parts(metadata)
        for batch in spout.emit_part(metadata, part, Tally())
        for row in batch.to_pylist()
    ]


def recounted(metadata: Any) -> list[tuple[Any, ...]]:
    """What the audit finds in all files."""
    reader = PlannedReader(metadata["format"], parse_fields(metadata["schema"]))
    found = []
    for file in metadata["files"]:
        number = file.get("header")
        planned = file if number is None else {**file, "header": metadata["headers"][number]}
        found += [
            tuple(one.values) for one in reader.read(planned, HashedFile(io.BytesIO(Path(file["path"]).read_bytes())))
        ]
    return found


def test_keys_of_folders_are_values_of_their_declared_types(tmp_path: Path) -> None:
    """Percent signs are decoded, and the name that Hive gives to NULL is NULL; a column of that name is not read."""
    for folder, content in {
        "day=2026-11-01/shop=B%C3%A4r%20%2F%201": "n,day\n1,x\n2,x\n",
        "day=2026-11-02/shop=": "n\n3\n",
        "day=2026-11-02/shop=__HIVE_DEFAULT_PARTITION__": "n\n4\n",
    }.items():
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.csv").write_text(content)
    path = tmp_path / "day=*" / "shop=*" / "*.csv"
    fields = "shop string, n int, day date not null, _file string"
    driver = Driver(path, fields=fields, partitions="hive", files_per_batch=3, settled_s=0)
    (metadata,) = driver.settled()
    assert metadata["format"]["partitions"] == ["day", "shop"]
    found = rows(driver.spout, metadata)
    assert found == recounted(metadata)
    assert sorted(row[:3] for row in found if row[0] is not None) == [
        ("", 3, date(2026, 11, 2)),
        ("Bär / 1", 1, date(2026, 11, 1)),
        ("Bär / 1", 2, date(2026, 11, 1)),
    ]
    assert [row[1] for row in found if row[0] is None] == [4]
    assert all(row[3].endswith("/a.csv") for row in found)
    by_name = Driver(tmp_path / "**", fields=fields, partitions=["day", "shop"], files_per_batch=3, settled_s=0)
    (again,) = by_name.settled()
    assert rows(by_name.spout, again) == found


@pytest.mark.parametrize(
    ("folder", "fields", "words"),
    [
        ("day=31.10.2026", "day date", r"in the names of its folders, column 'day': '31\.10\.2026' is no date"),
        ("day=", "day date", "is no date"),
        ("day=__HIVE_DEFAULT_PARTITION__", "day date not null", "column 'day' is NULL, declared NOT NULL"),
        ("day=%FF", "day string", "column 'day': .* is not UTF-8"),
        ("day=a%00", "day string", "holds the NUL character"),
        ("day=999", "day tinyint", "is no tinyint"),
        ("x/day=", "day string, month int", "no folder of its path is named month="),
        ("month=1/day=1/month=2", "day string, month int", "two folders of its path are named month="),
    ],
)
def test_a_file_without_such_a_key_cannot_be_planned(tmp_path: Path, folder: str, fields: str, words: str) -> None:
    """Never NULL instead: JSON would have no key of that name either."""
    path = tmp_path / folder / "a.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"n":1}\n')
    names = [name for name in ("day", "month") if name in fields]
    with pytest.raises(BatchDataError, match=words):
        Driver(path, fields=f"n int, {fields}", partitions=names, settled_s=0).settled()
    layout = {"kind": "json", "paths": {}, "part_bytes": 1, "partitions": names}
    reader = PlannedReader(layout, parse_fields(f"n int, {fields}"))
    with pytest.raises(NotAsPlannedError):
        list(reader.read({"path": str(path), "mtime_ns": 0}, HashedFile(io.BytesIO(b'{"n":1}'))))


@pytest.mark.parametrize(
    ("path", "fields", "options", "words"),
    [
        ("/data/*", "n int, day date", {"partitions": "hive"}, "has no folder such as day="),
        ("/data/month=*/x", "n int, day date", {"partitions": "hive"}, "has no folder such as day="),
        ("/data", "n int", {"partitions": ["day"]}, "partitions has 'day', which is no declared field"),
        ("/data", "n int, day date", {"partitions": ["day", "day"]}, "'day' has two meanings"),
        ("/data", "n int, _file string", {"partitions": ["_file"]}, "'_file' has two meanings"),
        ("/data", "n int", {"partitions": "day"}, "neither 'hive' nor a list"),
        ("/data", "n int", {"partitions": 5}, "neither 'hive' nor a list"),
        ("/data", "day int", {"partitions": ["day"]}, "at least one field other than day is needed"),
        ("/data", "_file string, _modified timestamp", {}, "at least one field other than _file, _modified is needed"),
        ("/data", "n int, _file binary", {}, "_file is the path of the file: declare it as string, not binary"),
        ("/data", "n int, _modified date", {}, "_modified is the time of its last change: declare it as timestamp"),
        ("/data", "n int, _line int", {}, "_line is the number of the line: declare it as bigint, not int"),
    ],
)
def test_fields_that_cannot_be_meant_are_refused(path: str, fields: str, options: Any, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        FileSpout(path, fields, **options)


def test_a_source_without_them_is_described_and_planned_as_before(tmp_path: Path) -> None:
    """Else every topology would have other code after an upgrade, and its open plans another digest."""
    (tmp_path / "a.csv").write_text("n\n1\n")
    driver = Driver(tmp_path, fields="n int", settled_s=0)
    (metadata,) = driver.settled()
    assert set(metadata["format"]) == {"kind", "delimiter", "null_values", "part_bytes"}
    assert not {"partitions", "file_fields"} & {*driver.spout.describe()}


def test_columns_of_these_names_in_an_earlier_plan_are_still_columns(tmp_path: Path) -> None:
    """R12: a plan that does not name them was made when the header had them."""
    (tmp_path / "a.csv").write_text("n,_file,_line\n1,x,7\n2,y,8\n")
    driver = Driver(tmp_path, fields="n int, _file string, _line bigint", settled_s=0)
    (metadata,) = driver.settled()
    path = str(tmp_path / "a.csv")
    assert rows(driver.spout, metadata) == recounted(metadata) == [(1, path, 2), (2, path, 3)]
    layout = {name: value for name, value in metadata["format"].items() if name != "file_fields"}
    earlier = {**metadata, "format": layout}
    assert rows(driver.spout, earlier) == recounted(earlier) == [(1, "x", 7), (2, "y", 8)]


def test_the_time_of_the_last_change_is_that_of_the_plan(tmp_path: Path) -> None:
    """The same in every attempt: a `touch` is no change of the content."""
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    os.utime(path, ns=(0, -1))
    fields = "line string, _modified timestamp"
    driver = Driver(path, fields=fields, format=Text(), settled_s=0)
    (metadata,) = driver.settled()
    os.utime(path)
    assert rows(driver.spout, metadata) == recounted(metadata)
    assert rows(driver.spout, metadata) == [("a", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC))]
    driver.spout.file_fields.check_file(str(path), 253_402_300_799_999_999_999)
    with pytest.raises(ValueError, match="outside of the years 1 to 9999"):
        driver.spout.file_fields.check_file(str(path), 253_402_300_800_000_000_000)


def test_a_layout_with_a_field_that_is_not_planned_is_not_recounted() -> None:
    with pytest.raises(ValueError, match="day is no planned field"):
        PlannedReader({"kind": "text", "partitions": ["day"]}, parse_fields("line string"))


def test_fields_of_the_file_go_with_those_that_are_declared_now(tmp_path: Path) -> None:
    """A topology that declares fewer fields reads a batch of its earlier plan."""
    (tmp_path / "a.jsonl").write_text('{"n":1}\n{"n":2}\n')
    driver = Driver(tmp_path / "a.jsonl", fields="n int, _line bigint, _file string", settled_s=0)
    (metadata,) = driver.settled()
    fewer = FileSpout(tmp_path / "a.jsonl", "_line bigint, n int", format=Json())
    assert rows(fewer, metadata) == [(1, 1), (2, 2)]
