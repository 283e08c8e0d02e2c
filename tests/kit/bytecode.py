"""Has Python keep compiled modules of the project, also where the environment says that it must not.

The tests start hundreds of processes. Without compiled modules each of them compiles all that it imports, and so does
each Python worker of Spark.
"""

from __future__ import annotations

import compileall
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("txtopo", "txtopo/coordinators", "txtopo/committers", "txtopo/migrations", "tests/kit", "tests/contracts")
"""Folders of modules that other processes import, under the names by which they do; links are not followed."""


def keep() -> None:
    """Compile what has changed, and keep what this process compiles until `let_be`. What a test writes and imports
    later stays as the environment says.
    """
    if sys.dont_write_bytecode:
        for room in ROOMS:
            compileall.compile_dir(ROOT / room, quiet=2)
        sys.dont_write_bytecode = False


def let_be() -> None:
    """From now on as the environment says."""
    sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
