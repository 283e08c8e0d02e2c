"""The demo of access logs: its files, its bug, its own recount, its options."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from txtopo.cli import main
from txtopo.demo.logs import lines
from txtopo.demo.logs import logs_story as story
from txtopo.demo.logs.lines import HOURS, LINES, TLS_HOUR, write_hours
from txtopo.demo.logs.recount import count_requests

WEB = Path(story.__file__).with_name("web.py")


def test_each_run_writes_the_same_files(tmp_path: Path) -> None:
    """So the report of each run has the same totals."""
    for name in ("a", "b"):
        assert write_hours(tmp_path / name, range(2, 4)) == 2 * LINES
    files = [[path.read_bytes() for path in sorted((tmp_path / name).iterdir())] for name in ("a", "b")]
    assert files[0] == files[1]
    assert [path.name for path in sorted((tmp_path / "a").iterdir())] == ["access-02.log.gz", "access-03.log.gz"]


def test_the_first_request_without_a_path_comes_when_the_story_says(tmp_path: Path) -> None:
    write_hours(tmp_path, range(HOURS))
    without = [path.name for path in sorted(tmp_path.iterdir()) if b"x16" in gzip.decompress(path.read_bytes())]
    assert without == [f"access-{hour:02}.log.gz" for hour in range(TLS_HOUR, HOURS)]
    totals, refused = count_requests(tmp_path)
    assert sum(requests for requests, _ in totals.values()) + refused == HOURS * LINES
    assert refused == LINES // 500


def test_the_recount_divides_requests_by_section_and_status(tmp_path: Path) -> None:
    start = "10.0.0.1 - - [01/Jun/2026:00:00:00 +0000]"
    written = (
        f'{start} "GET /cart/1?x=2 HTTP/1.1" 200 7 "-" "say \\"hi\\""',
        f'{start} "GET /cart HTTP/1.1" 200 - "-" "-"',
        f'{start} "GET / HTTP/1.1" 404 5 "-" "-"',
        f'{start} "\\x16\\x03" 400 226 "-" "-"',
        f"{start} disk full",
    )
    (tmp_path / "a.log.gz").write_bytes(gzip.compress("\n".join(written).encode()))

    assert count_requests(tmp_path) == ({("cart", "200"): (2, 7), ("", "404"): (1, 5), ("-", "400"): (1, 226)}, 1)


def test_the_program_has_the_bug_once_and_the_fix_is_python() -> None:
    text = WEB.read_text(encoding="utf-8")

    assert text.count(story.BUG) == 1
    compile(text.replace(story.BUG, story.FIX), "web.py", "exec")


def test_an_option_of_the_other_story_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "logs", "--files", "9"]) == 2
    assert "--files is an option of the story flights" in capsys.readouterr().err
    assert main(["demo", "storm"]) == 2


def test_the_readmes_command_writes_a_day_of_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines.main([str(tmp_path / "logs")]) == 0
    assert capsys.readouterr().err == f"48,000 lines in 24 files in {tmp_path / 'logs'}\n"
    assert len(list((tmp_path / "logs").iterdir())) == HOURS
    assert lines.main([]) == lines.main(["--help"]) == 2
