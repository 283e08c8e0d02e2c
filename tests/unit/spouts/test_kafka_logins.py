"""When a refused login counts: not while a broker may only be starting. A time-out has the words of its cause."""

from __future__ import annotations

import gc
import time
import weakref
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from txtopo.errors import BatchDataError
from txtopo.spouts.kafka import reading
from txtopo.spouts.kafka.broker_errors import Heard
from txtopo.spouts.kafka.client_settings import ClientSettings
from txtopo.spouts.kafka.topics import Topics

REFUSED, SSL = KafkaError._AUTHENTICATION, KafkaError._SSL
DOWN, BROKEN, TOO_LARGE = KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._BAD_MSG


@pytest.mark.parametrize(
    ("noted", "counts"),
    [
        ([(0, REFUSED)], True),
        ([(0, REFUSED), (9, REFUSED), (9, DOWN)], True),
        ([(0, REFUSED), (9, BROKEN)], False),
        ([(0, BROKEN), (8, REFUSED)], False),
        ([(0, BROKEN), (1, DOWN)], False),
    ],
)
def test_a_login_is_refused_if_nothing_else_happens_for_a_while(
    noted: list[tuple[float, int]], counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that breaks off after it is a broker that went away, and is waited for."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    asking = Topics(ClientSettings(servers="127.0.0.1:1"))
    monkeypatch.setattr(asking, "_admin", Silent())
    for at, code in noted:
        now[0] = at
        asking._heard.note(KafkaError(code))
    now[0] = 10.0
    if counts:
        with pytest.raises(PermissionError, match="Kafka refuses"):
            asking._check_login("topic t")
    else:
        asking._check_login("topic t")


@pytest.mark.parametrize(
    ("noted", "words"),
    [
        ([SSL, DOWN], "Kafka refuses: certificate"),
        ([SSL, BROKEN, DOWN], "Kafka refuses: certificate"),
        ([BROKEN, SSL], "Kafka refuses: certificate"),
        ([BROKEN, DOWN], "did not answer: timed out; before that: connection"),
        ([DOWN], "did not answer: timed out; before that: no broker"),
        ([], "did not answer: timed out"),
    ],
)
def test_a_request_that_is_not_answered_has_the_words_of_its_cause(noted: list[int], words: str) -> None:
    """A certificate may be refused long before: the client says it once, and then only that all brokers are down."""
    said = {SSL: "certificate", BROKEN: "connection", DOWN: "no broker"}
    asking = Topics(ClientSettings(servers="127.0.0.1:1"))
    silent: Any = Silent()
    asking._admin = silent
    for code in noted:
        asking._heard.note(KafkaError(code, said[code]))

    answer: Future[None] = Future()
    answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out")))
    with pytest.raises(OSError, match=words):
        asking._result(answer, "topic t")
    assert asking._heard.is_refused() == (SSL in noted)
    asking._renew()
    assert asking._admin is not silent


def test_a_task_that_hears_nothing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the driver does: the last words of the client are that all brokers are down."""
    monkeypatch.setattr(reading, "STALLED_S", 0.0)
    range_ = reading.RangeReading(
        ClientSettings(servers="127.0.0.1:1"), "t/0", {"topic_id": "a", "start": 0, "end": 5}, "read_committed"
    )
    heard = Heard()
    for code in (SSL, DOWN):
        heard.note(KafkaError(code, "certificate"))
    lent: Any = SimpleNamespace(is_kept=False, heard=heard)
    with pytest.raises(PermissionError, match="Kafka refuses: certificate"):
        range_._check_silence(lent, 1.0)


@pytest.mark.parametrize(
    ("code", "silent_s"), [(BROKEN, reading.KEPT_STALLED_S + 1), (TOO_LARGE, reading.KEPT_STALLED_S - 1)]
)
def test_a_client_that_hears_nothing_is_given_time(code: int, silent_s: float) -> None:
    """A broken connection comes back."""
    assert silence(code, silent_s) is None


def test_a_message_that_is_too_large_is_named_long_before_brokers_count_as_silent() -> None:
    """The client says it for each answer that it does not take, and goes on asking."""
    found = silence(TOO_LARGE, reading.KEPT_STALLED_S + 1)
    assert isinstance(found, BatchDataError)
    assert "receive.message.max.bytes" in str(found)


def silence(code: int, silent_s: float) -> Exception | None:
    """What a task raises that has heard this, and then nothing."""
    planned = {"topic_id": "a", "start": 0, "end": 5}
    range_ = reading.RangeReading(ClientSettings(servers="127.0.0.1:1"), "t/0", planned, "read_committed")
    heard = Heard()
    for one in (code, DOWN):
        heard.note(KafkaError(one, "said"))
    lent: Any = SimpleNamespace(is_kept=False, heard=heard)
    try:
        range_._check_silence(lent, silent_s)
    except (BatchDataError, OSError) as error:
        return error
    return None


def test_a_client_lives_until_its_commit_is_answered() -> None:
    """Its place is taken after a request that failed; the answer of its commit would never come."""
    asking = Topics(ClientSettings(servers="127.0.0.1:1"))
    answer = asking.commit("g", {"t/0": 5})
    client = weakref.ref(asking._admin)
    asking._is_stale = True
    asking._renew()
    gc.collect()
    assert client() is not None
    assert client() is not asking._admin
    assert not answer.cancelled()
    asking.commit("g", {"t/0": 6})
    gc.collect()
    assert client() is None


class Silent:
    def poll(self, timeout: float) -> None:
        """No more errors."""
