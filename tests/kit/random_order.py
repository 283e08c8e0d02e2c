"""Tests in another order: files in a random order, and the tests of each file. The seed repeats it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

VARIABLE = "TXTOPO_TEST_ORDER"
"""Environment variable with the seed; without it tests run in the order of the folders."""

_Item = TypeVar("_Item")


def seed() -> int | None:
    """The seed of this run; None: no random order was asked for. Raises ValueError where it is no number."""
    given = os.environ.get(VARIABLE)
    return int(given) if given else None


def shuffled(items: Sequence[_Item], file_of: Callable[[_Item], str], seed: int) -> list[_Item]:
    """The items in the order of this seed. Those of a file stay together: they share what is expensive to start."""
    files: dict[str, list[_Item]] = {}
    for item in items:
        files.setdefault(file_of(item), []).append(item)
    chance = random.Random(seed)
    names = sorted(files)
    chance.shuffle(names)
    for name in names:
        chance.shuffle(files[name])
    return [item for name in names for item in files[name]]
