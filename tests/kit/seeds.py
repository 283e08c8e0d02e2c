"""Which simulated histories a run of the tests plays: a few of them, or those that TXTOPO_SIMULATION_SEEDS names."""

from __future__ import annotations

import os

VARIABLE = "TXTOPO_SIMULATION_SEEDS"


def seeds(default: int) -> range:
    """The first `default` seeds, unless the environment names others: so many, or `FIRST:END`, a piece of a long search
    without its end. Raises ValueError for what names none.
    """
    first, _, end = os.environ.get(VARIABLE, str(default)).rpartition(":")
    named = range(int(first or 0), int(end))
    if not named:
        raise ValueError(f"{VARIABLE}={os.environ.get(VARIABLE)} names no seed")
    return named
