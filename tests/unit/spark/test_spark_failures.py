"""Whose fault a failed Spark job is: the user's own line first, executors' trouble apart, nothing of the JVM's stack."""  # noqa: E501

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from tests.kit.list_spout import list_topology
from txtopo.core.values import Failed, Failure, TransactionAttempt
from txtopo.errors import BatchDataError, ConfigurationError, ExecutorLost
from txtopo.spark import executor as executor_module
from txtopo.spark.executor import SparkExecutor
from txtopo.spark.failures import CONTEXT_GONE, building_error, classify, is_about_size, is_context_gone
from txtopo.spark.session.spark_session import check_settings, hear_of_lost_reports

PYTHON = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/home/ann/app.py", line 7, in clean
    raise ValueError("Connection refused")
ValueError: Connection refused
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def test_the_users_own_line_comes_first_and_the_jvms_stack_is_left_out() -> None:
    """A user exception shows the user's file and line; words of infrastructure in it do not make it infrastructure."""
    failure = classify(RuntimeError(PYTHON), component="tidy", cancelled=False)

    assert (failure.kind, failure.component) == ("data", "tidy")
    assert failure.message == "/home/ann/app.py:7: ValueError: Connection refused"
    assert failure.detail is not None
    assert "org.apache.spark" not in failure.detail
    assert "Traceback" in failure.detail


SAID = [
    "order 17 was cancelled",
    "Job cancelled",
    "exited unexpectedly (crashed)",
    "java.io.IOException",
    "FetchFailed",
    "OutOfMemoryError",
    "Total size of serialized results of 3 tasks (3 MiB)",
    "on line: ImportError: no such thing",
    "x: MemoryError",
]
"""What a bolt over logs may meet in its data."""


@pytest.mark.parametrize("said", SAID)
def test_words_of_spark_in_a_users_error_or_in_a_value_are_the_datas(said: str) -> None:
    """Taken for Spark's own trouble, the batch would be tried without end."""
    error = f"""Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times (TID 3): org.apache.spark.SparkNumberFormatException:
[CAST_INVALID_INPUT] The value '{said}' of the type "STRING" cannot be cast to "INT" because it is malformed. SQLSTATE: 22018
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.invalidInputInCastToNumberError(QueryExecutionErrors.scala:145)
"""  # noqa: E501
    of_code = classify(RuntimeError(PYTHON.replace("Connection refused", said)), component="tidy", cancelled=False)
    of_value = classify(RuntimeError(error), component="tidy", cancelled=False)

    assert (of_code.kind, of_code.component) == (of_value.kind, of_value.component) == ("data", "tidy")
    assert of_code.message == f"/home/ann/app.py:7: ValueError: {said}"
    assert of_value.message.startswith("[CAST_INVALID_INPUT] The value")


@pytest.mark.parametrize(
    "raised", ["Stop: no more", "app.clean.<locals>.Stop", "StopAsyncIteration: x", "KeyboardInterrupt"]
)
def test_an_error_of_any_name_is_told_by_it(raised: str) -> None:
    error = RuntimeError(PYTHON.replace("ValueError: Connection refused", raised))

    assert classify(error, component="tidy", cancelled=False).message == f"/home/ann/app.py:7: {raised}"


def test_of_errors_that_were_raised_over_others_the_last_one_counts() -> None:
    """A module that is there for speed alone may be missing: no halt says so where something else went wrong."""
    fell_back = PYTHON.replace(
        "ValueError: Connection refused",
        """ModuleNotFoundError: No module named 'fast'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/ann/app.py", line 9, in clean
    raise KeyError("k")
KeyError: 'k'""",
    )

    failure = classify(RuntimeError(fell_back), component="tidy", cancelled=False)

    assert (failure.kind, failure.message) == ("data", "/home/ann/app.py:9: KeyError: 'k'")


def test_an_error_of_a_group_is_told() -> None:
    group = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
  + Exception Group Traceback (most recent call last):
  |   File "/home/ann/app.py", line 7, in clean
  |     raise ExceptionGroup("several", found)
  | ExceptionGroup: several (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: one
"""

    failure = classify(RuntimeError(group), component="tidy", cancelled=False)

    assert (failure.kind, failure.message) == ("data", "/home/ann/app.py:7: ExceptionGroup: several (2 sub-exceptions)")


@pytest.mark.parametrize(
    "text",
    [
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times: ExecutorLostFailure (executor 1 exited)",
        "org.apache.spark.shuffle.FetchFailedException: Failed to connect",
        "A shuffle map stage with indeterminate output was failed and retried",
        "java.io.IOException: No space left on device",
    ],
)
def test_trouble_of_executors_is_infrastructure(text: str) -> None:
    """Executor lost, fetch failed, indeterminate stages: they never count as a failure of the batch."""
    assert classify(RuntimeError(text), component="tidy", cancelled=False).kind == "infrastructure"


LOST = """Job aborted due to stage failure: Task 0 in stage 4.0 failed 4 times, most recent failure: Lost task 0.3 in stage 4.0 (TID 7) (host executor driver): {cause}
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.invalidInputInCastToNumberError(QueryExecutionErrors.scala:145)
\tat org.apache.spark.sql.catalyst.expressions.Cast.castToInt(Cast.scala:900)
Caused by: {cause}
\tat org.apache.spark.sql.catalyst.expressions.Cast.castToInt(Cast.scala:900)
"""  # noqa: E501


@pytest.mark.parametrize(
    "said",
    [
        "flight AA1 was cancelled",
        "Job cancelled",
        "Connection refused",
        "java.io.IOException: No space left on device",
        "FetchFailed",
        "Python worker exited unexpectedly (crashed)",
        "a job was\n\tat a.B.c(D.java:1)\nCaused by: java.io.IOException: Connection reset",
        "Total size of serialized results of 3 tasks (301.2 MiB)",
        "SparkContext has been shutdown: ImportError: no module",
        "Traceback (most recent call last):\nModuleNotFoundError: No module named 'helper'",
    ],
)
def test_what_values_and_bolts_say_decides_nothing(said: str) -> None:
    """A record may hold any words, and Spark and users quote it: a batch whose words look like trouble of a store would
    be tried for ever.
    """
    quoted = said.partition("\n")[0]
    raised = PYTHON.replace("ValueError: Connection refused", f"ValueError: {said}")
    cast = LOST.format(
        cause=f"org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '{quoted}' of the type "
        f'"STRING" cannot be cast'
    )
    java = LOST.format(cause=f'java.lang.NumberFormatException: For input string: "{quoted}"')

    found = [classify(RuntimeError(text), component="tidy", cancelled=False) for text in (raised, cast, java)]

    assert [failure.kind for failure in found] == ["data", "data", "data"]
    assert found[0].message == f"/home/ann/app.py:7: ValueError: {quoted}"
    assert "[CAST_INVALID_INPUT] The value" in found[1].message
    assert building_error(RuntimeError(cast), "tidy").component == "tidy"


OF_A_JVM = "a job was\n\tat a.B.c(D.java:1)\nCaused by: java.io.IOException: Connection reset"
"""What stands in a log of Spark, one record of several lines."""
QUOTES = {
    "cast": (
        "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '{said}' of the type \"STRING\" "
        'cannot be cast to "INT" because it is malformed. SQLSTATE: 22018'
    ),
    "date": (
        "org.apache.spark.SparkDateTimeException: [CANNOT_PARSE_TIMESTAMP] Text '{said}' could not be parsed at index "
        "0. SQLSTATE: 22007"
    ),
    "number of Java": 'java.lang.NumberFormatException: For input string: "{said}"',
    "number of Java with a base": 'java.lang.NumberFormatException: For input string: "{said}" under radix 16',
    "date of Java": "java.time.format.DateTimeParseException: Text '{said}' could not be parsed at index 0",
}


@pytest.mark.parametrize("quotes", QUOTES)
@pytest.mark.parametrize("more", ["", " (SQLSTATE: 22018\n", "' could not be parsed\"\n"])
def test_a_value_that_looks_like_the_stack_of_a_jvm_is_the_datas(quotes: str, more: str) -> None:
    """Its frames and causes end no value: taken for trouble of a store, the batch would be tried for ever."""
    for said in (f"{more}{OF_A_JVM}", f"{OF_A_JVM}\n{more}\tat a.B.c(D.java:1)\nExecutorLostFailure"):
        text = LOST.format(cause=QUOTES[quotes].format(said=said))

        assert classify(RuntimeError(text), component="tidy", cancelled=False).kind == "data"


def test_trouble_behind_an_error_that_quotes_no_value_is_still_seen() -> None:
    """A condition of Spark's own that is not about a value hides nothing that follows it."""
    text = """[FAILED_READ_FILE.NO_HINT] Encountered error while reading file /in/1.csv. SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:856)
Caused by: java.io.IOException: Input/output error
"""
    assert classify(RuntimeError(text), component="tidy", cancelled=False).kind == "infrastructure"


SHUT_DOWN = [
    "org.apache.spark.SparkException: Job 3 cancelled because SparkContext was shut down\n\tat a.B.c(D.scala:1)",
    "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was",
    "java.lang.IllegalStateException: SparkContext has been shutdown\n\tat a.B.c(D.scala:1)",
]


@pytest.mark.parametrize("text", SHUT_DOWN)
def test_a_context_that_was_shut_down_is_told_from_words_in_a_value(text: str) -> None:
    """It is what a JVM does first that ends for want of memory, while it still answers."""
    said = text.partition("\n")[0]

    assert is_context_gone(RuntimeError(text))
    for quotes in QUOTES.values():
        assert not is_context_gone(RuntimeError(LOST.format(cause=quotes.format(said=said))))
    assert not is_context_gone(RuntimeError(PYTHON.replace("Connection refused", said)))
    for cause, is_of_spark in ((ValueError(said), False), (PySparkException(text), True)):
        of_function = building_error(cause, "tidy")
        of_function.__cause__ = cause
        assert said in str(of_function) and is_context_gone(of_function) is is_of_spark


@pytest.mark.parametrize("text", SHUT_DOWN)
def test_a_context_that_somebody_else_shut_down_ends_the_driver(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a JVM that is gone: the attempt keeps no end, so a batch that alone ends its drivers is found. One that this
    driver shut down itself says nothing.
    """
    monkeypatch.setattr(executor_module, "jvm_ended", lambda: False)
    run: Any = SimpleNamespace(cancelled=SimpleNamespace(is_set=lambda: False))
    broken = {}
    for closes in (False, True):
        executor = SparkExecutor(list_topology(lambda frame: frame), b"", session=cast(Any, SimpleNamespace()))
        executor._closed = closes
        failure = executor._failure(RuntimeError(text), run, cast(Any, None))
        assert failure.kind == "infrastructure"
        broken[closes] = executor.broken

    assert broken == {False: CONTEXT_GONE, True: None}


def test_a_crashed_worker_is_a_suspect() -> None:
    """A bolt that ends its process ends without a verdict."""
    text = "Python worker exited unexpectedly (crashed)"

    failure = classify(RuntimeError(text), component="tidy", cancelled=False)
    assert (failure.kind, failure.component) == ("suspect", "tidy"), "whose Python it ran is where to look"


def test_results_that_are_too_large_name_their_size() -> None:
    """Beyond 256 MiB the batch halts with the size."""
    text = (
        "Job aborted due to stage failure: Total size of serialized results of 3 tasks (301.2 MiB) is bigger than "
        "spark.driver.maxResultSize (256.0 MiB)"
    )

    failure = classify(RuntimeError(text), component="tidy", cancelled=False)

    assert failure.kind == "data"
    assert "301.2 MiB" in failure.message
    assert "256.0 MiB" in failure.message


def test_an_error_of_sparks_own_about_the_data_names_its_condition() -> None:
    """ANSI overflow and the like are failures of the data."""
    failure = classify(
        RuntimeError("[ARITHMETIC_OVERFLOW] long overflow. SQLSTATE: 22003"), component="tidy", cancelled=False
    )

    assert failure.kind == "data"
    assert "[ARITHMETIC_OVERFLOW]" in failure.message


def test_what_nobody_knows_is_a_suspect_and_no_endless_loop() -> None:
    """It runs alone next time, and three times alone make it a failure of the data."""
    assert classify(RuntimeError("something else"), component=None, cancelled=False).kind == "suspect"


def test_a_cancelled_attempt_is_nobodys_fault() -> None:
    """The runner knows why it cancelled."""
    assert classify(RuntimeError(PYTHON), component="tidy", cancelled=True).kind == "infrastructure"


def test_a_full_worker_that_had_run_other_tasks_is_no_fault_of_the_batch() -> None:
    """Several such workers in a row end a job: they have ended with it, and the batch is tried again."""
    text = PYTHON.replace(
        "ValueError: Connection refused",
        "txtopo.spark.session.used_workers.UsedWorkerError: no memory left in a worker that ran other tasks before: "
        "MemoryError",
    )

    failure = classify(RuntimeError(text), component="tidy", cancelled=False)

    assert failure.kind == "infrastructure"
    assert failure.message == "no memory left in a worker that ran other tasks before: MemoryError"


def test_a_jvm_that_dies_at_the_start_is_told_as_such_and_blames_no_bolt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, in one line; a bolt whose own connection fails stays to blame."""

    def died(*_: Any) -> None:
        try:
            raise Py4JNetworkError("Answer from Java side is empty")
        except Py4JNetworkError as error:
            raise BatchDataError("bolt tidy", component="tidy") from error

    def refused(*_: Any) -> None:
        try:
            raise ConnectionRefusedError("by a service of the bolt's")
        except ConnectionRefusedError as error:
            raise BatchDataError("bolt tidy", component="tidy") from error

    executor = SparkExecutor(list_topology(lambda frame: frame), b"", session=cast(Any, SimpleNamespace()))
    for raising, expected in ((died, ExecutorLost), (refused, BatchDataError)):
        monkeypatch.setattr(executor_module, "check_settings", raising)
        with pytest.raises(expected):
            executor.start()


def test_a_driver_that_cannot_take_reports_ends_and_judges_no_batch() -> None:
    """The JVM sends no more of them once one was not taken: every batch would seem to have been read by nobody."""
    server = SimpleNamespace(handle_error=None)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=server))
    executor = SparkExecutor(list_topology(lambda frame: frame), b"", session=spark)
    outcome = Failed(attempt=TransactionAttempt(1, 0), failure=Failure(kind="suspect", message="gave no report"))
    executor._waves = cast(Any, SimpleNamespace(process=lambda wave, tell: tell(outcome)))
    hear_of_lost_reports(spark, executor._lose_reports)

    def handles(error: Exception) -> str | None:
        try:
            raise error
        except Exception:
            server.handle_error("request", "address")
        executor.process([], lambda _: None)
        return executor.broken

    assert handles(EOFError()) is None, "the end of the JVM is told otherwise"
    assert handles(MemoryError()) == "this driver cannot take what its tasks report (MemoryError)"


def test_a_bolt_that_wants_too_much_memory_is_named_with_the_setting() -> None:
    """A MemoryError in a worker is the batch's fault, and no row is searched for: every run would fill the memory
    again.
    """
    text = PYTHON.replace("ValueError: Connection refused", "numpy._core._exceptions._ArrayMemoryError: Unable to")

    failure = classify(RuntimeError(text), component="tidy", cancelled=False)

    assert (failure.kind, failure.component) == ("data", "tidy")
    assert "tidy needs more memory than a Python worker may have (spark.executor.pyspark.memory)" in failure.message
    assert is_about_size(RuntimeError(text))
    assert not is_about_size(RuntimeError(PYTHON))
    assert is_about_size(RuntimeError("Total size of serialized results of 3 tasks (301.2 MiB) is bigger than"))


@pytest.mark.parametrize(
    "words",
    [
        "ModuleNotFoundError: No module named 'helper'",
        "ImportError: cannot import name 'clean' from 'helper'",
        "_pickle.UnpicklingError: invalid load key",
        "pickle.UnpicklingError: pickle data was truncated",
    ],
)
def test_code_that_a_worker_does_not_have_is_no_batchs_fault(words: str) -> None:
    """Whatever `on_poison` says: nothing is left out over a file that was not shipped."""
    failure = classify(
        RuntimeError(PYTHON.replace("ValueError: Connection refused", words)), component="tidy", cancelled=False
    )

    assert (failure.kind, failure.component) == ("halt", "tidy")
    assert failure.message == f"/home/ann/app.py:7: {words}"
    assert failure.next_command is not None and "--py-files" in failure.next_command


def test_code_that_is_missing_in_a_job_of_a_bolts_own_is_no_batchs_fault_either() -> None:
    error = building_error(
        RuntimeError(PYTHON.replace("ValueError: Connection refused", "ModuleNotFoundError: No module named 'helper'")),
        "tidy",
    )

    failure = classify(error, component="others", cancelled=False)

    assert (failure.kind, failure.component) == ("halt", "tidy")
    assert failure.next_command is not None and "--py-files" in failure.next_command


def test_whatever_is_raised_while_a_worker_unpickles_is_no_batchs_fault() -> None:
    """A class that the worker's copy of a module does not have, or a `__setstate__` that raises."""
    text = """Traceback (most recent call last):
  File "/opt/pyspark.zip/pyspark/serializers.py", line 461, in loads
    return cloudpickle.loads(obj, encoding=encoding)
AttributeError: Can't get attribute 'Clean' on <module 'helper' from '/opt/helper.py'>
"""
    assert classify(RuntimeError(text), component="tidy", cancelled=False).kind == "halt"
    raised = PYTHON.replace("ValueError: Connection refused", "AttributeError: 'NoneType' object has no attribute 'x'")
    assert classify(RuntimeError(raised), component="tidy", cancelled=False).kind == "data"


AWAITED = """An error occurred while calling o7.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:\x20
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.runJob(DAGScheduler.scala:1549)
Caused by: {cause}
\tat java.base/java.util.regex.Pattern.error(Pattern.java:2028)
\tat {where}
\tat org.apache.spark.sql.catalyst.expressions.GeneratedClass$GeneratedIteratorForCodegenStage3.processNext(Unknown Source)
"""  # noqa: E501


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("org.apache.spark.sql.catalyst.expressions.RLike.matches(regexpExpressions.scala:150)", "data"),
        ("org.apache.spark.unsafe.types.UTF8String.split(UTF8String.java:1500)", "data"),
        ("org.apache.spark.storage.ShuffleBlockFetcherIterator.next(ShuffleBlockFetcherIterator.scala:90)", "suspect"),
        ("org.apache.spark.memory.MemoryConsumer.allocateArray(MemoryConsumer.java:90)", "suspect"),
    ],
)
def test_an_error_of_java_is_the_datas_where_a_value_was_computed(where: str, kind: str) -> None:
    """The innermost cause is told, not the frame that waited for it; code that only moves rows proves nothing against
    them.
    """
    text = AWAITED.format(cause="java.util.regex.PatternSyntaxException: Unclosed group near index 1\n(", where=where)

    failure = classify(RuntimeError(text), component="tidy", cancelled=False)

    assert (failure.kind, failure.component) == (kind, "tidy")
    assert failure.message == "java.util.regex.PatternSyntaxException: Unclosed group near index 1"


def test_a_session_of_spark_connect_is_refused() -> None:
    """It has no SparkContext: a batch's order could not be told to its jobs."""
    with pytest.raises(ConfigurationError, match=r"Spark Connect.*without \.remote"):
        check_settings(cast(Any, object()))
