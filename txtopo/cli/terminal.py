"""How wide the reader's terminal is."""

from __future__ import annotations

import shutil
import sys


def width_of_terminal() -> int | None:
    """Columns of the terminal that stdout is; None where it is a file or a pipe, which takes lines of any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
