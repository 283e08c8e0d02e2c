"""The local Kafka broker starts next to the other services, comes back with its data, and leaves nothing running; its
jars are the known ones or none.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kit.fix_kafka import JARS
from tests.kit.fix_postgres import folder_for_services
from txtopo.errors import ConfigurationError
from txtopo.local import kafka_jars
from txtopo.local.processes import command_of
from txtopo.local.services import LocalServices, dev_down, dev_folder, dev_status, dev_up

pytestmark = pytest.mark.kafka

FAKE_JAVA = """\
#!/bin/sh
# A Java whose Ivy retrieves what $GIVEN says.
case "$*" in *-version*) echo 'openjdk version "17.0.1"' >&2; exit 0;; esac
while [ $# -gt 0 ]; do [ "$1" = -retrieve ] && folder=$(dirname "$2"); shift; done
[ -n "$GIVEN" ] && mkdir -p "$folder" && echo "$GIVEN" > "$folder/kafka.jar"
echo "SERVER ERROR: out of reach"
"""


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """See FAKE_JAVA."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE_JAVA)
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.delenv("TXTOPO_IGNORE_SYSTEM_JAVA", raising=False)
    monkeypatch.delenv("GIVEN", raising=False)


@pytest.mark.postgres
@pytest.mark.zookeeper
def test_dev_up_starts_a_broker_next_to_services_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dev up --kafka` adds a broker; a crash loses nothing that was confirmed; `dev down` stops all and keeps data."""
    try:
        kafka_jars.kafka_jars(JARS)
    except ConfigurationError as error:
        pytest.skip(f"no Kafka: {error}")
    with folder_for_services() as home:
        monkeypatch.setenv("TXTOPO_HOME", str(home))
        (home / "kafka").symlink_to(JARS)
        try:
            assert dev_up().kafka is None
            state = dev_up(kafka=True)
            assert state == dev_up() == dev_status()
            assert state.kafka is not None
            assert state.kafka_pid is not None
            broker = LocalServices(dev_folder()).kafka
            admin = AdminClient({"bootstrap.servers": state.kafka, "log_level": 2})
            admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
            producer = Producer({"bootstrap.servers": state.kafka, "acks": "all", "log_level": 2})
            producer.produce("kept", b"one")
            assert producer.flush(30) == 0
            broker.crash()
            assert dev_status() is not None
            assert dev_up(kafka=True).kafka == state.kafka
            consumer = Consumer({"bootstrap.servers": state.kafka, "group.id": "g", "log_level": 2})
            consumer.assign([TopicPartition("kept", 0, 0)])
            (message,) = consumer.consume(1, 30)
            consumer.close()
            assert message.value() == b"one"
            pid = LocalServices(dev_folder()).kafka.pid
            assert dev_down()
            assert pid is not None
            assert str(home) not in command_of(pid)
        finally:
            dev_down(wipe=True)


@pytest.mark.usefixtures("fake_java")
def test_jars_that_cannot_be_downloaded_are_named_with_the_reason(tmp_path: Path) -> None:
    """Without Maven Central there is no broker, and the words say so; nothing half is left."""
    with pytest.raises(ConfigurationError, match=r"cannot be downloaded from Maven Central \(SERVER ERROR: out of"):
        kafka_jars.kafka_jars(tmp_path / "jars")

    assert not list((tmp_path / "jars").glob("*/*"))


@pytest.mark.usefixtures("fake_java")
def test_other_jars_than_the_known_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code from the network runs only if it is what was looked at before."""
    monkeypatch.setenv("GIVEN", "something else")
    with pytest.raises(ConfigurationError, match="gave other jars"):
        kafka_jars.kafka_jars(tmp_path / "jars")
    assert not list((tmp_path / "jars").glob("*/*"))

    monkeypatch.setattr(kafka_jars, "DIGEST", "8f1ba6ab3b2c0c0b4b8e6a0e8dd0d0c3")
    with pytest.raises(ConfigurationError, match="not 8f1ba6ab"):
        kafka_jars.kafka_jars(tmp_path / "jars")
