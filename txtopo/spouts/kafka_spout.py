"""KafkaSpout: messages of Kafka topics, exactly once; a batch is a range of offsets of each partition."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import KAFKA_RECORDS_PER_BATCH, KAFKA_WAIT_S, REJECTED_MAX
from txtopo.core.plan import Metadata
from txtopo.errors import TopologyError
from txtopo.spouts.formats.csv.csv_format import Csv
from txtopo.spouts.formats.json_format import Json
from txtopo.spouts.kafka.avro_format import Avro
from txtopo.spouts.kafka.client_settings import ClientSettings, client_settings
from txtopo.spouts.kafka.message_fields import check_envelope, key_layout, layout_of, value_fields
from txtopo.spouts.partitioned import NamedCoordinator
from txtopo.spouts.range_spout import Block, RangeSpout, unknown_layout
from txtopo.topology.components import SpoutContext

if TYPE_CHECKING:
    from txtopo.spouts.kafka.messages import MessageLike

_GROUP = re.compile(r"[!-~]{1,255}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
KIND = "kafka"
"""The kind of the layout in plans."""
WAIT_S_MAX = 3600.0
MESSAGE_BYTES = 512
"""Guess at the size of a message, to limit how many batches share a wave."""


class KafkaSpout(RangeSpout):
    """Reads Kafka topics with the extra `txtopo[kafka]`. Offsets are kept in the plans of batches, not in Kafka.

    >>> KafkaSpout("orders", "id bigint, price decimal(10,2)", servers="127.0.0.1:9092").fields.names
    ('id', 'price')
    """

    described_as = "kafka"
    unit = "offset"
    wants_settled = True

    def __init__(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        fields: str | Fields,
        *,
        config: str | os.PathLike[str] | None = None,
        servers: str | None = None,
        value: Literal["json", "string", "bytes", "csv"] | Json | Csv | Avro = "json",
        key: Literal["json", "string", "bytes", "csv"] | Json | Csv | Avro | None = None,
        key_fields: Sequence[str] = (),
        start: Literal["earliest", "latest"] | datetime.datetime | Mapping[int, int] = "earliest",
        kind: Literal["transactional", "opaque"] = "transactional",
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        max_records: int = KAFKA_RECORDS_PER_BATCH,
        max_wait_s: float = KAFKA_WAIT_S,
        max_bytes: int | None = None,
        group_id: str | None = None,
        rejected_max: float = REJECTED_MAX,
    ) -> None:
        """`topics` are names, or a pattern for whole names. `fields` are those of the values, except the ones named in
        `key_fields`, which stand in the keys; `_key`, `_offset`, `_partition`, `_timestamp`, `_topic` and `_headers`
        stand around them.

        `config` is a properties file of the client (`bootstrap.servers=…`, TLS, passwords) with the same path on every
        host; each process reads it for itself, and nothing of it is in a plan. `servers` is short for a file with
        `bootstrap.servers` alone. `value` says what a value is: an object of JSON, one record of CSV or Avro, UTF-8
        text or bytes; `key` says it of a key. `start` is
        where the first batch begins in partitions that are there then; all others are read from their first offset. A
        batch has at most `max_records` offsets, and one that is not full waits for more up to `max_wait_s` seconds.
        An attempt fails if the values that it reads of a partition have more than `max_bytes` bytes (None: any number;
        a task has a few tens of MB of them in memory at a time). `kind="opaque"` is for compacted topics, and continues
        where offsets have expired. A batch fails if more than the share `rejected_max` (0 to 1) of its messages is
        rejected. Offsets are also committed to the consumer group `group_id`, after the commit of their batch, for
        tools that watch groups; nothing is read by them.

        Raises TopologyError for an invalid value.
        """
        self.pattern: str | None = _pattern(topics)
        self.topics: tuple[str, ...] = () if isinstance(topics, re.Pattern) else _topics(topics)
        self.fields = parse_fields(fields)
        self.settings: ClientSettings = client_settings(servers, config)
        check_envelope(self.fields)
        self._key = key_layout(key, key_fields, self.fields)
        self._value = layout_of("value", value, value_fields(self.fields, self._key))
        if kind not in ("transactional", "opaque"):
            raise TopologyError(f"KafkaSpout: kind {kind!r} is neither 'transactional' nor 'opaque'")
        self.kind = kind
        self.start = _start(start, kind, self.topics)
        if isolation not in ("read_committed", "read_uncommitted"):
            raise TopologyError(
                f"KafkaSpout: isolation {isolation!r} is neither 'read_committed' nor 'read_uncommitted'"
            )
        self.isolation = isolation
        if isinstance(max_records, bool) or not isinstance(max_records, int) or max_records < 1:
            raise TopologyError(f"KafkaSpout: max_records {max_records!r} is not a whole number of 1 or more")
        self.max_records: int = max_records
        self.max_wait_s: float = _number("max_wait_s", max_wait_s, WAIT_S_MAX)
        if max_bytes is not None and (isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1):
            raise TopologyError(f"KafkaSpout: max_bytes {max_bytes!r} is not a whole number of 1 or more")
        self.max_bytes: int | None = max_bytes
        if group_id is not None and (not isinstance(group_id, str) or not _GROUP.fullmatch(group_id)):
            raise TopologyError(f"KafkaSpout: group_id {group_id!r} is no name of a consumer group")
        self.group_id: str | None = group_id
        self.rejected_max = _number("rejected_max", rejected_max, 1.0)

    def get_coordinator(self, config: Mapping[str, Any], context: SpoutContext) -> NamedCoordinator:
        """Return the coordinator half. Raises ConfigurationError for wrong settings of the client."""
        from txtopo.spouts.kafka.kafka_coordinator import KafkaCoordinator, KafkaCuts

        cuts = KafkaCuts(
            topics=self.topics,
            pattern=self.pattern,
            settings=self.settings,
            start=_millis(self.start) if isinstance(self.start, datetime.datetime) else self.start,
            isolation=self.isolation,
            records_max=self.max_records,
            wait_s_max=self.max_wait_s,
            opaque=self.kind == "opaque",
            group_id=self.group_id,
        )
        return KafkaCoordinator(cuts, once=context.once, monotonic=context.monotonic, say=context.say)

    def layout(self) -> Mapping[str, Any]:
        """Return what reading depends on, for the plan."""
        key = {} if self._key is None else {"key": self._key}
        return {"kind": KIND, "value": self._value, "isolation": self.isolation, **key}

    def blocks(self, metadata: Metadata, part: Mapping[str, Any], name: str, planned: Any) -> Iterator[Block]:
        """Yield the messages of a range. Raises BatchDataError if they are not all there."""
        from txtopo.spouts.kafka.messages import MessageRows
        from txtopo.spouts.kafka.reading import Asked, read_range

        layout = metadata["format"]
        try:
            if set(layout) - {"key"} != {"kind", "value", "isolation"}:
                raise ValueError("other entries")
            rows = MessageRows(name, parse_fields(metadata["schema"]), layout["value"], layout.get("key"))
        except (KeyError, TypeError, ValueError) as error:
            raise unknown_layout(layout) from error
        asked = Asked(isolation=layout["isolation"], bytes_max=self.max_bytes, may_be_compacted=self.kind == "opaque")
        for messages in read_range(self.settings, name, planned, asked):
            emitted, kept = rows.emit(messages)
            yield Block(emitted=emitted, record=partial(_record, kept))

    def bytes_of(self, partition: Any, metadata: Any) -> int:
        return (int(metadata["end"]) - int(metadata["start"])) * MESSAGE_BYTES

    def warm_up(self) -> None:
        import txtopo.spouts.kafka.messages
        import txtopo.spouts.kafka.reading  # noqa: F401

    def describe(self) -> Mapping[str, Any]:
        """Return a description; where the brokers are is no part of it."""
        start = self.start
        return {
            "kind": KIND,
            "topics": list(self.topics) if self.pattern is None else {"pattern": self.pattern},
            "fields": self.fields.ddl,
            "value": self._value,
            **({} if self._key is None else {"key": self._key}),
            "start": start.isoformat()
            if isinstance(start, datetime.datetime)
            else start
            if isinstance(start, str)
            else {str(number): offset for number, offset in start.items()},
            "promise": self.kind,
            "isolation": self.isolation,
            "max_records": self.max_records,
            "max_wait_s": self.max_wait_s,
            "max_bytes": self.max_bytes,
            "group_id": self.group_id,
            "rejected_max": self.rejected_max,
        }


def _topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    found = (topics,) if isinstance(topics, str) else tuple(topics) if isinstance(topics, list | tuple) else ()
    for topic in found:
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise TopologyError(f"KafkaSpout: {topic!r} is no name of a topic")
    if not found or len(set(found)) < len(found):
        raise TopologyError(f"KafkaSpout: topics {topics!r} is no list of different names")
    return found


def _pattern(topics: object) -> str | None:
    if not isinstance(topics, re.Pattern):
        return None
    pattern: object = topics.pattern
    if not isinstance(pattern, str) or topics.flags != re.compile(pattern).flags:
        raise TopologyError(f"KafkaSpout: {topics!r} is of bytes or has flags: write flags into it, as in '(?i)orders'")
    return pattern


def _start(start: Any, kind: str, topics: Sequence[str]) -> str | datetime.datetime | Mapping[int, int]:
    match start:
        case "earliest":
            return "earliest"
        case "latest":
            if kind == "opaque":
                raise TopologyError(
                    "KafkaSpout: start='latest' with kind='opaque' would move whenever the first batch is planned "
                    "again: give a time"
                )
            return "latest"
        case datetime.datetime():
            if start.tzinfo is None:
                raise TopologyError(f"KafkaSpout: start {start!r} has no time zone")
            if start < _EPOCH:
                raise TopologyError(
                    f"KafkaSpout: start {start!r} is before 1970, where Kafka has no time: say 'earliest'"
                )
            return start
        case Mapping():
            wrong = [pair for pair in start.items() if not all(type(one) is int and one >= 0 for one in pair)]
            if len(topics) != 1 or not start or wrong:
                raise TopologyError(f"KafkaSpout: start {start!r} is not {{partition: offset}} of one topic")
            return dict(start)
    raise TopologyError(
        f"KafkaSpout: start {start!r} is none of 'earliest', 'latest', a time with its zone, {{partition: offset}}"
    )


def _millis(start: datetime.datetime) -> int:
    """Return the first millisecond since 1970 that is not before a time."""
    return -((_EPOCH - start) // datetime.timedelta(milliseconds=1))


def _number(name: str, value: Any, largest: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest or value != value:
        raise TopologyError(f"KafkaSpout: {name} {value!r} is not a number from 0 to {largest:g}")
    return float(value)


def _record(messages: Sequence[MessageLike], at: int) -> tuple[int, bytes]:
    return int(messages[at].offset() or 0), messages[at].value() or b""
