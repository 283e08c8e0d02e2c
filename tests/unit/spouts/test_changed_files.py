"""A planned file is compared with its plan before and after it is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.files import rewrite_in_place
from tests.unit.spouts.test_csv_reading import emit, plan
from txtopo.errors import BatchDataError
from txtopo.spouts import planned_file
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.fingerprint import Content, read_content
from txtopo.topology.components import Tally


def test_a_file_is_compared_with_its_plan_before_and_after_it_is_read(tmp_path: Path) -> None:
    """Before and after a read `stat` is compared; where it differs the content decides (K7)."""
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    spout = FileSpout(tmp_path, "a int")
    metadata = plan(spout)
    (part,) = spout.parts(metadata)

    os.utime(path, (5, 5))
    assert emit(spout, metadata) == [(1,)]
    emitter = spout.emit_part(metadata, part, Tally())
    next(emitter)
    path.write_text("a\n2\n")
    with pytest.raises(BatchDataError, match="changed after it was planned"):
        list(emitter)
    with pytest.raises(BatchDataError, match="changed after it was planned"):
        next(spout.emit_part(metadata, part, Tally()))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(
        BatchDataError, match=f"planned 4 bytes with sha256 {metadata['files'][0]['sha256']}, found no file"
    ):
        next(spout.emit_part(metadata, part, Tally()))


def test_a_file_rewritten_in_place_is_refused_though_size_and_mtime_are_those_of_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    spout = FileSpout(tmp_path, "a int")
    metadata = plan(spout)
    (part,) = spout.parts(metadata)
    emitter = spout.emit_part(metadata, part, Tally())
    next(emitter)

    rewrite_in_place(path, "a\n2\n")

    with pytest.raises(BatchDataError, match="changed after it was planned"):
        list(emitter)
    with pytest.raises(BatchDataError, match="changed after it was planned"):
        emit(spout, metadata)


def test_only_content_refuses_a_file_and_it_is_hashed_no_more_often_than_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new mode or link changes ctime and nothing that counts."""
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    spout = FileSpout(tmp_path, "a int")
    metadata = plan(spout)
    hashed: list[int] = []

    def noted(descriptor: int) -> Content:
        hashed.append(descriptor)
        return read_content(descriptor)

    monkeypatch.setattr(planned_file, "read_content", noted)

    assert emit(spout, metadata) == [(1,)] and not hashed
    path.chmod(0o640)
    assert emit(spout, metadata) == [(1,)] and len(hashed) == 1


def test_a_plan_without_ctime_is_compared_by_content(tmp_path: Path) -> None:
    """Plans of the first release do not have it; whether such a file was rewritten in place only its content can tell."""  # noqa: E501
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    spout = FileSpout(tmp_path, "a int")
    metadata = plan(spout)
    del metadata["files"][0]["ctime_ns"]

    assert emit(spout, metadata) == [(1,)]
    rewrite_in_place(path, "a\n2\n")
    with pytest.raises(BatchDataError, match="changed after it was planned"):
        emit(spout, metadata)


def test_a_planned_batch_is_parsed_with_its_plans_schema(tmp_path: Path) -> None:
    """The plan carries the schema itself (R12); the code may declare fewer fields meanwhile, not others."""
    path = tmp_path / "a.csv"
    path.write_text("a,b,c\n1,x,\n")
    metadata = plan(FileSpout(path, "a int, b string"))

    assert emit(FileSpout(path, "b string"), metadata) == [("x",)]
    for fields in ("a bigint, b string", "a int, b string, c string"):
        with pytest.raises(BatchDataError, match="was planned with `a` int, `b` string"):
            emit(FileSpout(path, fields), metadata)
    path.write_text("a,b,c\nz,x,\n")
    with pytest.raises(BatchDataError, match="'z' is no int"):
        emit(FileSpout(path, "b string", on_bad_line="fail"), plan(FileSpout(path, "a int, b string")))
