"""docs/tail.md: its block runs and prints what stands below it, and its numbers are those of the code."""

from __future__ import annotations

from tests.kit.pages import DOCS, run_page
from txtopo import TailSpout
from txtopo.spouts.tail import log_file, tail_coordinator


def test_the_block_of_growing_files_runs_and_prints_what_the_page_says() -> None:
    seen = 0
    for block, printed in run_page("tail.md"):
        assert printed == (block.shown or ""), f"docs/tail.md:{block.line}"
        seen += 1
    assert seen == 1


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    page = (DOCS / "tail.md").read_text(encoding="utf-8")
    spout = TailSpout("/logs/app.log", "line string")

    assert f"`bytes_per_batch` ({spout.bytes_per_batch // 1024**2} MiB)" in page
    assert f"`settled_s` ({spout.settled_s:.0f})" in page
    assert f"`rotated_s` ({spout.rotated_s:.0f})" in page
    assert f"the first {log_file.HEAD_BYTES} bytes, and the last {log_file.HEAD_BYTES} bytes" in page
    assert f"remembered until {tail_coordinator.GONE_KEPT} others" in page
