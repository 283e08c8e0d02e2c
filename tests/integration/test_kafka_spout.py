"""KafkaSpout on a real broker: a range has the same messages whatever happens to the broker, or its batch fails."""

from __future__ import annotations

import datetime
import pickle
import re
from pathlib import Path
from typing import Any, cast

import pytest

from tests.kit.audited import run_batches, select
from tests.kit.audits import Audited, findings
from tests.kit.kafka_topics import Cluster, coordinator_of, planned, rows_of, spans
from tests.kit.pages import DOCS
from tests.kit.secured_kafka import SecuredKafka, make_certificates
from txtopo import CountCommitter, KafkaSpout, TopologyBuilder
from txtopo.audit.readers.kafka_reader import KafkaReader
from txtopo.core.fields import parse_fields
from txtopo.errors import BatchDataError
from txtopo.local.processes import wait_until
from txtopo.spouts.kafka import broker_errors, reading
from txtopo.topology.components import SpoutCoordinator, Tally, Topology

NUMBERS = "value string, _offset bigint"


@pytest.fixture(scope="module")
def cluster(kafka_server: SecuredKafka) -> Cluster:
    """The broker of all tests of this file; one that crashes it starts it again."""
    return Cluster(kafka_server)


def numbers(cluster: Cluster, topic: str | re.Pattern[str], **settings: object) -> KafkaSpout:
    """Reads each message as text with its offset."""
    settings = {"value": "string", "max_wait_s": 0, "servers": cluster.servers, **settings}
    return KafkaSpout(topic, NUMBERS, **settings)  # type: ignore[arg-type]


def texts(*values: int) -> list[bytes | None]:
    return [b"%d" % value for value in values]


def test_aborted_messages_and_markers_belong_to_no_batch(cluster: Cluster, topic: str) -> None:
    """A range ends below an open transaction; what was aborted is passed over, up to a range of nothing else."""
    cluster.make(topic)
    cluster.send(topic, texts(0, 1))
    aborted = cluster.transaction(topic, "aborted")
    for value in texts(2, 3, 4):
        aborted.produce(topic, value)
    aborted.flush(30)
    aborted.abort_transaction(30)
    assert wait_until(lambda: cluster.end(topic) == 6, 30)  # The marker follows its answer.
    cluster.send(topic, texts(6))
    open_one = cluster.transaction(topic, "open")
    open_one.produce(topic, b"7")
    open_one.flush(30)
    spout = numbers(cluster, topic, max_records=3)
    coordinator = coordinator_of(spout)

    first = planned(coordinator)
    second = planned(coordinator, first, 2)
    third = planned(coordinator, second, 3)
    assert [spans(one) for one in (first, second, third)] == [
        {f"{topic}/0": (0, 3)},
        {f"{topic}/0": (3, 6)},
        {f"{topic}/0": (6, 7)},
    ]
    assert not coordinator.is_ready()
    read = [rows_of(spout, one) for one in (first, second, third)]
    assert read == [[("0", 0), ("1", 1)], [], [("6", 6)]]

    open_one.commit_transaction(30)
    assert wait_until(coordinator.is_ready, 30)
    fourth = planned(coordinator, third, 4)
    assert rows_of(spout, fourth) == [("7", 7)]
    assert rows_of(spout, first) == read[0]


def test_a_broker_that_dies_while_a_range_is_read_loses_no_message(cluster: Cluster, topic: str) -> None:
    """The read goes on when the broker is back; while it is away, no silence is taken for the end of the range."""
    cluster.make(topic)
    cluster.send(topic, texts(*range(3000)))
    spout = numbers(cluster, topic)
    batch = planned(coordinator_of(spout))
    (part,) = spout.parts(batch)
    tally = Tally()
    emitted = spout.emit_part(batch, part, tally)
    found = next(emitted).num_rows

    cluster.server.crash()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "STALLED_S", 0.5)
            patch.setattr(reading, "_check_topic", lambda *_: None)
            with pytest.raises(TimeoutError, match=f"{topic}/0"):
                rows_of(spout, batch)
    finally:
        cluster.server.start()

    found += sum(one.num_rows for one in emitted)
    assert found == tally.read == 3000
    assert [int(text) for text, _ in rows_of(spout, batch)] == list(range(3000))


def test_offsets_that_expired_halt_with_both_positions_or_are_passed_over_aloud(cluster: Cluster, topic: str) -> None:
    """Planned and expired: the attempt fails. Expired before they were planned: so does planning, unless the kind is
    opaque, which says what is missing and goes on at the first message there is.
    """
    cluster.make(topic)
    cluster.send(topic, texts(*range(10)))
    spout, opaque = (numbers(cluster, topic, max_records=4, kind=kind) for kind in ("transactional", "opaque"))
    first = planned(coordinator_of(spout))
    cluster.expire(topic, 6)

    with pytest.raises(BatchDataError, match=f"{topic}/0: planned offsets 0 to 3 are not all there .* has 6 to 10"):
        rows_of(spout, first)
    with pytest.raises(BatchDataError, match=r"offsets 4 to 5 have expired .* the next one is 4, the first .* 6"):
        coordinator_of(spout).initialize_transaction(2, first)

    said: list[str] = []
    second = coordinator_of(opaque, said).initialize_transaction(2, first)
    assert rows_of(opaque, second) == [("6", 6), ("7", 7), ("8", 8), ("9", 9)]
    assert second["partitions"][0]["range"]["lost"] == [4, 6]
    assert said == [f"{topic}/0: offsets 4 to 5 have expired before they were planned, and are counted nowhere"]


def test_a_topic_that_was_made_again_is_another_one(cluster: Cluster, topic: str) -> None:
    """Its messages stand at the same offsets: neither a planned range nor the next one takes them."""
    cluster.make(topic)
    cluster.send(topic, texts(1, 2))
    spout = numbers(cluster, topic, max_records=1)
    first = planned(coordinator_of(spout))
    cluster.remove(topic)
    cluster.make(topic)
    cluster.send(topic, texts(7, 8, 9))

    with pytest.raises(BatchDataError, match="was deleted and made again"):
        rows_of(spout, first)
    with pytest.raises(BatchDataError, match="was deleted and made again"):
        coordinator_of(spout).initialize_transaction(2, first)
    cluster.remove(topic)
    with pytest.raises(BatchDataError, match="no such topic"):
        coordinator_of(spout).initialize_transaction(2, first)
    with pytest.raises(BatchDataError, match="no such topic"):
        rows_of(spout, first)


def test_compacted_topics_are_for_the_opaque_kind(cluster: Cluster, topic: str) -> None:
    """A later attempt may find fewer messages there."""
    cluster.make(topic, cleanup_policy="compact")
    cluster.send(topic, texts(1), key=b"k")

    with pytest.raises(BatchDataError, match=r"is compacted.*kind='opaque'"):
        coordinator_of(numbers(cluster, topic)).is_ready()
    opaque = numbers(cluster, topic, kind="opaque")
    assert rows_of(opaque, planned(coordinator_of(opaque))) == [("1", 0)]


def test_the_first_batch_begins_where_it_is_told(cluster: Cluster, topic: str) -> None:
    """At the end as it is when the first batch is planned, at a time, at given offsets; a partition that is new later
    is read whole.
    """
    cluster.make(topic)
    now = datetime.datetime.now(datetime.UTC)
    cluster.send(topic, texts(0, 1), timestamp=int(now.timestamp() * 1000) - 5000)
    cluster.send(topic, texts(2))
    latest, timed = numbers(cluster, topic, start="latest"), numbers(cluster, topic, start=now)
    given, wrong = numbers(cluster, topic, start={0: 1}), numbers(cluster, topic, start={0: 4})

    matching = numbers(cluster, re.compile(f"{topic[:-1]}[{topic[-1]}]"))
    assert rows_of(matching, planned(coordinator_of(matching))) == [("0", 0), ("1", 1), ("2", 2)]
    coordinator = coordinator_of(latest)
    first = planned(coordinator)
    assert spans(first) == {f"{topic}/0": (3, 3)}
    assert rows_of(latest, first) == []
    assert rows_of(timed, planned(coordinator_of(timed))) == [("2", 2)]
    assert rows_of(given, planned(coordinator_of(given))) == [("1", 1), ("2", 2)]
    with pytest.raises(BatchDataError, match=r"the offset to start from, 4, .* which has 0 to 3"):
        coordinator_of(wrong).is_ready()
    with pytest.raises(BatchDataError, match="has 1 partitions, and start names partition 1"):
        coordinator_of(numbers(cluster, topic, start={0: 1, 1: 0})).is_ready()

    from confluent_kafka.cimpl import NewPartitions

    cluster.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    cluster.send(topic, texts(8), partition=1)
    cluster.send(topic, texts(3))
    assert rows_of(latest, planned(coordinator, first, 2)) == [("3", 3), ("8", 0)]


def test_a_consumer_group_has_the_offsets_of_committed_batches(cluster: Cluster, topic: str) -> None:
    """Not of planned ones; a redo of an earlier batch does not set them back."""
    cluster.make(topic, 2)
    cluster.send(topic, texts(1, 2, 3))
    cluster.send(topic, texts(4), 1)
    coordinator = coordinator_of(numbers(cluster, topic, group_id=f"g-{topic}", max_records=2))
    first = planned(coordinator)
    second = planned(coordinator, first, 2)
    assert cluster.committed(f"g-{topic}") == {}
    listener = cast(Any, coordinator)
    for txid, batch in ((1, first), (2, second), (3, first)):
        listener.settled(txid, batch, "applied")
    coordinator.close()
    assert wait_until(lambda: cluster.committed(f"g-{topic}") == {f"{topic}/0": 3, f"{topic}/1": 1}, 30)


def orders(cluster: Cluster, topic: str, **settings: object) -> Topology:
    """Counts orders by shop."""
    builder = TopologyBuilder("orders")
    spout = KafkaSpout(topic, "shop string, pieces int", servers=cluster.servers, max_records=4, **settings)  # type: ignore[arg-type]
    builder.set_spout("messages", spout)
    committer = CountCommitter("order_totals", ["shop"], sums={"pieces": "pieces"})
    builder.set_committer_bolt("totals", committer).shuffle_grouping("messages")
    return builder.build()


def test_messages_are_counted_once_and_a_poison_one_is_a_rejected_row(
    cluster: Cluster, topic: str, audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several partitions and batches; the rejected message is kept with its topic, partition and offset."""
    for name in ("TXTOPO_KAFKA", "KAFKA_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    cluster.make(topic, 2)
    for partition in (0, 1):
        good = [b'{"shop": "%c", "pieces": %d}' % (65 + partition, number) for number in range(5)]
        cluster.send(topic, [*good, b"{poison" if partition else None], partition)

    assert run_batches(audited.dsn, orders(cluster, topic, rejected_max=1)) == 3

    assert select(audited.dsn, "select shop, count, pieces from order_totals order by shop") == [
        ("A", 5, 10),
        ("B", 5, 10),
    ]
    assert select(
        audited.dsn, "select path, line, unit, convert_from(raw, 'UTF8') from txtopo.rejected_row order by path"
    ) == [
        (f"{topic}/0", 5, "offset", ""),
        (f"{topic}/1", 5, "offset", "{poison"),
    ]
    _, report = audited.audit()
    assert report["verdict"] == "UNVERIFIED"
    assert "set KAFKA_CONFIG" in str(report)

    monkeypatch.setenv("TXTOPO_KAFKA", cluster.servers)
    code, report = audited.audit()
    assert (code, report["findings"]) == (0, [])
    assert report["verdict"] == "MATCH"
    audited.plant("update order_totals_contribution set count = count + 1 where txid = 1")
    code, report = audited.audit()
    assert code == 1
    assert "contributed" in str(findings(report))
    cluster.expire(topic, 1)
    _, report = audited.audit()
    assert "not all there any more" in str(findings(report, "UNVERIFIED"))


def test_the_example_of_the_page_counts(cluster: Cluster, audited: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/kafka.md: the spout finds the broker of `dev up --kafka`, and the table has the sums."""
    page = (DOCS / "kafka.md").read_text(encoding="utf-8")
    block, with_key, _ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("TXTOPO_KAFKA", cluster.servers)
    monkeypatch.delenv("KAFKA_CONFIG", raising=False)
    cluster.make("orders", 2)
    cluster.send("orders", [b'{"shop": "a", "price": 1.10}', b'{"shop": "b", "price": "2.25"}'])
    cluster.send("orders", [b'{"shop": "a", "price": 0.05}'], 1)
    names: dict[str, Topology] = {}
    exec(block, names)
    exec(with_key, dict(names))

    assert run_batches(audited.dsn, names["topology"]) == 1
    found = select(audited.dsn, "select shop, orders, turnover::text from orders_by_shop order by shop")
    assert found == [("a", 2, "1.15"), ("b", 1, "2.25")]


def test_no_secret_of_the_properties_file_leaves_it(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """Tasks, plans and descriptions have the path of the file alone; errors have none of its values."""
    canary = "canary-of-the-password"
    file = tmp_path / "kafka.properties"
    file.write_text(f"bootstrap.servers={cluster.servers}\nsasl.password={canary}\n")
    cluster.make(topic)
    cluster.send(topic, texts(1))
    spout = KafkaSpout(topic, NUMBERS, value="string", config=file, max_wait_s=0)
    batch = planned(coordinator_of(spout))

    assert rows_of(spout, batch) == [("1", 0)]
    assert canary.encode() not in pickle.dumps(spout)
    assert canary not in str(batch) + str(spout.describe()) + repr(spout.settings)


def test_tls_and_a_password_come_from_the_properties_file(
    cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Driver, task and audit log in with it; a wrong password or certificate is named, and once the file is
    right the same driver goes on.
    """
    server, canary = cluster.server, "canary-of-the-password"
    server.add_user(canary)
    make_certificates(tmp_path / "key.pem", tmp_path / "other.pem")
    good, wrong, other = (tmp_path / f"{name}.properties" for name in ("good", "wrong", "other"))
    good.write_text(server.properties(canary))
    wrong.write_text(server.properties(f"{canary}-wrong"))
    other.write_text(server.properties(canary, tmp_path / "other.pem"))
    cluster.make(topic)
    cluster.send(topic, texts(1, 2))

    monkeypatch.setattr(broker_errors, "REFUSED_S", 0.1)

    def fails(file: Path) -> str:
        return refusal_of(coordinator_of(numbers(cluster, topic, servers=None, config=file)))

    assert "certificate verify failed" in fails(other)
    assert "Authentication failed" in fails(wrong)
    assert canary not in fails(wrong)

    spout = numbers(cluster, topic, servers=None, config=wrong)
    coordinator = coordinator_of(spout)
    refusal_of(coordinator)
    wrong.write_text(server.properties(canary))
    assert wait_until(lambda: logs_in(coordinator), 30)  # The broker knows the user a moment after its answer.
    batch = planned(coordinator)
    assert rows_of(spout, batch) == [("1", 0), ("2", 1)]
    monkeypatch.setenv("KAFKA_CONFIG", str(good))
    reader = KafkaReader(batch["format"], parse_fields(batch["schema"]))
    (entry,) = batch["partitions"]
    assert [read.number for read in reader.read(f"{topic}/0", entry["range"])] == [0, 1]


def refusal_of(coordinator: SpoutCoordinator) -> str:
    """A look that ended before the broker had refused the login is repeated, as a driver does."""
    words: list[str] = []

    def is_refused() -> bool:
        try:
            coordinator.is_ready()
        except PermissionError as error:
            words.append(str(error))
        except TimeoutError:
            return False
        return bool(words)

    assert wait_until(is_refused, 120)
    return words[0]


def logs_in(coordinator: SpoutCoordinator) -> bool:
    try:
        return coordinator.is_ready()
    except (PermissionError, TimeoutError):
        return False
