"""Describes errors in user code: the user's own file and line, and the values in use."""

from __future__ import annotations

import os
import re
import socket
import traceback
from collections.abc import Mapping
from typing import Any

from txtopo.core.os_errors import fault_of
from txtopo.core.values import Failure, cause_of
from txtopo.errors import BatchDataError, cause_of_fault
from txtopo.topology.user_exceptions import noted, said, users_own

VALUE_CHARACTERS_MAX = 80
ROW_CHARACTERS_MAX = 1000
DETAIL_CHARACTERS_MAX = 20_000
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
RAISED = r"^(?:[^:]*:\d+: ){0,2}"
"""Text before the class of an error: its file and line if they are known, and those of the call that ran a job."""
_MEMORY = re.compile(RAISED + r"[\w.]*MemoryError\b")
_SHIPPED = re.compile(r"^.*/userFiles-[0-9a-f-]+/")
"""Folder in which Spark puts what `--py-files` sends: it exists only during this run, so nobody can open it later. The
name of the file remains.
"""


def user_frame(trace: str) -> str | None:
    """Return `file:line` of the last frame in a Python traceback that is the user's own: not Spark's, a library's or
    txtopo's; None if there is none.
    """
    own = users_own(_FRAME.findall(trace))
    return f"{_SHIPPED.sub('', own[0])}:{own[1]}" if own is not None else None


def shown(values: Mapping[str, Any]) -> str:
    """Return a row as text for people, in one line and with a limited length: `carrier='AA', distance=0`.

    >>> shown({"carrier": "AA", "distance": None})
    "carrier='AA', distance=NULL"
    """
    return _cut(
        ", ".join(f"{name}={shown_value(value)}" for name, value in values.items()),
        ROW_CHARACTERS_MAX,
    )


def shown_value(value: Any) -> str:
    """Return one value as text for people, with a limited length."""
    if value is None:
        return "NULL"
    return _cut(repr(value) if isinstance(value, str | bytes) else str(value), VALUE_CHARACTERS_MAX)


def one_line(text: str) -> str:
    """Return the text without line ends."""
    return " ".join(text.splitlines())


def failure_of(error: BaseException, component: str, *, on: str | None = None) -> Failure:
    """Return the failure of a component whose code, or whose source, raised. `on` describes the values in use.

    An error of the operating system is a failure of the infrastructure only in spouts, which read from it; see
    `spout_failure_of`.
    """
    trace = "".join(traceback.format_exception(error))
    where = user_frame(trace)
    lacking = isinstance(error, ImportError) or type(error).__name__ == "UnpicklingError"
    if isinstance(error, BatchDataError):
        what, detail, position = str(error), error.detail or _cut(trace, DETAIL_CHARACTERS_MAX), error.position
        where = None if position is not None else where
    else:
        first = said(error).strip().partition("\n")[0]
        # Some errors, MemoryError among them, have only their name.
        what = f"{type(error).__name__}: {first}" if first else type(error).__name__
        detail, position = _cut(trace, DETAIL_CHARACTERS_MAX), None
    step, values = noted(error)
    # The step is a text that ends with file and line, like `where`.
    message = ": ".join(filter(None, [step, where, what]))
    on = "; on ".join(dict.fromkeys(filter(None, [values, on]))) or None
    return Failure(
        kind="halt" if lacking else "data",
        message=one_line(f"{message}; on {on}" if on else message),
        component=component,
        position=position,
        detail=detail,
        cause=_cause(error, component, where),
        next_command=shipping_remedy(message) if lacking else None,
    )


def _cause(error: BaseException, component: str, where: str | None) -> str:
    if where is None and isinstance(error, BatchDataError) and error.fault is not None:
        return cause_of_fault(component, error.fault)
    return cause_of(component, type(error).__name__, where)


def is_of_memory(words: str) -> bool:
    """True if the text of a failure says that a process was out of memory."""
    return _MEMORY.search(words) is not None


def shipping_remedy(words: str) -> str:
    """Return the next command after a worker could not load code, as `words` say: no batch is at fault."""
    if re.search(r"'(?:txtopo|pyarrow|numpy|pyspark)[.']", words):
        return "point PYSPARK_PYTHON at a Python that has txtopo and all it needs installed"
    return (
        "name the file or zip of your modules with --py-files, or install it where the workers run, then start "
        "`txtopo run` again"
    )


def spout_failure_of(error: BaseException, component: str) -> Failure:
    """Return the failure of a spout. A source that cannot be read at this moment is no failure of the data; `position`
    is then the file, if there is one.
    """
    if not isinstance(error, OSError) or (fault := fault_of(error)) in ("gone", "data"):
        return failure_of(error, component)
    words = one_line(f"{type(error).__name__}: {said(error)}")
    where = None if error.filename is None else str(error.filename)
    cause = cause_of(component, type(error).__name__, None)
    if fault == "rights":
        reader = f"user {os.geteuid()} on {socket.gethostname()}"
        remedy = f"give {reader} the right to read the source, then start `txtopo run` again"
        return Failure(
            kind="halt",
            message=f"{words} ({reader})",
            component=component,
            position=where,
            cause=cause,
            next_command=remedy,
        )
    if fault == "host":
        words = f"host {socket.gethostname()}: {words}"
    return Failure(kind="infrastructure", message=words, component=component, position=where, cause=cause)


def _cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else f"{text[:characters_max]}…"
