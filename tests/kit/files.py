"""What others do to files while a topology reads them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.text_spout import TextSpout


def rewrite_in_place(path: Path, content: str) -> None:
    """As `rsync --inplace --times` does: other bytes under the same inode, size and mtime."""
    before = path.stat()
    after = before
    # Some kernels count ctime in steps of milliseconds: a file written a moment ago has to reach the next one.
    while after.st_ctime_ns == before.st_ctime_ns:
        with path.open("r+", newline="") as opened:
            opened.write(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = path.stat()
    kept = [(one.st_ino, one.st_size, one.st_mtime_ns) for one in (before, after)]
    assert kept[0] == kept[1], "the content has another size"


def settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that nobody writes any more are input almost at once, in applications that leave `settled_s` as it is: two
    seconds of waiting in each run would prove nothing.
    """
    for spout in (FileSpout, TextSpout):
        defaults = spout.__init__.__kwdefaults__ or {}
        assert "settled_s" in defaults
        monkeypatch.setitem(defaults, "settled_s", 0.05)
    monkeypatch.setenv("TXTOPO_SPOUT_POLL_S", "0.05")
