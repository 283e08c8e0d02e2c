"""Finds the cause of a failed Spark job and puts it in words: the user's own file and line first."""

from __future__ import annotations

import itertools
import re
import traceback
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from txtopo.core.limits import RESULTS_BYTES_MAX
from txtopo.core.values import Failure, cause_of
from txtopo.errors import BatchDataError, ConfigurationError, Fenced, Halted, StoreUnavailable
from txtopo.spark.session.spark_settings import WORKER_MEMORY_SETTING
from txtopo.topology.user_exceptions import is_of_user, said
from txtopo.tuples.user_errors import RAISED, is_of_memory, shipping_remedy, user_frame

JVM_GONE = "the Spark driver JVM has ended"
CONTEXT_GONE = "the SparkContext of the Spark driver JVM was shut down, and not by this driver"
DETAIL_CHARACTERS_MAX = 20_000
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\][^\n]*")
_IN_A_GROUP = re.compile(r"^\s+\| ")
_CHAINED = re.compile(r"^(?:During handling of the above|The above exception was the direct cause)", re.MULTILINE)
_OVERSIZE = re.compile(
    r"[Tt]otal size of serialized results of (\d+) tasks? \(([^)]+)\)|serialized results.{0,80}?\(([\d.]+ [KMG]iB)\)"
)
_JVM_FRAME = re.compile(r"\s+at [\w$.]+(?:/[\w$.]+)?[\w$.<>]*\(.*\)\s*$")
_CAUSE = re.compile(r"^Caused by: ", re.MULTILINE)
_SPARK_FRAME = re.compile(r"^\s+at (org\.apache\.spark\.[\w.$]+)", re.MULTILINE)
_EVALUATES = ("org.apache.spark.sql.catalyst.", "org.apache.spark.unsafe.")
"""Packages in which Spark computes values; code that reads, moves and keeps rows is in others."""
_LIMIT = re.compile(r"maxResultSize[^(\n]{0,20}\(([\d.]+ [KMG]iB)\)")
_UNPICKLES = re.compile(r'pyspark/serializers\.py", line \d+, in loads\b')
_LACKS = re.compile(RAISED + r"(?:ModuleNotFoundError|ImportError|(?:_?pickle\.)?UnpicklingError)\b")
_USED_WORKER = re.compile(RAISED + r"[\w.]*UsedWorkerError: (.*)")
_UNSTORED = re.compile(RAISED + r"[\w.]*StagingFailed: (infrastructure|data|halt): (.*)")
_TRACEBACK = "Traceback (most recent call last)"
_SAYS_VALUES = re.compile(
    r"Traceback \(most recent call last\)|\[(?!PYTHON)[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\]"
    r"|java\.(?:lang\.(?:NumberFormat|IllegalArgument|Arithmetic)|time\.|text\.|util\.regex\.)[\w.$]*Exception:"
)
"""After these comes text from a value or from the user's code, up to the next frame of the JVM."""
_QUOTING = (
    (re.compile(r"\[(?!PYTHON)[A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*\] "), re.compile(r"SQLSTATE: 22[0-9A-Z]{3}")),
    (re.compile(r"NumberFormatException: For input string: "), re.compile(r'"(?: under radix \d+)?$', re.MULTILINE)),
    (re.compile(r"DateTimeParseException: Text "), re.compile(r"' could not be parsed")),
)
"""Beginnings of errors that quote a value, and their ends. A value may contain any text, also text that looks like an
end: only the last one is certain.
"""

_CRASHED = (
    "exited unexpectedly (crashed)",
    "PYTHON_WORKER_CRASHED",
    "Python worker exited",
    "python worker exited",
    "OutOfMemoryError",
)
_SHUT_DOWN = ("SparkContext has been shutdown", "SparkContext was shut down", "stopped SparkContext")
_INFRASTRUCTURE = (
    "ExecutorLostFailure",
    "FetchFailed",
    "MetadataFetchFailed",
    "indeterminate",
    "INDETERMINATE",
    "Could not find CoarseGrainedScheduler",
    *_SHUT_DOWN,
    "No space left on device",
    "Master removed our application",
    "Connection reset",
    "Connection refused",
    "BlockNotFound",
    "java.io.IOException",
)
_CANCELLED = (
    "cancelled part of cancelled job",
    "Job cancelled",
    "was cancelled",
    "SPARK_JOB_CANCELLED",
    "Job aborted due to stage failure: cancelled",
)


def classify(error: BaseException, *, component: str | None, cancelled: bool) -> Failure:
    """Return the failure of an attempt whose job ended with `error`. The failure names `component` if user code or the
    data is the cause.
    """
    if cancelled:
        return Failure(kind="infrastructure", message="cancelled")
    if isinstance(error, BatchDataError):
        return _of_batch_data(error)
    if isinstance(error, StoreUnavailable | Fenced):  # of the driver, when it makes room for large results
        return Failure(kind="infrastructure", message=str(error))
    if isinstance(error, Halted | ConfigurationError):
        words = getattr(error, "next_command", None)
        return Failure(kind="halt", message=str(error), next_command=words)
    text = _text(error)
    detail = _clip(text)
    spark = _without_values(text)
    size = _OVERSIZE.search(spark)
    if size is not None:
        named = _LIMIT.search(spark)
        limit = named[1] if named is not None else f"{RESULTS_BYTES_MAX // 2**20} MiB"
        return Failure(
            kind="data",
            component=component,
            message=f"results exceed {limit} ({size[2] or size[3]} so far)",
            detail=detail,
        )
    if any(sign in spark for sign in _CANCELLED):
        return Failure(kind="infrastructure", message="the Spark job was cancelled by somebody else", detail=detail)
    if any(sign in spark for sign in _CRASHED):
        words = "a Python worker or executor died while it ran the batch"
        return Failure(kind="suspect", message=words, component=component, detail=detail)
    raised = python_failure(text)
    if raised is not None:
        user = raised.words
        if (used := _USED_WORKER.search(user)) is not None:
            # Those workers have ended with this error: the remaining ones are fresh.
            return Failure(kind="infrastructure", message=used[1], component=component, detail=detail)
        if (unstored := _UNSTORED.search(user)) is not None:
            return _unstored(unstored[1], unstored[2], component, detail)
        if is_of_memory(user):
            user += f"; {component or 'it'} needs more memory than a Python worker may have ({WORKER_MEMORY_SETTING})"
        if lacks_code(text):
            return Failure(
                kind="halt", message=user, component=component, detail=detail, next_command=shipping_remedy(user)
            )
        cause = cause_of(component, raised.error, raised.line)
        return Failure(kind="data", message=user, component=component, detail=detail, cause=cause)
    condition = _CONDITION.search(text)
    if any(sign in spark for sign in _INFRASTRUCTURE):
        return Failure(
            kind="infrastructure", message=f"Spark lost a part of the job: {_first_line(text)}", detail=detail
        )
    line = _call_site(text)
    if condition is not None:
        words, cause = _at(line, condition[0]), cause_of(component, condition[1], line)
        return Failure(kind="data", message=words, component=component, detail=detail, cause=cause)
    if _is_of_an_expression(text):
        words, cause = _at(line, _first_line(text)), cause_of(component, "error of an expression", line)
        return Failure(kind="data", message=words, component=component, detail=detail, cause=cause)
    # No verdict: the batch runs alone next time, and after three failures alone it counts as a failure of the data;
    # there is no endless loop.
    return Failure(kind="suspect", message=_first_line(text), component=component, detail=detail)


def _unstored(kind: str, words: str, component: str | None, detail: str) -> Failure:
    """Return the failure of a task that could not store result rows: txtopo's own words in the traceback."""
    if kind == "halt":
        remedy = "grant the tasks' role usage on schema txtopo_staging and insert on its tables, then start again"
        return Failure(kind="halt", message=words, component=component, detail=detail, next_command=remedy)
    if kind == "infrastructure":
        return Failure(kind="infrastructure", message=words, detail=detail)
    return Failure(kind="data", message=words, component=component, detail=detail)


def _of_batch_data(error: BatchDataError) -> Failure:
    # From a job that a bolt ran while it was called.
    if error.position is None and _LACKS.search(str(error)) is not None:
        return Failure(
            kind="halt",
            message=str(error),
            component=error.component,
            detail=error.detail,
            next_command=shipping_remedy(str(error)),
        )
    return Failure(
        kind="halt" if error.halts else "data",
        message=str(error),
        component=error.component,
        position=error.position,
        detail=error.detail,
        cause=error.cause,
    )


def lacks_code(text: str) -> bool:
    """True if a worker could not load the code that it received: an error while unpickling, or an import that fails. No
    batch is at fault.
    """
    return _UNPICKLES.search(text) is not None or _LACKS.search(_words(python_failure(text))) is not None


def is_about_size(error: BaseException | None) -> bool:
    """True if a job ended because its results, or what a bolt kept in memory, were too large. That depends on many rows
    and is costly to repeat.
    """
    if error is None:
        return False
    text = _text(error)
    return _OVERSIZE.search(_without_values(text)) is not None or is_of_memory(_words(python_failure(text)))


def is_jvm_gone(error: BaseException) -> bool:
    """True if the driver's JVM has ended (K11: the driver's JVM dies)."""
    if isinstance(error, Py4JJavaError):
        return False
    if isinstance(error, Py4JNetworkError | ConnectionError | EOFError):
        return True
    # A call without an answer; a call that Java refused has a trace.
    return isinstance(error, Py4JError) and "Trace:" not in str(error)


def is_context_gone(error: BaseException) -> bool:
    """True if Spark says that its SparkContext was shut down. A JVM that ends by itself, for example without memory,
    shuts it down first. The caller knows whether this driver did it.
    """
    of_spark: BaseException | None = error
    if isinstance(error, BatchDataError):  # From a user's function, which may say anything, unless Spark raised in it.
        of_spark = error.__cause__ if isinstance(error.__cause__, Py4JError | PySparkException) else None
    spark = "" if of_spark is None else _without_values(_text(of_spark))
    return any(sign in spark for sign in _SHUT_DOWN)


def building_error(error: BaseException, component: str) -> BatchDataError:
    """Return the error of a user's function that raised while the driver built the plan."""
    if isinstance(error, BatchDataError):
        return error
    trace = "".join(traceback.format_exception(error))
    where = user_frame(trace)
    words = said(error)
    condition = _CONDITION.search(words)
    # An action that the function ran may have failed in a task.
    raised = python_failure(words)
    first = f": {_first_line(words)}" if words else ""
    if raised is not None:
        what, kind, line = raised.words, raised.error, raised.line or where
    elif condition is not None:
        what, kind, line = condition[0], condition[1], where
    else:
        what, kind, line = f"{type(error).__name__}{first}", type(error).__name__, where
    cause = cause_of(component, kind, line)
    return BatchDataError(_at(where, what), component=component, detail=_clip(trace), cause=cause)


@dataclass(frozen=True, slots=True)
class RaisedInTask:
    """What the user's code raised in a Spark task, read from the traceback that Spark quotes."""

    line: str | None
    """The line in the user's own code, as `file:line`."""
    said: str
    """The error as Python prints it: its class, then its message."""

    @property
    def error(self) -> str:
        """The class of the error."""
        return self.said.partition(":")[0]

    @property
    def words(self) -> str:
        """Line and error in one text."""
        return _at(self.line, self.said)


def _words(raised: RaisedInTask | None) -> str:
    return "" if raised is None else raised.words


def python_failure(text: str) -> RaisedInTask | None:
    """Return what the innermost Python traceback in a Spark error says; None if there is none."""
    first = _SAYS_VALUES.search(text)
    # A traceback that a value quotes does not count.
    if first is None or (first[0] != _TRACEBACK and _TRACEBACK not in _without_values(text)):
        return None
    start = text.find(_TRACEBACK)
    # The same traceback may follow again as a cause; if errors were raised while others were handled, the last one
    # ended the task.
    trace = "\n".join(itertools.takewhile(lambda line: not _JVM_FRAME.match(line), text[start:].splitlines()))
    last = _CHAINED.split(trace)[-1]
    where = user_frame(last) or user_frame(trace)
    lines = [_IN_A_GROUP.sub("", line) for line in last.partition(_TRACEBACK)[2].lstrip(":").splitlines()]
    # Frames are indented, the error is not.
    raised = next((line.strip() for line in lines if line and not line[0].isspace()), "the user's code raised")
    return RaisedInTask(where, raised)


def _without_values(text: str) -> str:
    """Return what Spark itself says about tasks, executors and jobs. A value may say anything: that a flight was
    cancelled, or that a connection was refused.
    """
    first = _SAYS_VALUES.search(text)
    if first is not None and first[0] == _TRACEBACK:
        return text[: first.start()]  # It is the cause; everything after it belongs to it.
    text = _without_quoted(text)
    found: list[str] = []
    is_value = False
    for line in text.splitlines():
        if _JVM_FRAME.match(line) or line.startswith("Caused by: "):
            is_value = False
        if is_value:
            continue
        value = _SAYS_VALUES.search(line)
        is_value = value is not None
        found.append(line[: value.end()] if value is not None else line)
    return "\n".join(found)


def _without_quoted(text: str) -> str:
    for begins, ends in _QUOTING:
        begin = begins.search(text)
        last = None if begin is None else next(reversed([*ends.finditer(text, begin.end())]), None)
        if begin is not None and last is not None:
            text = text[: begin.end()] + text[last.end() :]
    return text


def _call_site(text: str) -> str | None:
    """Return the user's line that built a DataFrame expression; None if Spark does not name it with the error."""
    # Since 4.0: `== DataFrame ==\n"divide" was called from\nFILE:LINE`.
    site = re.search(r"was called from\s*\n\s*(\S+?):(\d+)", text)
    return f"{site[1]}:{site[2]}" if site is not None and is_of_user(site[1]) else None


def _at(line: str | None, words: str) -> str:
    return f"{line}: {words}" if line else words


def _text(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error)
    trace = getattr(error, "_stackTrace", None)
    return f"{error}\n{trace}" if trace else str(error) or repr(error)


def _is_of_an_expression(text: str) -> bool:
    """True if Java raised because of a value, as `rlike` does for an invalid pattern; the frame of Spark nearest to the
    error decides.
    """
    frame = _SPARK_FRAME.search(_innermost(text))
    return frame is not None and frame[1].startswith(_EVALUATES)


def _innermost(text: str) -> str:
    """Return the last cause with its trace; the whole text if it names no cause."""
    return _CAUSE.split(text)[-1]


def _first_line(text: str) -> str:
    lines = [line.strip() for line in _innermost(text).splitlines() if line.strip()]
    lead = next(
        (line for line in lines if not line.startswith(("An error occurred while calling", ":", "at "))),
        lines[0] if lines else "unknown error",
    )
    return lead.lstrip(": ")[:500]


def _clip(text: str) -> str:
    """Return the text without the frames of the JVM, which do not help a user (they are in spark.log), and with a
    limited length.
    """
    text = "\n".join(line for line in text.splitlines() if not _JVM_FRAME.match(line))
    return text if len(text) <= DETAIL_CHARACTERS_MAX else text[:DETAIL_CHARACTERS_MAX] + "\n… (cut)"
