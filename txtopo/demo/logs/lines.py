"""Writes a day of access logs, as a web server would: a compressed file for each hour, the same in every run.

`python -m txtopo.demo.logs.lines FOLDER` writes them for experiments.
"""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

HOURS = 24
LINES = 2_000
"""Number of requests in an hour."""
TORN_HOUR = 3
"""The hour in which the disk was full: some of its lines are cut off."""
TLS_HOUR = 13
"""The first hour in which somebody speaks TLS to the port of HTTP: such a request has no path."""

_PATHS = ("/", "/products/{n}", "/products/{n}/reviews", "/cart", "/api/orders/{n}", "/static/app.js", "/login")
_STATUSES = ((200, 88), (304, 6), (404, 4), (500, 2))
_AGENTS = ("curl/8.5", "Mozilla/5.0 (X11; Linux x86_64)", r"say \"hi\"", "-")
_TLS = r'"\x16\x03\x01\x02" 400 226 "-" "-"'


def write_hours(folder: Path, hours: range, check: Callable[[], None] = lambda: None) -> int:
    """Write `access-HH.log.gz` of these hours into a folder; returns the number of lines. `check` may raise."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = 0
    for hour in hours:
        check()
        text = [*_lines(hour)]
        # With a fixed time stamp in its header, so that each run writes the same bytes.
        (folder / f"access-{hour:02}.log.gz").write_bytes(gzip.compress("\n".join(text).encode() + b"\n", mtime=0))
        lines += len(text)
    return lines


def _lines(hour: int) -> Iterator[str]:
    chance = random.Random(hour)
    statuses, weights = zip(*_STATUSES, strict=True)
    for number in range(LINES):
        minute, second = divmod(number * 3600 // LINES, 60)
        (status,) = chance.choices(statuses, weights)
        path = chance.choice(_PATHS).format(n=chance.randrange(1, 500))
        size = "-" if status == 304 else str(chance.randrange(100, 20_000))
        host, clock = f"10.0.{chance.randrange(256)}.{chance.randrange(256)}", f"{hour:02}:{minute:02}:{second:02}"
        start = f"{host} - - [01/Jun/2026:{clock} +0000]"
        line = f'{start} "GET {path} HTTP/1.1" {status} {size} "-" "{chance.choice(_AGENTS)}"'
        if hour >= TLS_HOUR and number % 400 == 7:
            line = f"{start} {_TLS}"
        if hour == TORN_HOUR and number % 500 == 11:
            line = line[:50]
        yield line


def main(arguments: list[str]) -> int:
    """Write the files into the given folder; returns the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m txtopo.demo.logs.lines FOLDER", file=sys.stderr)
        return 2
    lines = write_hours(Path(arguments[0]), range(HOURS))
    print(f"{lines:,} lines in {HOURS} files in {arguments[0]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
