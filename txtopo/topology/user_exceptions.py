"""Exceptions of the user's code: distinguished from those that end the process, and reported with their line."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_ROOMS = ("", "committers", "coordinators", "migrations")
"""In a checkout some rooms of txtopo are links to folders at the top."""
_OWN = {_PACKAGE, *((_PACKAGE / room).resolve() for room in _ROOMS)}
_LIBRARIES = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_FOREIGN = tuple(f"{folder}{os.sep}" for folder in (*_OWN, *_LIBRARIES))


def said(error: BaseException) -> str:
    """Return the message of an exception, or an empty text if its `__str__` raises. For an exception group, also the
    message of its first error.
    """
    try:
        words = str(error)
    except Exception:
        return ""
    if isinstance(error, BaseExceptionGroup):
        first = error.exceptions[0]
        words = f"{words}: {type(first).__name__}: {said(first)}".rstrip(": ")
    return words


def is_of_code(error: BaseException) -> bool:
    """Return True if the user's code, or a library that it calls, raised the exception. Ctrl-C and SIGTERM, which are
    raised in the main thread, belong to no user code.

    `sys.exit()` counts as the user's: if it ended the process, the run would end with exit code 0.
    """
    if isinstance(error, KeyboardInterrupt):
        return threading.current_thread() is not threading.main_thread()
    own = type(error).__module__.partition(".")[0] == __name__.partition(".")[0]
    return isinstance(error, Exception) or not own


def user_line(error: BaseException) -> str | None:
    """Return `file:line` of the innermost frame in the user's code; None if there is none."""
    found = users_own([(frame.filename, str(frame.lineno)) for frame in traceback.extract_tb(error.__traceback__)])
    return None if found is None else f"{found[0]}:{found[1]}"


def users_own(frames: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the innermost of these frames, (file, line) from the outermost, in the user's code; None if there is none.

    Of installed code, only the package that defines a component is the user's, and only if no other file is.
    """
    for is_own in (is_of_user, _defines_components):
        own = [frame for frame in frames if is_own(frame[0])]
        if own:
            return own[-1]
    return None


def note_step(error: BaseException, place: str) -> None:
    """Note on an exception in which step of a stream it was raised; the innermost step counts."""
    if not hasattr(error, "_txtopo_step"):
        error._txtopo_step = place  # type: ignore[attr-defined]


def note_values(error: BaseException, values: str) -> None:
    """Note on an exception which values a step's function had, as text for people."""
    if not hasattr(error, "_txtopo_values"):
        error._txtopo_values = values  # type: ignore[attr-defined]


def noted(error: BaseException) -> tuple[str | None, str | None]:
    """Return the step and the values that were noted on an exception."""
    return getattr(error, "_txtopo_step", None), getattr(error, "_txtopo_values", None)


def note_component(module: str) -> None:
    """Note that a module defines a class of components, in this process: its package is the user's code, also if it is
    installed among libraries.
    """
    names = module.split(".")
    if names[0] == __name__.partition(".")[0]:
        return
    for depth in range(1, len(names) + 1):
        found = sys.modules.get(".".join(names[:depth]))
        file = getattr(found, "__file__", None)
        if file is not None:  # a namespace package has no file, and is shared by strangers
            _components.add(f"{Path(file).parent}{os.sep}" if hasattr(found, "__path__") else file)
            return


_components: set[str] = set()
"""Folders of packages, and files, that define components."""


def _defines_components(file: str) -> bool:
    return file.startswith(tuple(_components))


def is_of_user(file: str) -> bool:
    """Return True if the file of a frame belongs to the user: not to txtopo, Spark or a library."""
    # Compiled libraries, such as pyarrow, name their sources by relative paths.
    if file.startswith(("<", *_FOREIGN)) or file.endswith((".pxi", ".pyx")):
        return False
    return not any(part in file for part in ("site-packages", "pyspark.zip", "py4j", "/pyspark/"))
