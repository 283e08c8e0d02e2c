"""The command line as a process of its own, with executors in that process instead of Spark. `python -m
tests.kit.command ARGUMENTS…`; see tests.kit.driver.
"""

from __future__ import annotations

import os
import sys

import txtopo.app
from tests.kit.driver import die, in_process
from txtopo.cli import main


def command() -> int:
    """What `txtopo ARGUMENTS…` does."""
    if dies := os.environ.get("DRIVER_DIES"):
        die(*dies.split())
    txtopo.app.spark_executor = in_process
    return main(tuple(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(command())
