"""Reads ranges of Kafka offsets for the audit, message by message."""

from __future__ import annotations

import base64
import datetime
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from txtopo.audit.readers.avro_reader import AvroReader
from txtopo.audit.readers.csv_reader import CsvReader
from txtopo.audit.readers.json_reader import JsonReader
from txtopo.audit.readers.reader import Read, check_known
from txtopo.audit.readers.text_values import Cell, cell_of
from txtopo.core.fields import Field, Fields
from txtopo.core.positions import Unit

SILENCE_S = 60.0
"""Seconds without a message or a new position after which a range counts as unreadable."""
_AROUND = ("_headers", "_key", "_offset", "_partition", "_timestamp", "_topic")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_YEARS_MS = (-62_135_596_800_000, 253_402_300_799_999)


class NoRangeError(Exception):
    """A range cannot be read, so nothing is known of it; the message says why."""


class RangeReader(ABC):
    """Reads the ranges of one batch of a source with named partitions, as their plan says."""

    kind: ClassVar[str]
    """The `kind` of the layout in plans."""
    unit: ClassVar[Unit]
    """What the numbers of its records count."""

    @abstractmethod
    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        """Create it for a planned layout and the planned fields. Raises KeyError, TypeError or ValueError for a layout
        that it does not know completely.
        """

    @abstractmethod
    def read(self, name: str, planned: Mapping[str, Any]) -> Iterator[Read]:
        """Yield the records of a range in the order of their numbers. Raises NoRangeError."""


class KafkaReader(RangeReader):
    """Reads with a separate client; what it decodes is decoded by the same library as in tasks."""

    kind = "kafka"
    unit = "offset"

    def __init__(self, layout: Mapping[str, Any], fields: Fields) -> None:
        check_known(layout, "kind", "value", "key", "isolation")
        self._isolation = str(layout["isolation"])
        self._fields = fields
        key = dict(layout.get("key") or {"kind": "bytes", "fields": []})
        in_key = key.pop("fields")
        self._key = _inner(key, Fields(tuple(field for field in fields.items if field.name in in_key)))
        others = {*_AROUND, *in_key}
        self._value = _inner(
            layout["value"], Fields(tuple(field for field in fields.items if field.name not in others))
        )

    def read(self, name: str, planned: Mapping[str, Any]) -> Iterator[Read]:
        topic, _, number = name.rpartition("/")
        _check_topic(topic, planned)
        if planned["start"] < planned["end"]:
            for message in _messages(topic, int(number), planned, self._isolation):
                yield self._judged(topic, int(number), message)
        _check_topic(topic, planned)

    def _judged(self, topic: str, number: int, message: Any) -> Read:
        offset, raw = int(message.offset()), message.value() or b""
        values: dict[str, Any] = {}
        inner: list[Read] = []
        try:
            for field in self._fields.items:
                if field.name in _AROUND:
                    values[field.name] = self._around(field, topic, number, message)
        except (ValueError, OverflowError) as error:
            return Read(offset, (), str(error), raw)
        for part, text in ((self._key, message.key()), (self._value, message.value())):
            if not part.fields.items:
                continue
            if text is None and (part is self._value and part.judged is not None):
                return Read(offset, (), "no value", raw)
            found = part.read(offset, text)
            inner.append(found)
            if found.reason is not None:
                return _MessageRead(offset, (), found.reason, raw, inner)
            values |= zip(part.fields.names, found.values, strict=True)
        return _MessageRead(offset, [values[name] for name in self._fields.names], None, raw, inner)

    def _around(self, field: Field, topic: str, number: int, message: Any) -> Any:
        match field.name:
            case "_offset":
                return int(message.offset())
            case "_partition":
                return number
            case "_topic":
                return topic
            case "_key":
                return _cell(field, message.key())
            case "_headers":
                try:
                    headers = message.headers()
                except (SystemError, UnicodeDecodeError):
                    raise ValueError("the name of a header is no UTF-8") from None
                pairs = [[name, _shown(value)] for name, value in headers or []]
                return json.dumps(pairs, ensure_ascii=False)
            case _:
                return _time(field, *message.timestamp())


@dataclass(frozen=True, slots=True)
class _Inner:
    """How the values or keys of messages are read."""

    fields: Fields
    judged: Callable[[int, bytes], Read] | None
    """None: the text is the value of its only field."""

    def read(self, offset: int, text: bytes | None) -> Read:
        """Return the values of a text; without one, all are NULL."""
        if text is not None and self.judged is not None:
            return self.judged(offset, text)
        try:
            return Read(offset, [_cell(field, text) for field in self.fields.items], None, text or b"")
        except (ValueError, OverflowError) as error:
            return Read(offset, (), str(error), text or b"")


def _inner(layout: Mapping[str, Any], fields: Fields) -> _Inner:
    """Return the reader of a layout. Raises KeyError or ValueError for one that is not known completely."""
    settings = dict(layout)
    kind = settings.pop("kind")
    if kind == "json":
        check_known(settings, "paths")
        return _Inner(fields, JsonReader(settings, fields).judged if fields.items else None)
    if kind == "csv":
        return _Inner(fields, CsvReader(settings, fields).judged if fields.items else None)
    if kind == "avro":
        return _Inner(fields, AvroReader(settings, fields).judged if fields.items else None)
    if kind not in ("string", "bytes"):
        raise ValueError(f"texts of format {kind!r}")
    check_known(settings)
    return _Inner(fields, None)


def _cell(field: Field, text: bytes | None) -> Any:
    """Return the value of a text of the type string or binary. Raises ValueError."""
    if text is not None:
        return _text_cell(field)(text, False)
    if not field.nullable:
        raise ValueError(f"{field.name} is NULL")
    return None


@lru_cache(maxsize=64)
def _text_cell(field: Field) -> Cell:
    return cell_of(field, ())


@dataclass(slots=True)
class _MessageRead(Read):
    inner: Sequence[Read]

    def is_doubtful(self) -> bool:
        """Return True if the key or the value of the message is; of one that does not parse, the part that does not."""
        if self.reason is not None:
            return bool(self.inner) and self.inner[-1].is_doubtful()
        return any(one.is_doubtful() for one in self.inner)


def _time(field: Field, kind: int, millis: int) -> datetime.datetime | None:
    if kind != 0 and millis != -1:
        if not _YEARS_MS[0] <= millis <= _YEARS_MS[1]:
            raise ValueError("a time in none of the years 1 to 9999")
        return _EPOCH + datetime.timedelta(milliseconds=millis)
    if not field.nullable:
        raise ValueError(f"{field.name} is NULL")
    return None


def _shown(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _settings() -> dict[str, Any]:
    """Return the settings of the client: of the file that KAFKA_CONFIG names, else the address in TXTOPO_KAFKA."""
    file = os.environ.get("KAFKA_CONFIG")
    if not file:
        if not os.environ.get("TXTOPO_KAFKA"):
            raise NoRangeError("where Kafka is, is not known here: set KAFKA_CONFIG to the properties file")
        return {"bootstrap.servers": os.environ["TXTOPO_KAFKA"], "log_level": 2}
    try:
        lines = [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise NoRangeError(f"{file} cannot be read") from error
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#") and "=" in line]
    return {"log_level": 2} | {name.strip(): value.strip() for name, value in pairs}


def _check_topic(topic: str, planned: Mapping[str, Any]) -> None:
    """Raise NoRangeError unless the topic is the one of the plan."""
    try:
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
    except ImportError:
        raise NoRangeError("no client of Kafka is installed: pip install 'txtopo[kafka]'") from None
    try:
        admin = AdminClient(_settings())
        resource = ConfigResource(ResourceType.TOPIC, topic)
        policy = admin.describe_configs([resource], request_timeout=SILENCE_S)[resource].result(SILENCE_S + 10)
        if "compact" in policy["cleanup.policy"].value:
            raise NoRangeError(f"topic {topic} is compacted, so messages may have been removed since")
        found = admin.describe_topics(TopicCollection([topic]), request_timeout=SILENCE_S)[topic].result(SILENCE_S + 10)
    except KafkaException as error:
        raise NoRangeError(f"topic {topic} cannot be read ({error.args[0].str()})") from error
    if str(found.topic_id) != planned["topic_id"]:
        raise NoRangeError(f"topic {topic} was deleted and made again")


def _messages(topic: str, number: int, planned: Mapping[str, Any], isolation: str) -> Iterator[Any]:
    """Yield the messages of a range. Raises NoRangeError unless its end is proved."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    start, end = int(planned["start"]), int(planned["end"])
    place, owned = TopicPartition(topic, number, start), {"isolation.level": isolation, "enable.partition.eof": True}
    fixed = {"group.id": "txtopo", "enable.auto.commit": False, "auto.offset.reset": "error", "check.crcs": True}
    try:
        consumer = Consumer({**_settings(), **owned, **fixed})
    except KafkaException as error:
        raise NoRangeError("the client of Kafka refuses its settings") from error
    try:
        consumer.assign([place])
        reached, heard = start, time.monotonic()
        while True:
            message = consumer.poll(0.5)
            if message is None:
                position = consumer.position([place])[0].offset
                if position >= end:
                    return
                if position > reached:
                    reached, heard = position, time.monotonic()
            elif message.error() is None:
                if message.offset() >= end:
                    return
                yield message
                reached, heard = message.offset() + 1, time.monotonic()
            elif message.error().code() == KafkaError._PARTITION_EOF:
                if message.offset() >= end:
                    return
            elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                raise NoRangeError(f"offsets {start} to {end - 1} of {topic}/{number} are not all there any more")
            if time.monotonic() - heard > SILENCE_S:
                raise NoRangeError(f"Kafka gave nothing of {topic}/{number} for {SILENCE_S:.0f} s")
    except KafkaException as error:
        raise NoRangeError(f"{topic}/{number} cannot be read ({error.args[0].str()})") from error
    finally:
        consumer.close()
