"""The source of text files: a line a tuple, wherever a file is cut, and late files are input like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.kit.files import rewrite_in_place
from txtopo.errors import BatchDataError
from txtopo.spouts import TextSpout
from txtopo.topology.components import SpoutContext, Tally


def planned(spout: TextSpout, consumed: dict[str, bytes] | None = None) -> list[Any]:
    """All batches of a run."""
    now = [0.0]
    context = SpoutContext(
        topology="t", spout="s", consumed=consumed or {}, once=True, monotonic=lambda: now[0], say=print
    )
    coordinator = spout.open_coordinator(context)
    coordinator.is_ready()
    now[0] = 10.0
    found: list[Any] = []
    while coordinator.is_ready():
        found.append(coordinator.initialize_transaction(len(found) + 1, None))
    return found


def emitted(spout: TextSpout, metadata: Any, tally: Tally | None = None) -> list[str]:
    return [
        line
        for part in spout.parts(metadata)
        for batch in spout.emit_part(metadata, part, tally or Tally())
        for line in batch.column(0).to_pylist()
    ]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lines=st.lists(st.text(st.sampled_from('aä"\ufeff,\r '), max_size=6), max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    final=st.booleans(),
    part_bytes=st.integers(1, 12),
    mark=st.booleans(),
)
@example(lines=["\r"], end="\n", final=False, part_bytes=1, mark=False)
def test_each_line_is_a_tuple_wherever_the_file_is_cut(
    tmp_path: Path, lines: list[str], end: str, final: bool, part_bytes: int, mark: bool
) -> None:
    content = (b"\xef\xbb\xbf" if mark else b"") + (end.join(lines) + (end if final else "")).encode()
    (tmp_path / "a.txt").write_bytes(content)
    spout = TextSpout(tmp_path / "a.txt", part_bytes=part_bytes)
    (metadata,) = planned(spout)
    text = content.decode("utf-8-sig")
    raw = text.split("\n")
    if not raw[
        -1
    ]:  # what ends with a line feed has no further line; a lone carriage return after the last one is an empty line
        raw.pop()
    expected = [line.removesuffix("\r") for line in raw]

    tally = Tally()
    assert emitted(spout, metadata, tally) == expected
    assert tally.read == len(expected)
    for part in spout.parts(metadata):
        rows = [line for batch in spout.emit_part(metadata, part, Tally()) for line in batch.column(0).to_pylist()]
        for number, line in enumerate(rows):
            position = spout.locate(metadata, part, number)
            assert position is not None
            at = int(position.position.rpartition(":")[2])
            assert expected[at - 1] == line
        assert spout.locate(metadata, part, len(rows)) is None


def test_lines_that_are_no_text_are_rejected_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("gut\nMünchen\nnul\0\n\nend".encode("latin-1"))
    spout = TextSpout(tmp_path)
    (metadata,) = planned(spout)
    tally = Tally()

    assert emitted(spout, metadata, tally) == ["gut", "", "end"]
    assert [(one.path, one.line, one.reason) for one in tally.rejects] == [
        (str(path), 2, "the line is not UTF-8"),
        (str(path), 3, "the line holds the NUL character"),
    ]
    with pytest.raises(BatchDataError, match=r"a\.txt:2: the line is not UTF-8"):
        emitted(TextSpout(tmp_path, on_bad_line="fail"), metadata)


def test_a_late_file_is_input_whatever_its_name_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    """What was counted is remembered by path, not by the last name; fingerprints are compared as of FileSpout."""
    late, last = tmp_path / "access.log-16", tmp_path / "access.log-20"
    last.write_text("one\n")
    spout = TextSpout(f"{tmp_path}/access.log-*")
    (first,) = planned(spout)
    late.write_text("two\n")

    (second,) = planned(spout, {str(last): spout.inputs(first)[0].fingerprint})

    assert [file["path"] for file in second["files"]] == [str(late)]
    assert emitted(spout, second) == ["two"]
    rewrite_in_place(late, "TWO\n")
    with pytest.raises(BatchDataError, match="changed after it was planned"):
        emitted(spout, second)


def test_a_compressed_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\x1f\x8b\x08\x00")

    with pytest.raises(BatchDataError, match=r"a\.txt: it is gzip, not UTF-8 text"):
        planned(TextSpout(tmp_path))
