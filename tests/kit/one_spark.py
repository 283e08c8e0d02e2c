"""Gives all files that use the shared Spark session to one worker: a second session would have to start and grow warm
as well.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parents[2]
SHARED = "the shared Spark session"


class FilesBySession(LoadFileScheduling):  # type: ignore[misc]
    """Tests of a file stay on one worker, and those of all files with the shared session on the same."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(super()._split_scope(nodeid))


@cache
def scope_of(file: str) -> str:
    """What a test file, named from the root of the project, is kept together with: itself, or SHARED."""
    path = ROOT / file
    shares = path.is_file() and re.search(r"\bspark_session: ", path.read_text(encoding="utf-8"))
    return SHARED if shares else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesBySession | None:
    """For `--dist loadfile`; other ways to spread tests stay as they are."""
    return FilesBySession(config, log) if config.getoption("dist") == "loadfile" else None
