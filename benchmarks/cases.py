"""What is measured, and the targets: cases, the peers of each, and by how much txtopo should be faster."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

TXTOPO = "txtopo"
STREAMING = "structured streaming"
PLAIN = "plain spark"
LOOP = "bare program"
TRIDENT = "storm trident"
TRANSACTIONAL = "storm transactional"
PATHWAY = "pathway"
PASSES = 3
STREAMING_BATCHES_MAX = 91
"""Structured Streaming gets so many batches in a pass, or the benchmark would wait an hour for it. Its pace does not
depend on how many follow.
"""
Pass = Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of work."""

    name: str
    folder: str = ""
    """Of the input: `days` or `backlog`; empty for the words."""
    files_per_batch: int = 1
    peers: tuple[str, ...] = ()
    """In every run."""
    more_peers: tuple[str, ...] = ()
    """Only in `make bench-peers`."""


STORM = (TRIDENT, TRANSACTIONAL)
CASES = (
    Case("daily-1", "days", 1, (TXTOPO, STREAMING), STORM),
    Case("daily-5", "days", 5, (TXTOPO, STREAMING), STORM),
    Case("daily-73", "days", 73, (TXTOPO, STREAMING, PLAIN)),
    Case("backlog-1", "backlog", 1, (TXTOPO, STREAMING, PLAIN), (PATHWAY,)),
    Case("words-dataframe", peers=(TXTOPO,)),
    Case("words-arrow", peers=(TXTOPO,)),
    Case("words-tuple", peers=(TXTOPO,)),
)
"""A case of words measures its bare program in the same process."""


@dataclass(frozen=True, slots=True)
class Target:
    """How many times as fast as a peer txtopo should be, in the first or the last pass of a process."""

    case: str
    which: Pass
    factor: float
    peer: str


TARGETS = (
    Target("daily-1", "first", 1.5, TRIDENT),
    Target("daily-1", "first", 30, STREAMING),
    Target("daily-1", "last", 2.5, TRIDENT),
    Target("daily-1", "last", 60, STREAMING),
    Target("daily-5", "first", 1.5, TRIDENT),
    Target("daily-5", "last", 1.5, TRIDENT),
    Target("daily-5", "last", 25, STREAMING),
    Target("daily-73", "first", 10, STREAMING),
    Target("daily-73", "last", 2, PLAIN),
    Target("backlog-1", "first", 1.3, PLAIN),
    Target("backlog-1", "first", 5, STREAMING),
    Target("backlog-1", "last", 1.5, PLAIN),
    Target("backlog-1", "last", 1.5, PATHWAY),
    Target("words-tuple", "last", 0.75, LOOP),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a separate process is asked to measure."""

    case: str
    peer: str
    passes: int
    inputs: str
    """Folder of the input."""
    scratch: str
    """A folder for logs and checkpoints."""
    words: int
    dsn: str
    zookeeper: str
    postgres_pid: int
    zookeeper_pid: int

    def as_json(self) -> str:
        """Return the text for the command line of that process."""
        return json.dumps(asdict(self))

    @property
    def folder(self) -> Path:
        """A folder of this process alone."""
        path = Path(self.scratch) / f"{self.case}_{self.peer.replace(' ', '_')}"
        path.mkdir(parents=True, exist_ok=True)
        return path


def case_of(name: str) -> Case:
    """Return the case of this name."""
    return next(case for case in CASES if case.name == name)


def wanted(text: str | None) -> tuple[Case, ...]:
    """Return the cases that `text` names, separated by commas; all without a text. Raises ValueError for an unknown
    name.

    >>> [case.name for case in wanted("daily-1,words-tuple")]
    ['daily-1', 'words-tuple']
    """
    if not text:
        return CASES
    names = [name.strip() for name in text.split(",")]
    if unknown := set(names) - {case.name for case in CASES}:
        known = ", ".join(case.name for case in CASES)
        raise ValueError(f"no case {', '.join(sorted(unknown))}; there are {known}")
    return tuple(case for case in CASES if case.name in names)
