"""Loads a topology of the folder `examples` afresh, for folders of the test's own, and counts its input in another way."""  # noqa: E501

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from txtopo.driver.load_application import load_application
from txtopo.topology.components import Topology

FOLDER = Path(__file__).resolve().parents[2] / "examples"
TEXTS = FOLDER / "texts"
WORDS = {"cat": 8, "dog": 7, "apple": 2, "chicken": 1, "banana": 1}
"""Of `global_count.py` (TT-09)."""


def example(monkeypatch: pytest.MonkeyPatch, name: str, **folders: Path) -> Topology:
    """The topology of `examples/<name>.py`; `folders` are environment variables that it reads when it is loaded."""
    for variable, folder in folders.items():
        monkeypatch.setenv(variable, str(folder))
    # Where it stays loaded, its classes can be pickled; the next test loads it anew.
    sys.modules.pop(name, None)
    return load_application(f"{FOLDER / name}.py:topology")


def words_of(text: str) -> list[str]:
    """Words in small letters: whatever stands between other signs than letters and apostrophes."""
    return [word for word in re.sub(r"[^a-z']", " ", text.lower()).split() if word]


def words() -> Counter[str]:
    """How often each word stands in the texts."""
    return Counter(word for path in TEXTS.glob("*.txt") for word in words_of(path.read_text(encoding="utf-8")))


def lengths() -> Counter[tuple[str, int]]:
    """What the diamond counts by length: each way, and lines without words."""
    lines = [line for path in TEXTS.glob("*.txt") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    counted = Counter((way, len(word)) for line in lines for word in words_of(line) for way in ("measured", "shouted"))
    return counted + Counter({("silent", 0): sum(not words_of(line) for line in lines)})


def initials() -> Counter[str]:
    """What it counts by first letter."""
    return Counter(word.strip("'")[:1].upper() for word in words().elements())


def write_log(folder: Path, service: int, *lines: str) -> None:
    """Add lines to a log of `partitioned.py`."""
    with (folder / f"{service}.log").open("a", encoding="utf-8") as log:
        log.write("".join(f"{line}\n" for line in lines))


def write_message(folder: Path, name: str, text: str) -> None:
    """Put a message into the queue of `reliable.py`, whole at once."""
    (folder / f"_{name}").write_text(f"{text}\n", encoding="utf-8")
    (folder / f"_{name}").rename(folder / f"{name}.msg")
