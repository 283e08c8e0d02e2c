"""Messages of a partition as rows of the declared fields, or with a reason why a message has none."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import Any, Protocol

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.values import RejectedRow
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.spouts.formats.format import Emitted
from txtopo.spouts.formats.lines.json_lines import JsonLines
from txtopo.spouts.formats.lines.line_pair import judged
from txtopo.spouts.formats.lines.typed_texts import sifted_batch, whole_batch
from txtopo.spouts.kafka.message_fields import envelope_fields, value_fields
from txtopo.spouts.kafka.offset_ranges import partition_of_name

TOMBSTONE = "the message has no value (a tombstone)"
_KEY, _OFFSET, _TIMESTAMP, _VALUE = map(methodcaller, ("key", "offset", "timestamp", "value"))
NO_TIMESTAMP = 0
"""Kind of the timestamp of a message that has none."""
TIMES_MS = range(-62_135_596_800_000, 253_402_300_800_000)
"""Milliseconds of the years 1 to 9999. A producer may send any number."""


class MessageLike(Protocol):
    """What is read of a message."""

    def offset(self) -> int | None:
        """Return its offset."""

    def key(self) -> Any:
        """Return its key as bytes, None if it has none."""

    def value(self) -> Any:
        """Return its value as bytes, None for a tombstone."""

    def headers(self) -> Any:
        """Return its headers as pairs, None if it has none."""

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of its timestamp, and the milliseconds since 1970."""


class MessageRows:
    """Turns blocks of messages into rows. Depends on the planned fields and the planned layout alone."""

    def __init__(self, name: str, fields: Fields, value: Mapping[str, Any]) -> None:
        """`name` is the partition; `value` is the layout of the values, with its `kind`."""
        self._name = name
        self._fields = fields
        self._envelope = envelope_fields(fields)
        self._own = value_fields(fields)
        self._json = None
        if value["kind"] == "json" and self._own.items:
            paths = {field: tuple(path) for field, path in value["paths"].items()}
            self._json = JsonLines(self._own, paths)

    def emit(self, messages: Sequence[MessageLike]) -> tuple[Emitted, list[MessageLike]]:
        """Return rows and rejects of a block, and the messages of the rows."""
        refused: dict[int, str] = {}
        values = list(map(_VALUE, messages))
        if self._json is not None:
            refused = {at: TOMBSTONE for at, value in enumerate(values) if value is None}
        if self._envelope.get("_timestamp") is not None:
            refused.update(dict.fromkeys(_odd_times(messages), "the timestamp is in none of the years 1 to 9999"))
        kept = [message for at, message in enumerate(messages) if at not in refused] if refused else list(messages)
        envelope, wrong = _judged(self._envelope, self._columns(kept))
        self._add(refused, wrong, kept, messages)
        kept = _without(kept, wrong)
        if refused:
            values = list(map(_VALUE, kept))
        if self._json is None:
            own, wrong = _judged(self._own, [pa.array(values, pa.binary()) for _ in self._own.items])
        else:
            sifted = judged(self._json, values)
            own, wrong = sifted.batch, {at: _of_message(reason) for at, reason in sifted.refused.items()}
        self._add(refused, wrong, kept, messages)
        if wrong:
            good = pa.array([at for at in range(len(kept)) if at not in wrong], pa.int64())
            kept = _without(kept, wrong)
            envelope = envelope.take(good) if self._envelope.items else envelope
        rejects = [self._reject(messages[at], refused[at]) for at in sorted(refused)]
        columns = {**_by_name(envelope), **_by_name(own)}
        batch = pa.RecordBatch.from_arrays(
            [columns[field.name] for field in self._fields.items], schema=arrow_schema(self._fields)
        )
        return Emitted(batch=batch, rejects=rejects), kept

    def _columns(self, messages: Sequence[MessageLike]) -> list[pa.Array]:
        """Return the columns of the envelope: texts as binary, all others with their type."""
        topic, number = partition_of_name(self._name)
        size, found = len(messages), []
        for field in self._envelope.items:
            match field.name:
                case "_offset":
                    found.append(pa.array(list(map(_OFFSET, messages)), pa.int64()))
                case "_partition":
                    found.append(pa.repeat(pa.scalar(number, pa.int32()), size))
                case "_topic":
                    found.append(pa.repeat(pa.scalar(topic.encode(), pa.binary()), size))
                case "_timestamp":
                    found.append(_times(messages))
                case "_headers":
                    found.append(pa.array([_headers(message.headers()) for message in messages], pa.binary()))
                case _:
                    found.append(pa.array(list(map(_KEY, messages)), pa.binary()))
        return found

    @staticmethod
    def _add(
        refused: dict[int, str],
        wrong: Mapping[int, str],
        among: Sequence[MessageLike],
        messages: Sequence[MessageLike],
    ) -> None:
        """Enter reasons for messages of a selection under their places in the block."""
        if not wrong:
            return
        places = {message.offset(): at for at, message in enumerate(messages)}
        refused.update((places[among[at].offset()], reason) for at, reason in wrong.items())

    def _reject(self, message: MessageLike, reason: str) -> RejectedRow:
        raw = message.value() or b""
        return RejectedRow(
            path=self._name,
            line=int(message.offset() or 0),
            reason=reason,
            raw=raw[:REJECTED_RAW_BYTES_MAX],
            raw_bytes=len(raw),
            unit="offset",
        )


def _judged(fields: Fields, columns: Sequence[pa.Array]) -> tuple[pa.RecordBatch, dict[int, str]]:
    if not fields.items:
        return pa.RecordBatch.from_arrays([], schema=pa.schema([])), {}
    batch = whole_batch(fields, columns)
    return (batch, {}) if batch is not None else sifted_batch(fields, columns)


def _by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _without(messages: list[MessageLike], wrong: Mapping[int, str]) -> list[MessageLike]:
    return [message for at, message in enumerate(messages) if at not in wrong] if wrong else messages


def _of_message(reason: str) -> str:
    """Return the reason of a line for a value."""
    return f"the value{reason.removeprefix('the line')}" if reason.startswith("the line") else reason


def _odd_times(messages: Sequence[MessageLike]) -> list[int]:
    """Return the places of messages with a timestamp that is no time."""
    first, last = TIMES_MS[0], TIMES_MS[-1]
    stamps = enumerate(map(_TIMESTAMP, messages))
    return [at for at, (kind, millis) in stamps if not first <= millis <= last and kind != NO_TIMESTAMP]


def _times(messages: Sequence[MessageLike]) -> pa.Array:
    stamps = map(_TIMESTAMP, messages)
    millis = [None if kind == NO_TIMESTAMP else at for kind, at in stamps]
    return pa.array(millis, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


def _headers(headers: Sequence[tuple[str, Any]] | None) -> bytes:
    """Return headers as JSON text: a list of pairs; bytes that are no text as `{"base64": …}`."""
    return json.dumps([[key, _header(value)] for key, value in headers or ()], ensure_ascii=False).encode()


def _header(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}
