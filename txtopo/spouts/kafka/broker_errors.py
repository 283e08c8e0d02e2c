"""Sorts errors of the Kafka client: a fault of the data, a missing permission, or brokers that cannot be reached."""

from __future__ import annotations

import errno
import time

from confluent_kafka import KafkaError, KafkaException

from txtopo.errors import BatchDataError

COMPONENT = "spout"
"""A placeholder for the component; the executor knows the spout's name."""
RIGHTS = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
TOPIC_GONE = "topic gone"
"""The fault of errors for these."""
SILENT = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)
"""No answer, without a cause."""
REFUSED_S = 5.0
"""Seconds after a refused login without an answer or another error, after which it counts."""
TOO_LARGE = frozenset({KafkaError._BAD_MSG, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})


class Heard:
    """What a client said that belongs to no request, since it last got all answers: why one of them does not come."""

    def __init__(self) -> None:
        self.cause: KafkaError | None = None
        """The error that explains most: a refused login or certificate before a broken connection, and both before
        `all brokers are down`, which follows each of them.
        """
        self._refused: tuple[float, KafkaError] | None = None
        """When a login was refused first, and how; None if none was, or something else has happened since."""

    def note(self, error: KafkaError) -> None:
        """Called by the client for each such error."""
        if error.code() in RIGHTS:
            self._refused = self._refused or (time.monotonic(), error)
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._refused = None
        if self.cause is None or _weight(error) >= _weight(self.cause):
            self.cause = error

    def answered(self) -> None:
        """Forget what was said: it has passed."""
        self.cause = self._refused = None

    def check_login(self, what: str) -> None:
        """Raise PermissionError if logins are refused for a while: a request would only time out. A broker that stops
        or starts may break off one.
        """
        if self._refused is not None and time.monotonic() - self._refused[0] >= REFUSED_S:
            raise error_in_words(self._refused[1], what)

    def is_refused(self) -> bool:
        """Return True if a login or certificate was refused since then."""
        return self.cause is not None and self.cause.code() in RIGHTS


def _weight(error: KafkaError) -> int:
    return 2 if error.code() in RIGHTS else int(error.code() != KafkaError._ALL_BROKERS_DOWN)


def error_in_words(error: KafkaError, what: str, heard: Heard | None = None) -> Exception:
    """Return the exception to raise for an error of the client at `what`: BatchDataError if waiting does not help,
    PermissionError if this process may not, otherwise OSError that may pass. What was `heard` explains a time-out.
    """
    code, words = error.code(), error.str()
    cause = None if heard is None else heard.cause
    if cause is not None and code in SILENT:
        if cause.code() in RIGHTS:
            return error_in_words(cause, what)
        words = f"{words}; before that: {cause.str()}"
    if code in GONE:
        return BatchDataError(f"{what}: there is no such topic or partition", component=COMPONENT, fault=TOPIC_GONE)
    if code in TOO_LARGE:
        return BatchDataError(
            f"{what}: a message is larger than receive.message.max.bytes or damaged ({words}): raise that setting in "
            f"the properties file",
            component=COMPONENT,
            position=what,
            fault="message too large",
        )
    if code in RIGHTS:
        return PermissionError(errno.EACCES, f"Kafka refuses: {words}", what)
    return TimeoutError(errno.ETIMEDOUT, f"Kafka did not answer: {words}", what)


def exception_in_words(error: KafkaException, what: str, heard: Heard | None = None) -> Exception:
    """Return the same for an exception of the client."""
    found = error.args[0] if error.args else None
    if not isinstance(found, KafkaError):
        return OSError(errno.ETIMEDOUT, str(error), what)
    return error_in_words(found, what, heard)
