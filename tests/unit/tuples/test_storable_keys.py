"""Keys that no index row holds are found in the processing phase, by their bytes alone."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.errors import BatchDataError, Halted
from txtopo.testing import TopologyHarness
from txtopo.tuples.storable_keys import check_keys, text_bytes_max

ROOM = text_bytes_max([pa.string()])


@pytest.mark.parametrize("long", ["x" * (ROOM + 1), "é" * (ROOM // 2 + 1)], ids=["letters", "bytes"])
def test_a_key_is_measured_in_bytes_and_named(long: str) -> None:
    """The server would compress the first one, and store it: a limit that depends on the text helps nobody."""
    table = pa.table({"day": [1, 2], "url": ["short", long], "count": [1, 1]})
    with pytest.raises(BatchDataError, match=r"^committer pages: key url has 2,66\d bytes \('[xé]+…?.*shorten url"):
        check_keys("pages", table.select(["url", "count"]), 1)
    check_keys("pages", pa.table({"count": [1], "url": [long]}), 1)
    check_keys("pages", pa.table({"url": ["x" * ROOM], "count": [1]}), 1)


def test_the_values_of_one_key_share_the_room_of_one_row() -> None:
    """Texts of several columns, NULL among them; not those of several rows."""
    types = [pa.string(), pa.binary(), pa.decimal128(38, 0), pa.int64()]
    room = text_bytes_max(types)
    assert room == ROOM - 8 - 32 - 8
    columns = [
        ["x" * room, "x" * (room // 2), None],
        [None, b"y" * (room // 2), b"y" * room],
        [Decimal(1)] * 3,
        [1] * 3,
    ]
    table = pa.table([pa.array(values, kind) for values, kind in zip(columns, types, strict=True)], names=[*"abcd"])
    check_keys("pages", table, 4)
    longer = pa.table({**{name: table.column(name) for name in "acd"}, "b": [b"", b"y" * (room // 2 + 2), None]})
    with pytest.raises(BatchDataError, match=f"key b has {room // 2 + 2:,} bytes"):
        check_keys("pages", longer, 4)
    check_keys("pages", table.slice(0, 0), 4)


def test_the_batch_fails_before_its_commit(tmp_path: Path) -> None:
    """In the processing phase, by committer, column and length."""
    (tmp_path / "1.csv").write_text(f"url\nshort\n{'x' * (ROOM + 1)}\n", encoding="utf-8")
    builder = TopologyBuilder("pages")
    builder.set_spout("files", FileSpout(tmp_path, "url string", settled_s=0))
    builder.set_committer_bolt("pages", CountCommitter("pages", ["url"])).fields_grouping("files", ["url"])
    with TopologyHarness(builder.build(), capture=False, attempts_max=1) as harness:
        with pytest.raises(Halted, match="failed in pages: committer pages: key url has 2,665 bytes"):
            harness.run()
