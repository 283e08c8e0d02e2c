"""Sorts errors of the Kafka client: a fault of the data, a missing permission, or brokers that cannot be reached."""

from __future__ import annotations

import errno

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
TOO_LARGE = frozenset({KafkaError._BAD_MSG, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})


def error_in_words(error: KafkaError, what: str) -> Exception:
    """Return the exception to raise for an error of the client at `what`: BatchDataError if waiting does not help,
    PermissionError if this process may not, otherwise OSError that may pass.
    """
    code, words = error.code(), error.str()
    if code in GONE:
        return BatchDataError(f"{what}: there is no such topic or partition", component=COMPONENT, fault="topic gone")
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


def exception_in_words(error: KafkaException, what: str) -> Exception:
    """Return the same for an exception of the client."""
    found = error.args[0] if error.args else None
    return error_in_words(found, what) if isinstance(found, KafkaError) else OSError(errno.ETIMEDOUT, str(error), what)
