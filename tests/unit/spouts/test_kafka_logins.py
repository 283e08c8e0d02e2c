"""When a refused login counts: not while a broker may only be starting."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError

from txtopo.spouts.kafka.client_settings import ClientSettings
from txtopo.spouts.kafka.topics import Topics

REFUSED, DOWN, BROKEN = KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT


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
        asking._note(KafkaError(code))
    now[0] = 10.0
    if counts:
        with pytest.raises(PermissionError, match="Kafka refuses"):
            asking._check_login("topic t")
    else:
        asking._check_login("topic t")


class Silent:
    def poll(self, timeout: float) -> None:
        """No more errors."""
