"""The names of applications as they are stored: with what is needed to run them again."""

from __future__ import annotations

import builtins
import shlex
import sys
from pathlib import Path

from txtopo.core.connect_strings import masked
from txtopo.core.values import IN_FOLDER, IN_NOTEBOOK

SCRIPT = "python "
"""Prefix of an application's name if it was run from its own script and not by `txtopo run`."""


def own_script(name: str) -> str:
    """Return the command that runs this script again, with its folder and without passwords; in IPython words."""
    if hasattr(builtins, "get_ipython"):
        return f"{SCRIPT}{IN_NOTEBOOK}{name}"
    typed = " ".join(shlex.quote(masked(word)) for word in [sys.argv[0] or name, *sys.argv[1:]])
    return f"{SCRIPT}{typed}{IN_FOLDER}{Path.cwd()}"


def in_its_folder(application: str) -> str:
    """Return the application as stored for `next`: with its folder if its name is a relative path."""
    place = application.rpartition(":")[0] or application
    relative = place.endswith(".py") and not Path(place).is_absolute()
    return f"{application}{IN_FOLDER}{Path.cwd()}" if relative else application
