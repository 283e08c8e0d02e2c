"""What every format of files must do, as tests: subclass `FormatContract`, say which format, fields and scraps of it,
and all of it is run. Where the audit has a reader of this kind, rows and rejects are compared with it record by record.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.archives import ENDINGS, WRITERS
from txtopo.audit.readers.known_readers import READERS, PlannedReader
from txtopo.audit.readers.reader import HashedFile, Read
from txtopo.core.fields import Fields, parse_fields
from txtopo.core.positions import Unit, told_position
from txtopo.core.values import RejectedRow
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts import file_parts
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.formats.format import KIND, Format
from txtopo.topology.components import SpoutContext, Tally

SIZES = (1, 7, 40, 1 << 20)
"""Of windows and blocks, in bytes."""


@dataclass
class Emission:
    """All that one reading of a planned file gives."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    rejects: list[RejectedRow] = field(default_factory=list)
    read: int = 0
    parts: list[Mapping[str, Any]] = field(default_factory=list)
    batches: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def bytes(self) -> list[bytes]:
        """The batches as a message would have them."""
        return [batch.serialize().to_pybytes() for batch in self.batches]

    @property
    def told(self) -> tuple[str, list[RejectedRow], int]:
        """What must not depend on how a file is divided; NaN equals itself here."""
        return repr(self.rows), self.rejects, self.read


def emission(spout: FileSpout, metadata: Mapping[str, Any]) -> Emission:
    """All parts, one after the other."""
    found = Emission(parts=list(spout.parts(metadata)))
    for part in found.parts:
        tally = Tally()
        for batch in spout.emit_part(metadata, part, tally):
            assert batch.schema == arrow_schema(spout.fields)
            batch.validate(full=True)
            found.batches.append(batch)
            found.rows.extend(tuple(row.values()) for row in batch.to_pylist())
        found.rejects += tally.rejects
        found.read += tally.read
    return found


def plan(spout: FileSpout) -> dict[str, Any]:
    """The only batch of a `once` run, planned by the coordinator half."""
    context = SpoutContext(
        topology="t", spout="files", consumed={}, once=True, monotonic=lambda: 0.0, say=lambda line: None
    )
    coordinator = spout.open_coordinator(context)
    try:
        while not coordinator.is_ready():
            assert not coordinator.is_exhausted(), "no batch"
        return json.loads(json.dumps(coordinator.initialize_transaction(1, None)))  # type: ignore[no-any-return]
    finally:
        coordinator.close()


def with_part_bytes(metadata: Mapping[str, Any], part_bytes: int) -> dict[str, Any]:
    """The same plan, divided in another way."""
    return {**metadata, "format": {**metadata["format"], "part_bytes": part_bytes}}


class FormatContract:
    """Tests of one format."""

    format: ClassVar[Format]
    fields: ClassVar[str]
    head: ClassVar[bytes] = b""
    """What every file begins with, such as a header line."""
    scraps: ClassVar[Sequence[Any]]
    """Pieces of which files are made after the head, in any order: records that parse and that do not, line ends and
    parts of them.
    """
    unit: ClassVar[Unit] = "line"
    """What the numbers of its records count."""
    files: ClassVar[Mapping[str, bytes]] = {}
    """Whole files that are told apart by name."""
    refused: ClassVar[Mapping[str, tuple[bytes, str]]] = {}
    """Files that cannot be planned, with a pattern of the words that say why."""
    other: ClassVar[Format | None] = None
    """The same kind with other options, under which files mean something else."""
    wrong_fields: ClassVar[str | None] = None
    """Fields that this format cannot give exactly."""
    sizes: ClassVar[Sequence[tuple[ModuleType, str]]] = ()
    """Where the bytes of its windows and blocks stand, as (module, name)."""
    examples: ClassVar[int] = 25
    """Number of files that are made of scraps."""
    is_recounted: ClassVar[bool] = True
    """The audit has a reader of this kind."""
    rejects_something: ClassVar[bool] = True
    """False if every record parses as these fields."""
    codec: ClassVar[str] = "gzip"
    """How its files are compressed where they are; over the suite, all codecs are used."""
    of_first_field: ClassVar[Format | None] = None
    """The format without options that belong to other fields than the first one."""

    def spout(self, path: Path | str, **options: Any) -> FileSpout:
        """The source of these files."""
        return FileSpout(path, self.fields, format=self.format, settled_s=0, rejected_max=1, **options)

    def content(self, scraps: Sequence[Any]) -> bytes:
        """A file of these scraps."""
        return self.head + b"".join(scraps)

    def bare(self) -> Mapping[str, bytes]:
        """Files without a record."""
        return {"empty": b"", "head alone": self.head}

    @contextmanager
    def planned(self, content: bytes, ending: str = "", **options: Any) -> Iterator[tuple[FileSpout, dict[str, Any]]]:
        """A source of one file, and the plan of its batch."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"file.txt{ending}"
            path.write_bytes(content)
            spout = self.spout(path, **options)
            yield spout, plan(spout)

    def recounted(self, metadata: Mapping[str, Any]) -> list[Read]:
        """What the audit's own reader finds."""
        layout = metadata["format"]
        reader = PlannedReader(layout, parse_fields(metadata["schema"]))
        (file,) = metadata["files"]
        if file.get("header") is not None:
            file = {**file, "header": metadata["headers"][file["header"]]}
        with Path(file["path"]).open("rb", buffering=0) as opened:
            return list(reader.read(file, HashedFile(opened, file.get("codec"))))

    def compare(self, spout: FileSpout, metadata: Mapping[str, Any], found: Emission) -> None:
        """The emission beside the audit's reader: number, raw bytes and values, where the reader is sure."""
        path = metadata["files"][0]["path"]
        rows = iter(found.rows)
        assert {reject.unit for reject in found.rejects} <= {self.unit}
        rejects = {reject.line: reject for reject in found.rejects}
        records = self.recounted(metadata)
        assert found.read == len(records)
        assert [reject.path for reject in found.rejects] == [path] * len(rejects)
        for record in records:
            reject = rejects.pop(record.number, None)
            if reject is not None:
                assert (reject.raw, reject.raw_bytes) == (record.raw, len(record.raw))
                assert record.reason is not None or record.is_doubtful(), (record, reject.reason)
                continue
            row = next(rows)
            assert record.reason is None or record.is_doubtful(), (record, row)
            if record.reason is None:
                assert [*map(_plain, row)] == [*map(_plain, record.values)]
        assert not rejects and next(rows, None) is None
        self.locate(spout, metadata, found, [one.number for one in records])

    def locate(self, spout: FileSpout, metadata: Mapping[str, Any], found: Emission, numbers: Sequence[int]) -> None:
        """Each row has the place of its record; after the last one there is nothing."""
        path = metadata["files"][0]["path"]
        rejected = {reject.line for reject in found.rejects}
        expected = iter([told_position(path, number, self.unit) for number in numbers if number not in rejected])
        for part in found.parts:
            rows = sum(batch.num_rows for batch in spout.emit_part(metadata, part, Tally()))
            mine = list(itertools.islice(expected, rows))
            for number in {0, rows // 2, rows - 1} & {*range(rows)}:
                place = spout.locate(metadata, part, number)
                assert place is not None and place.position == mine[number]
            assert spout.locate(metadata, part, rows) is None

    @contextmanager
    def small(self, size: int) -> Iterator[None]:
        """With windows and blocks of this size."""
        with pytest.MonkeyPatch.context() as patch:
            for module, name in self.sizes:
                patch.setattr(module, name, size)
            yield

    def test_any_file_is_the_same_however_it_is_divided(self) -> None:
        """Parts from one byte up, windows and blocks of any size: rows, rejects and their order; each part twice."""

        @settings(max_examples=self.examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(
            st.lists(st.sampled_from(self.scraps), max_size=12),
            st.integers(1, 300),
            st.sampled_from(SIZES),
        )
        def run(scraps: list[bytes], part_bytes: int, size: int) -> None:
            with self.planned(self.content(scraps)) as (spout, metadata):
                whole = emission(spout, metadata)
                assert whole.read == len(whole.rows) + len(whole.rejects)
                divided = with_part_bytes(metadata, part_bytes)
                with self.small(size):
                    found = emission(spout, divided)
                    assert found.told == whole.told
                    assert emission(spout, divided).bytes == found.bytes
                if self.is_recounted:
                    self.compare(spout, metadata, whole)

        run()

    def test_a_compressed_file_has_the_records_of_a_plain_one(self) -> None:
        """Whatever is in it, in one archive or two, with windows of any size; the audit unpacks it by itself."""
        if not self.format.reads_forward:
            return
        write, ending = WRITERS[self.codec], ENDINGS[self.codec]

        @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(st.sampled_from(self.scraps), max_size=8), st.integers(0, 200), st.sampled_from(SIZES))
        def run(scraps: list[bytes], cut: int, size: int) -> None:
            content = self.head + b"".join(scraps)
            with self.planned(content) as (spout, metadata):
                whole = emission(spout, metadata)
            with self.planned(write(content[:cut]) + write(content[cut:]), ending) as (spout, metadata):
                assert metadata["files"][0]["codec"] == self.codec
                with self.small(size):
                    found = emission(spout, metadata)
                assert (repr(found.rows), found.read) == (repr(whole.rows), whole.read)
                assert [*map(_content, found.rejects)] == [*map(_content, whole.rejects)]
                if self.is_recounted:
                    self.compare(spout, metadata, found)

        run()

    def test_every_size_of_parts_gives_every_record_once(self) -> None:
        """A file of all scraps, with parts of each size from one byte to the whole, and every place of each edge."""
        with self.planned(self.content(self.scraps)) as (spout, metadata):
            size = metadata["files"][0]["size"]
            whole = emission(spout, metadata)
            assert whole.rows and bool(whole.rejects) == self.rejects_something, "the scraps do not show both"
            for part_bytes in (*range(1, 10), 13, 21, 39, size // 2, size - 1, size):
                found = emission(spout, with_part_bytes(metadata, part_bytes))
                assert found.told == whole.told, part_bytes
                pieces = [piece for part in found.parts for piece in part["pieces"]]
                assert all(a[2] == b[1] for a, b in itertools.pairwise(pieces)), "sections do not follow each other"
                if len(pieces) == 1:
                    break

    def test_whole_files_are_read_as_the_audit_reads_them(self) -> None:
        """Empty, one record, no line end, and what else the format names."""
        for name, content in {**self.bare(), **self.files}.items():
            with self.planned(content) as (spout, metadata):
                found = emission(spout, metadata)
                assert found.read == len(found.rows) + len(found.rejects), name
                for part_bytes, size in ((1, 1 << 20), (1, 7), (5, 40), (1000, 1), (1000, 7)):
                    with self.small(size):
                        again = emission(spout, with_part_bytes(metadata, part_bytes))
                        assert again.told == found.told, (name, part_bytes, size)
                if self.is_recounted:
                    self.compare(spout, metadata, found)

    def test_a_file_that_cannot_be_planned_is_refused_with_the_reason(self) -> None:
        for name, (content, words) in self.refused.items():
            with pytest.raises(BatchDataError, match=words) as told, self.planned(content):
                raise AssertionError(f"{name} is planned")
            assert "file.txt" in str(told.value), name

    def test_what_was_not_looked_for_is_not_taken_for_absent(self) -> None:
        """None in place of a fact of the whole file gives the same rows and rejects, in a file of each scrap alone."""
        for scraps in (*([scrap] for scrap in self.scraps), self.scraps):
            with self.planned(self.content(scraps)) as (spout, metadata):
                scan = self.format.scan(spout.fields)
                facts = dict.fromkeys(scan.facts() if scan is not None else ())
                (file,) = metadata["files"]
                assert {*facts} <= {*file}
                unknown = {**metadata, "files": [{**file, **facts}]}
                for part_bytes in (1, 30, 10_000):
                    found = emission(spout, with_part_bytes(unknown, part_bytes))
                    assert found.told == emission(spout, metadata).told, scraps

    def test_files_of_a_part_have_the_records_that_each_has_alone(self) -> None:
        """Small files may be read together: with and without an end of their last line, a bad record, another head."""

        @settings(max_examples=self.examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(
            st.lists(st.lists(st.sampled_from(self.scraps), max_size=4), min_size=2, max_size=5), st.integers(0, 300)
        )
        def run(contents: list[list[Any]], most: int) -> None:
            with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
                for number, scraps in enumerate(contents):
                    (Path(folder) / f"{number}").write_bytes(self.content(scraps))
                spout = self.spout(folder, files_per_batch=len(contents))
                metadata = plan(spout)
                found = emission(spout, metadata)
                patch.setattr(file_parts, "TOGETHER_BYTES_MAX", most)
                some = emission(spout, metadata)
                patch.setattr(type(self.format), "common", lambda *of: None)
                alone = emission(spout, metadata)
                assert len(found.parts) == 1
                assert found.told == some.told == alone.told

        run()

    def test_a_row_of_a_part_of_several_files_is_located_in_its_file(self) -> None:
        """Small files share a part; the first one has fewer rows than the number asked for."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a", "b", "c"):
                (Path(folder) / name).write_bytes(self.content(self.scraps))
            spout = self.spout(folder, files_per_batch=3)
            metadata = plan(spout)
            (part,) = spout.parts(metadata)
            rows, odd = divmod(len(emission(spout, metadata).rows), 3)
            assert rows and not odd
            places = [spout.locate(metadata, part, number) for number in (0, rows, 2 * rows, 3 * rows)]
            *found, nothing = [one and one.position.removeprefix(f"{folder}/") for one in places]
            first = str(found[0]).removeprefix("a")
            assert (found, nothing) == ([f"a{first}", f"b{first}", f"c{first}"], None)

    def test_a_batch_is_read_with_its_plan(self) -> None:
        """R12: neither another option nor another set of fields in the topology changes what a record is."""
        with self.planned(self.content(self.scraps)) as (spout, metadata):
            whole = emission(spout, metadata)
            first, *_ = spout.fields.items
            now = FileSpout(spout.path, self.fields, format=self.other or self.format, settled_s=0, rejected_max=1)
            assert emission(now, metadata).told == whole.told
            fewer = FileSpout(
                spout.path,
                Fields((first,)),
                format=self.of_first_field or self.other or self.format,
                settled_s=0,
                rejected_max=1,
            )
            if len(spout.fields.items) > 1:
                found = emission(fewer, metadata)
                assert repr(found.rows) == repr([row[:1] for row in whole.rows])
                assert found.rejects == whole.rejects

    def test_fields_that_are_not_in_the_records_are_in_every_row(self) -> None:
        """Path, time of the last change and number of the record; a key in the name of a folder. The audit has them,
        too, and however the file is divided they are the same.
        """
        about = ["_file string", "_modified timestamp", "_day date"]
        number = self.format.number_field
        if number is not None and number not in parse_fields(self.fields).names:
            about.append(f"{number} bigint")
        content = self.content(self.scraps)
        with self.planned(content) as (spout, metadata):
            rows = emission(spout, metadata).rows
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "_day=2026%2D11-01" / "file.txt"
            path.parent.mkdir()
            path.write_bytes(content)
            os.utime(path, ns=(0, 1_700_000_000_123_456_789))
            fields = parse_fields(", ".join([about[0], self.fields, *about[1:]]))
            spout = FileSpout(path, fields, format=self.format, settled_s=0, rejected_max=1, partitions=["_day"])
            metadata = plan(spout)
            with self.small(7):
                found = emission(spout, with_part_bytes(metadata, 9))
            assert found.told == emission(spout, metadata).told
            changed = datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
            assert {row[0] for row in found.rows} == {str(path)}
            width = len(parse_fields(self.fields).items)
            assert repr([row[1 : width + 1] for row in found.rows]) == repr(rows)
            assert {row[width + 1 : width + 3] for row in found.rows} == {(changed, date(2026, 11, 1))}
            if self.is_recounted:
                self.compare(spout, metadata, emission(spout, metadata))

    def test_the_first_bad_record_fails_the_batch_where_none_is_allowed(self) -> None:
        content = self.content(self.scraps)
        if not self.rejects_something:
            return
        with self.planned(content, on_bad_line="fail") as (spout, metadata):
            reject = emission(self.spout(spout.path), metadata).rejects[0]
            with pytest.raises(BatchDataError) as told:
                emission(spout, metadata)
            assert told.value.position == reject.position
            assert reject.reason in str(told.value)

    def test_a_file_that_changed_is_read_by_nobody(self) -> None:
        """K7: shorter, longer, or with one other byte."""
        content = self.content(self.scraps)
        for changed in (content[:-1], content + content[-1:], content[:-1] + bytes([content[-1] ^ 1])):
            with self.planned(content) as (spout, metadata):
                Path(spout.path).write_bytes(changed)
                with pytest.raises(BatchDataError, match="changed after it was planned"):
                    emission(spout, metadata)

    def test_its_layout_is_all_that_it_is(self) -> None:
        """JSON, back and forth; an entry that is not known is refused, not ignored; it can be pickled and compared."""
        layout = self.format.layout()
        again = type(self.format).of(json.loads(json.dumps(layout)))
        assert again == self.format and again.layout() == layout and hash(again) == hash(self.format)
        assert pickle.loads(pickle.dumps(self.format)) == self.format
        assert KIND.fullmatch(self.format.kind) and not {"kind", "part_bytes"} & {*layout}
        with pytest.raises((TypeError, ValueError)):
            type(self.format).of({**layout, "of_a_later_release": 1})
        if self.other is not None:
            assert self.other != self.format and self.other.kind == self.format.kind
        if self.wrong_fields is not None:
            with pytest.raises(TopologyError):
                FileSpout("x", self.wrong_fields, format=self.format)

    def test_the_audit_knows_its_kind_or_says_so(self) -> None:
        assert (self.format.kind in READERS) == self.is_recounted
        if self.is_recounted:
            with pytest.raises(ValueError, match="of_a_later_release"):
                layout = {**self.format.layout(), "of_a_later_release": 1}
                READERS[self.format.kind](layout, parse_fields(self.fields))

    def test_a_command_that_starts_fast_does_not_wait_for_it(self) -> None:
        """Its module imports no Arrow."""
        program = f"import sys, {type(self.format).__module__}\nprint('pyarrow' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout == "False\n"


def _content(reject: RejectedRow) -> tuple[int, str, bytes, int]:
    return reject.line, reject.reason, reject.raw, reject.raw_bytes


def _plain(value: Any) -> Any:
    return "nan" if isinstance(value, float) and math.isnan(value) else value
