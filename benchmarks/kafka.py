"""How fast a topic of Kafka is read, next to a bare consumer of the same messages, in one run.

    make bench-kafka                  # or: python -m benchmarks.kafka [THOUSAND_MESSAGES] [--case json,csv]

Starts a broker, sends the messages to one partition, and reads them as one batch. Prints messages a second and CPU
seconds per million messages, and writes build/bench_kafka.json. The bare consumer has the same settings; it counts what
it gets by one column and sums another one, with the standard library, Avro with fastavro: it promises nothing. Both
read in turn, some rounds; a ratio is the median of the ratios of the rounds, so that other work on the machine changes
it little. Only ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import csv
import functools
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from txtopo import KafkaSpout
from txtopo.core.plan import Metadata
from txtopo.formats import Avro, Csv
from txtopo.local.kafka import LocalKafka
from txtopo.spouts.kafka.client_settings import ClientSettings
from txtopo.spouts.kafka.consumers import KEPT
from txtopo.topology.components import SpoutContext, Tally

ROUNDS = 5
SHOPS = 50
FIELDS = "shop string, pieces int, price decimal(10,2), sold timestamp"
Totals = dict[str, tuple[int, int]]
"""Key -> number of messages, and the sum."""


def json_value(number: int) -> bytes:
    """Return an order as an object."""
    shop, pieces, price, sold = order(number)
    return f'{{"shop": "{shop}", "pieces": {pieces}, "price": {price}, "sold": "{sold}"}}'.encode()


def csv_value(number: int) -> bytes:
    """Return an order as a record."""
    return ",".join(map(str, order(number))).encode()


def avro_value(number: int) -> bytes:
    """Return an order as a record of Avro."""
    shop, pieces, price, _ = order(number)
    stream = io.BytesIO()
    cents = int(price.replace(".", "")).to_bytes(4, "big")
    record = {"shop": shop, "pieces": pieces, "price": cents, "sold": 1_704_067_205_000_000 + number}
    fastavro.schemaless_writer(stream, WRITTEN, record)
    return stream.getvalue()


def order(number: int) -> tuple[str, int, str, str]:
    """Return the fields of an order."""
    sold = f"2024-01-{number % 28 + 1:02} {number % 24:02}:00:05"
    return f"shop {number % SHOPS}", number % 1000, f"{number % 500}.{number % 100:02}", sold


def json_pair(value: bytes) -> tuple[str, int]:
    """Return key and number, as a bare program takes them."""
    found = json.loads(value)
    return found["shop"], found["pieces"]


def csv_pair(value: bytes) -> tuple[str, int]:
    """Return the same of a record."""
    found = next(csv.reader((value.decode(),)))
    return found[0], int(found[1])


def avro_pair(value: bytes) -> tuple[str, int]:
    """Return the same of a record of Avro."""
    found: Any = fastavro.schemaless_reader(io.BytesIO(value), WRITTEN, None)
    return found["shop"], found["pieces"]


def avro_schema(**logical: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of orders; `logical` has types in place of those of the bytes."""
    kinds = {"shop": "string", "pieces": "int", "price": "bytes", "sold": "long"}
    fields = [{"name": name, "type": logical.get(name, kind)} for name, kind in kinds.items()]
    return {"type": "record", "name": "order", "fields": fields}


WRITTEN: Any = fastavro.parse_schema(avro_schema())
READ = avro_schema(
    price={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    sold={"type": "long", "logicalType": "timestamp-micros"},
)
CASES: dict[str, tuple[Callable[[int], bytes], dict[str, Any], Callable[[bytes], tuple[str, int]] | None]] = {
    "bytes": (json_value, {"fields": "value binary, _offset bigint", "value": "bytes"}, None),
    "json": (json_value, {"fields": FIELDS}, json_pair),
    "csv": (csv_value, {"fields": FIELDS, "value": Csv(header=False)}, csv_pair),
    "avro": (avro_value, {"fields": FIELDS, "value": Avro(READ)}, avro_pair),
}
"""Name -> the value of a message, settings of the spout, and how a bare consumer reads a value; None: not at all."""


def main(arguments: Sequence[str]) -> None:
    """Fill the topics, then go through all cases some times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka", allow_abbrev=False)
    parser.add_argument("thousands", nargs="?", type=float, default=600.0, help="thousand messages (default: 600)")
    parser.add_argument("--case", help=f"names, separated by commas, of {', '.join(CASES)}")
    asked = parser.parse_args(arguments)
    names = list(CASES) if asked.case is None else asked.case.split(",")
    if unknown := sorted({*names} - {*CASES}):
        parser.error(f"there is no case {', '.join(unknown)}")
    count = int(asked.thousands * 1000)
    with tempfile.TemporaryDirectory(prefix="txtopo_bench_") as folder:
        broker = LocalKafka(Path(folder) / "kafka").start()
        try:
            for name in names:
                fill(broker.servers, name, count)
            found = measured(broker.servers, names, count)
        finally:
            broker.stop()
    tell(found, count)


def fill(servers: str, name: str, count: int) -> None:
    """Make the topic of a case."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 50})
    for number in range(count):
        producer.produce(name, CASES[name][0](number))
        if not number % 10_000:
            producer.flush(60)
    if producer.flush(120):
        raise RuntimeError("the broker did not confirm all messages")


def measured(servers: str, names: Sequence[str], count: int) -> list[dict[str, Any]]:
    """Return the figures of each case: the best of all rounds, and the median of their ratios."""
    taken: dict[tuple[str, str, str], list[float]] = {}
    for number in range(ROUNDS):
        for name in names:
            planned(servers, name, count)
            KEPT.close()
            expected: list[object] = []
            for what, read in (("bare", read_bare), ("txtopo", read_txtopo)):
                began, cpu = time.perf_counter(), time.process_time()
                expected.append(read(servers, name, count))
                figures = {"wall": time.perf_counter() - began, "cpu": time.process_time() - cpu}
                for unit, seconds in figures.items():
                    taken.setdefault((name, what, unit), []).append(seconds)
            if expected[0] != expected[1]:
                raise RuntimeError(f"{name}: the messages are counted differently")
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
    return [
        {
            "case": name,
            **{f"{what}_per_s": round(count / min(taken[name, what, "wall"])) for what in ("txtopo", "bare")},
            **{f"{what}_cpu_s": round(min(taken[name, what, "cpu"]) * 1e6 / count, 3) for what in ("txtopo", "bare")},
            **{f"{unit}_ratio": ratio(taken[name, "bare", unit], taken[name, "txtopo", unit]) for unit in UNITS},
        }
        for name in names
    ]


UNITS = ("wall", "cpu")


def ratio(bare: Sequence[float], own: Sequence[float]) -> float:
    """Return the median of the ratios of the rounds."""
    return round(statistics.median(one / other for one, other in zip(bare, own, strict=True)), 3)


def read_bare(servers: str, name: str, count: int) -> Totals:
    """Read all messages with a consumer, and count those of the cases with columns."""
    pair = CASES[name][2]
    settings = {**ClientSettings(servers=servers).read(), "group.id": "bench", "check.crcs": True}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(name, 0, 0)])
    totals: Totals = {}
    seen = 0
    while seen < count:
        messages = consumer.consume(min(5_000, count - seen), 30)
        if not messages or any(message.error() for message in messages):
            raise RuntimeError("the broker gives no messages")
        seen += len(messages)
        for message in messages:
            value = message.value()
            if pair is not None and value is not None:
                key, number = pair(value)
                rows, total = totals.get(key, (0, 0))
                totals[key] = (rows + 1, total + number)
    consumer.close()
    return totals


@functools.cache
def planned(servers: str, name: str, count: int) -> tuple[KafkaSpout, Metadata]:
    """Return the spout of a case, and the plan of one batch of all messages."""
    spout = KafkaSpout(name, servers=servers, max_records=count, max_wait_s=0, **CASES[name][1])
    coordinator = spout.open_coordinator(
        SpoutContext(topology="bench", spout="s", consumed={}, once=True, monotonic=time.monotonic, say=print)
    )
    if not coordinator.is_ready():
        raise RuntimeError("nothing waits")
    return spout, coordinator.initialize_transaction(1, None)


def read_txtopo(servers: str, name: str, count: int) -> Totals:
    """Read the batch as a task does, with a new client, and count its rows."""
    spout, metadata = planned(servers, name, count)
    totals: Totals = {}
    seen = 0
    for part in spout.parts(metadata):
        for batch in spout.emit_part(metadata, part, Tally()):
            seen += batch.num_rows
            if CASES[name][2] is not None:
                add(totals, batch)
    if seen != count:
        raise RuntimeError(f"{seen} of {count} messages")
    return totals


def add(totals: Totals, batch: Any) -> None:
    """Add the rows of a record batch."""
    import pyarrow as pa

    grouped = pa.Table.from_batches([batch]).group_by("shop").aggregate([("pieces", "sum"), ("pieces", "count")])
    for row in grouped.to_pylist():
        rows, total = totals.get(row["shop"], (0, 0))
        totals[row["shop"]] = (rows + row["pieces_count"], total + row["pieces_sum"])


def tell(found: Sequence[dict[str, Any]], count: int) -> None:
    """Print and keep the figures."""
    print(f"{count / 1e6:.1f} M messages, one batch of one partition; best of {ROUNDS}, ratios: median")
    print(f"{'value':<8}{'M/s':>8}{'bare':>8}{'ratio':>8}{'CPU s/M':>10}{'bare':>8}{'ratio':>8}")
    for row in found:
        rates = f"{row['txtopo_per_s'] / 1e6:>8.2f}{row['bare_per_s'] / 1e6:>8.2f}{row['wall_ratio']:>8.2f}"
        print(f"{row['case']:<8}{rates}{row['txtopo_cpu_s']:>10.2f}{row['bare_cpu_s']:>8.2f}{row['cpu_ratio']:>8.2f}")
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    (folder / "bench_kafka.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
