"""The demo of Kafka from start to end: a driver is killed, an order that nobody expected halts the next one, the bug is
fixed, `txtopo retry`, and the last driver reads on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from txtopo.audit.run_audit import Range, audit
from txtopo.demo.halting import HaltingDemo
from txtopo.demo.orders.order_messages import (
    AT_FIRST,
    IN_ALL,
    PARTITIONS,
    RECORDS,
    TOPIC,
    WITHOUT_ARTICLE,
    count_orders,
    messages,
)
from txtopo.demo.report import Outcome, TotalNames, differences, report
from txtopo.demo.stage import DemoError, Program, Stage, perform
from txtopo.errors import ConfigurationError
from txtopo.reports.read import reading

TOPOLOGY = "shop"
TABLE = "orders_by_kind"
BUG = '        kind = tup["article"].split("-")[0]'
FIX = '        kind = (tup["article"] or "-").split("-")[0] or "-"'
KILLED_AFTER = 4
"""The first driver is killed after COMMIT of this batch."""
SENT_S = 60.0
"""Seconds in which the broker must confirm the messages."""


def run_orders(*, keep: bool = False, quiet: bool = False) -> int:
    """`txtopo demo kafka`; returns the exit code: 0 if all totals agree and the ledger is right, 1 if not, 130 or 143
    if interrupted. Raises ConfigurationError without a client of Kafka, or if a broker cannot be downloaded.
    """
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise ConfigurationError("no client of Kafka is installed: pip install 'txtopo[kafka]'") from None

    def play(stage: Stage) -> tuple[str, Sequence[str]]:
        outcome = OrdersDemo(stage).play()
        return report(outcome), differences(outcome)

    program = Program(application="shop.py:topology", topology=TOPOLOGY, run_txids_max=1)
    return perform(play, program, keep=keep, quiet=quiet)


class OrdersDemo(HaltingDemo):
    """One run of the story."""

    def __init__(self, stage: Stage) -> None:
        program = Path(__file__).with_name("shop.py")
        super().__init__(stage, program, batches=AT_FIRST // RECORDS, bug=BUG, fix=FIX)
        self._properties = stage.places.work / "kafka.properties"
        self._servers = ""

    def play(self) -> Outcome:
        """Run all steps; returns what the report needs."""
        self._prepare()
        self._run_until_killed()
        self._run_until_halted(WITHOUT_ARTICLE // RECORDS)
        self._batches = IN_ALL // RECORDS
        self._teller.say(f"meanwhile {IN_ALL - AT_FIRST:,} more messages arrive")
        self._send(range(AT_FIRST, IN_ALL))
        self._fix()
        self._order_retry()
        self._run_to_the_end()
        return self._compare()

    def _prepare(self) -> None:
        stage = self._stage
        self._teller.say("starting Postgres, ZooKeeper and a Kafka broker")
        self._copy_program()
        with ThreadPoolExecutor(2) as threads:
            stores, broker = threads.submit(stage.open), threads.submit(stage.services.kafka.start)
            broker.result()
            stores.result()
        self._servers = stage.services.kafka.servers
        self._properties.write_text(f"bootstrap.servers={self._servers}\n", encoding="utf-8")
        stage.stop.check()
        self._make_topic()
        self._send(range(AT_FIRST))
        self._teller.say(
            f"{AT_FIRST:,} messages in {PARTITIONS} partitions of topic {TOPIC}; {RECORDS:,} offsets are a batch"
        )

    def _make_topic(self) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SENT_S)

    def _send(self, numbers: range) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._servers, "acks": "all", "log_level": 0})
        for partition, value in messages(numbers):
            producer.produce(TOPIC, value, partition=partition)
        if producer.flush(SENT_S):
            raise DemoError(f"the broker did not confirm all messages in {SENT_S:.0f} s")

    def _run_until_killed(self) -> None:
        driver = self._run(failpoints=f"committed=exit@{KILLED_AFTER}")
        committed = self._stage.watcher.standing().committed
        if driver.exit_code != -signal.SIGKILL or committed != KILLED_AFTER:
            raise DemoError(
                f"{driver.name} ended with exit code {driver.exit_code} after batch {committed}:{driver.tail()}"
            )
        driver.bury()
        self._teller.say(f"kill -9 of {driver.name} after COMMIT of batch {committed}; no offset is lost or read twice")

    def _compare(self) -> Outcome:
        stage = self._stage
        self._teller.say("counting all messages again with plain json")
        recounted, rejected = count_orders(range(IN_ALL))
        self._teller.say("txtopo audit")
        with reading(stage.dsn) as connection, _finding_kafka(self._properties):
            audited = audit(connection, TOPOLOGY, Range(), recount=True, say=lambda _: stage.stop.check())
        names = TotalNames(
            keys=("shop", "kind"),
            rows="orders",
            amount="pieces",
            by="json",
            batch=f"{RECORDS:,} offsets each",
            rejected="messages, each kept with its partition and offset",
        )
        return Outcome(
            totals=stage.watcher.totals(TABLE, ("shop", "kind"), ("orders", "pieces")),
            recounted=recounted,
            rejected=rejected,
            columns=names,
            ledger=stage.watcher.ledger(),
            batches=self._batches,
            takeovers=self._takeovers,
            drivers=len(stage.drivers),
            seconds=self._teller.elapsed_s,
            audited=audited,
        )


@contextmanager
def _finding_kafka(properties: Path) -> Iterator[None]:
    """The audit finds the brokers by a variable."""
    before = os.environ.get("KAFKA_CONFIG")
    os.environ["KAFKA_CONFIG"] = str(properties)
    try:
        yield
    finally:
        if before is None:
            del os.environ["KAFKA_CONFIG"]
        else:
            os.environ["KAFKA_CONFIG"] = before
