"""The independent recount of access logs: plain `gzip` and `re` over the same files. It shares no code with what it
checks.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

from txtopo.demo.recount import Totals

_LINE = re.compile(
    r'\S+ \S+ \S+ \[[^\]]+\] "((?:[^"\\]|\\.)*)" ([0-9]{3}) ([0-9]+|-) "(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*"'
)
_REQUEST = re.compile(r"[A-Z]+ /([^/ ]*)\S* HTTP/[0-9.]+")


def count_requests(folder: Path, check: Callable[[], None] = lambda: None) -> tuple[Totals, int]:
    """Return requests and bytes by section and status, and the number of lines that are no requests. A request without
    a path has the section `-`. `check` is called for each file and may raise.
    """
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    refused = 0
    for path in sorted(folder.glob("*.log.gz")):
        check()
        for line in gzip.decompress(path.read_bytes()).decode().splitlines():
            found = _LINE.fullmatch(line)
            if found is None:
                refused += 1
                continue
            request, status, size = found.groups()
            known = _REQUEST.fullmatch(request)
            key = (known[1] if known else "-", status)
            requests, size_sum = totals.get(key, (0, 0))
            totals[key] = (requests + 1, size_sum + (0 if size == "-" else int(size)))
    return totals, refused
