"""The seam between the file source and the formats of its files: what is chosen, what a plan keeps, and what a plan of
another release does.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.spouts.test_file_spout import Driver, write
from txtopo import Fields, TopologyError
from txtopo.errors import BatchDataError
from txtopo.formats import Csv, Emitted, Format, Opened, PlannedFile, Position, RejectedRow, Section
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats.known_formats import is_own
from txtopo.spouts.text_spout import TextSpout
from txtopo.topology.components import Tally


class Pairs(Format):
    """Records of two bytes; `!!` is rejected. Files end with an index that says how many there are."""

    kind = "pairs"

    def __init__(self, *, bad: str = "!!") -> None:
        self.bad = bad

    def layout(self) -> Mapping[str, Any]:
        return {"bad": self.bad}

    def describe(self, opened: Opened, fields: Fields) -> Mapping[str, Any]:
        tail = opened.read(opened.size - 1, 1)
        if not tail.isdigit():
            raise ValueError("it has no index")
        return {"header": {"version": 1}, "records": int(tail)}

    def sections(self, file: PlannedFile, part_bytes: int) -> Sequence[Section]:
        return [Section(at, at + 1) for at in range(file["records"])] or [Section(0, 0)]

    def section_bytes(self, file: PlannedFile, section: Section) -> int:
        return 2

    def emit(self, opened: Opened, file: PlannedFile, section: Section, fields: Fields) -> Iterator[Emitted]:
        assert file["header"] == {"version": 1}
        for at in range(section.start, section.end):
            raw = opened.read(2 * at, 2)
            if raw == self.bad.encode():
                reject = RejectedRow(path=opened.path, line=at + 1, reason="bad pair", raw=raw, raw_bytes=2)
                yield Emitted(batch=None, rejects=[reject])
            else:
                yield Emitted(batch=pa.RecordBatch.from_pylist([{fields.names[0]: raw.decode()}]))

    def locate(
        self, opened: Opened, file: PlannedFile, section: Section, fields: Fields, number: int
    ) -> Position | int:
        rows = [at for at in range(section.start, section.end) if opened.read(2 * at, 2) != self.bad.encode()]
        return Position(position=f"{opened.path}:{rows[number] + 1}", raw="") if number < len(rows) else len(rows)


def read(spout: FileSpout, metadata: Any) -> tuple[list[Any], list[int], int]:
    """Texts, lines of the rejected records, and the number of parts."""
    parts, rows, tally = spout.parts(metadata), [], Tally()
    for part in parts:
        for batch in spout.emit_part(metadata, part, tally):
            rows.extend(batch.column(0).to_pylist())
    return rows, [reject.line for reject in tally.rejects], len(parts)


def test_a_format_of_a_user_is_planned_divided_read_and_located(tmp_path: Path) -> None:
    """What it says of a file stands in the plan, equal headers once; parts are filled by what it says of sections."""
    write(tmp_path / "a.pairs", "aabb!!cc4")
    write(tmp_path / "b.pairs", "dd1")
    write(tmp_path / "c.pairs", "0")
    driver = Driver(tmp_path, format=Pairs(), fields="pair string", files_per_batch=3, part_bytes=4, settled_s=0)
    (metadata,) = driver.settled()
    assert metadata["format"] == {"kind": "pairs", "bad": "!!", "part_bytes": 4}
    assert metadata["headers"] == [{"version": 1}]
    assert [(file["header"], file["records"]) for file in metadata["files"]] == [(0, 4), (0, 1), (0, 0)]
    assert read(driver.spout, metadata) == (["aa", "bb", "cc", "dd"], [3], 3)
    (_, second, _) = driver.spout.parts(metadata)
    assert second["pieces"] == [[0, 2, 3], [0, 3, 4]]
    found = driver.spout.locate(metadata, second, 0)
    assert found is not None and found.position == f"{tmp_path}/a.pairs:4"
    assert driver.spout.locate(metadata, second, 1) is None
    assert driver.spout.describe()["kind"] == "pairs files"


def test_a_file_that_its_format_cannot_plan_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "a.pairs", "aa?")
    with pytest.raises(BatchDataError, match=r"a\.pairs: it has no index"):
        Driver(tmp_path, format=Pairs(), fields="pair string", settled_s=0).settled()


def test_a_batch_is_read_with_the_layout_of_its_plan(tmp_path: Path) -> None:
    """R12: not with the present settings of the topology, whether its format or its options changed."""
    write(tmp_path / "a.csv", "a;b\n1;x\n2;-\n")
    planning = Driver(tmp_path, fields="a int, b string", delimiter=";", null_values=["-"], settled_s=0)
    (metadata,) = planning.settled()
    for now in (FileSpout(tmp_path, "b string"), FileSpout(tmp_path, "b string", format=Pairs())):
        assert read(now, metadata)[0] == ["x", None]
        (part,) = now.parts(metadata)
        found = now.locate(metadata, part, 1)
        assert found is not None and found.raw == "2;-"


@pytest.mark.parametrize(
    "layout", [{"kind": "csv", "delimiter": ";", "sideways": True}, {"kind": "csv", "delimiter": ""}, {"kind": "clay"}]
)
def test_a_layout_that_this_release_does_not_know_is_read_by_nobody(tmp_path: Path, layout: dict[str, Any]) -> None:
    """An option of a later release may change what every value means."""
    write(tmp_path / "a.csv", "a\n1\n")
    driver = Driver(tmp_path, fields="a int", settled_s=0)
    (metadata,) = driver.settled()
    changed = {**metadata, "format": {**layout, "part_bytes": 100}}
    (part,) = driver.spout.parts(metadata)
    for use in (driver.spout.parts, lambda m: list(driver.spout.emit_part(m, part, Tally()))):
        with pytest.raises(BatchDataError, match="cannot read") as told:
            use(changed)
        assert told.value.fault == "format of the plan unknown" and told.value.halts


def test_a_fact_that_was_not_looked_for_leads_to_the_careful_path(tmp_path: Path) -> None:
    """None in a plan is not False: there may be quotes, NUL characters and hexadecimal numbers."""
    write(tmp_path / "a.csv", 'a,b\n1,"x\ny"\n0x1F,z\n2,n\0l\n3,w\n')
    driver = Driver(tmp_path, fields="a int, b string", part_bytes=8, settled_s=0, rejected_max=1)
    (metadata,) = driver.settled()
    facts = ("quotes", "nul", "hexadecimal")
    assert all(metadata["files"][0][name] for name in facts)
    unknown = {**metadata, "files": [{**metadata["files"][0], **dict.fromkeys(facts)}]}
    assert read(driver.spout, unknown) == read(driver.spout, metadata) == ([1, 3], [4, 5], 1)


def test_options_belong_to_the_format() -> None:
    """`delimiter` and `null_values` are short for those of CSV, and refused beside any other format."""
    short = FileSpout("x", "a int", delimiter=";", null_values=["NA"])
    assert short.format == FileSpout("x", "a int", format=Csv(delimiter=";", null_values=["NA"])).format
    assert short.format != FileSpout("x", "a int", format="csv").format == FileSpout("x", "a int").format == Csv()
    assert repr(short.format) == "Csv(delimiter=';', null_values=['NA'])"
    assert pickle.loads(pickle.dumps(short)).format == short.format
    assert hash(Csv()) == hash(Csv(delimiter=","))


class Disguised(Csv):
    """Reads in another way, and says that it is CSV."""


class Nameless(Pairs):
    kind = "Pairs of letters"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"format": Csv(), "delimiter": ";"}, "delimiter belongs to the format: write it into Csv"),
        ({"format": "text", "null_values": [""]}, "files of format 'text' have no null_values"),
        ({"format": "cvs"}, "format 'cvs' is none of csv"),
        ({"format": Csv}, "is none of csv"),
        ({"format": Disguised()}, "Disguised has the kind 'csv'"),
        ({"format": Nameless()}, "kind 'Pairs of letters'"),
        ({"format": "text"}, "one field of type string"),
        ({"delimiter": ";;"}, "FileSpout: delimiter ';;'"),
    ],
)
def test_a_format_that_cannot_be_meant_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        FileSpout("x", "a int", **arguments)


def test_only_formats_of_txtopo_need_no_comparison_of_waves() -> None:
    """A format of a user could keep something of one batch for another."""
    assert is_own(FileSpout("x", "a int").format) and is_own(TextSpout("x").format)
    assert not is_own(Pairs()) and not is_own(Disguised())
