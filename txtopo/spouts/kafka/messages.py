"""Messages of a partition as rows of the declared fields, or with a reason why a message has none."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from txtopo.core.fields import Fields
from txtopo.core.limits import REJECTED_RAW_BYTES_MAX
from txtopo.core.values import RejectedRow
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.spouts.formats.csv.csv_format import Csv, decoder_alone
from txtopo.spouts.formats.format import Emitted
from txtopo.spouts.formats.json_format import Json
from txtopo.spouts.formats.lines.csv_lines import CsvLines
from txtopo.spouts.formats.lines.json_lines import JsonLines
from txtopo.spouts.formats.lines.line_pair import LinePair, Sifted, judged
from txtopo.spouts.formats.lines.typed_texts import sifted_batch, whole_batch
from txtopo.spouts.kafka.avro_format import Avro
from txtopo.spouts.kafka.message_fields import TEXTS, envelope_fields, key_fields, value_fields
from txtopo.spouts.kafka.offset_ranges import partition_of_name

HEADER_NAME = "the name of a header is no UTF-8"
TOMBSTONE = "the message has no value (a tombstone)"
NO_KIND, NO_TIME = 0, -1
"""Kind of the timestamp, or the timestamp, of a message that has none."""
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


def _keys(messages: Sequence[MessageLike]) -> list[Any]:
    # Comprehensions take half the time of map with a method's name: there are many messages.
    return [message.key() for message in messages]


def _values(messages: Sequence[MessageLike]) -> list[Any]:
    return [message.value() for message in messages]


Judge = Callable[[Sequence[MessageLike]], tuple[pa.RecordBatch, Mapping[int, str]]]
"""Messages -> rows of some of the fields, and for all other messages, by their index, why they have none."""


class MessageRows:
    """Turns blocks of messages into rows. Depends on the planned fields and the planned layouts alone."""

    def __init__(
        self, name: str, fields: Fields, value: Mapping[str, Any], key: Mapping[str, Any] | None = None
    ) -> None:
        """`name` is the partition; `value` and `key` are the layouts of values and keys, with their `kind`; None: no
        field belongs to the key. Raises KeyError, TypeError or ValueError for a layout that is not known completely.
        """
        self._name = name
        self._fields = fields
        self._envelope = envelope_fields(fields)
        self._judges: list[Judge] = [self._around] if self._envelope.items else []
        if key is not None:
            inner = dict(key)
            inner.pop("fields")
            self._judges.append(_judge("key", inner, key_fields(fields, key), _keys))
        own = value_fields(fields, key)
        judge = _judge("value", value, own, _values)
        if own.items:
            self._judges.append(judge)

    def emit(self, messages: Sequence[MessageLike]) -> tuple[Emitted, Sequence[MessageLike]]:
        """Return rows and rejects of a block, and the messages of the rows."""
        refused: dict[int, str] = {}
        kept: Sequence[MessageLike] = messages
        numbers: Sequence[int] = range(len(messages))
        batches: list[pa.RecordBatch] = []
        for judge in self._judges:
            batch, wrong = judge(kept)
            if wrong:
                refused.update((numbers[at], reason) for at, reason in wrong.items())
                good = [at for at in range(len(kept)) if at not in wrong]
                kept, numbers = [kept[at] for at in good], [numbers[at] for at in good]
                batches = [one.take(pa.array(good, pa.int64())) for one in batches]
            batches.append(batch)
        columns = {name: column for batch in batches for name, column in _by_name(batch).items()}
        rows = pa.RecordBatch.from_arrays(
            [columns[field.name] for field in self._fields.items], schema=arrow_schema(self._fields)
        )
        rejects = [self._reject(messages[at], refused[at]) for at in sorted(refused)]
        return Emitted(batch=rows, rejects=rejects), kept

    def _around(self, messages: Sequence[MessageLike]) -> tuple[pa.RecordBatch, Mapping[int, str]]:
        """Judge the envelope."""
        odd = _odd_times(messages) if self._envelope.get("_timestamp") is not None else ()
        refused = dict.fromkeys(odd, "the timestamp is in none of the years 1 to 9999")
        texts: Sequence[bytes | None] = ()
        if self._envelope.get("_headers") is not None:
            texts = [_headers(message) for message in messages]
            refused |= {at: HEADER_NAME for at, text in enumerate(texts) if text is None and at not in refused}
        good: Sequence[int] = range(len(messages))
        if refused:
            good = [at for at in good if at not in refused]
            messages, texts = [messages[at] for at in good], [texts[at] for at in good if texts]
        batch, wrong = _judged(self._envelope, self._columns(messages, texts))
        return batch, refused | {good[at]: reason for at, reason in wrong.items()}

    def _columns(self, messages: Sequence[MessageLike], headers: Sequence[bytes | None]) -> list[pa.Array]:
        """Return the columns of the envelope: texts as binary, all others with their type."""
        topic, number = partition_of_name(self._name)
        size, found = len(messages), []
        for field in self._envelope.items:
            match field.name:
                case "_offset":
                    found.append(pa.array([message.offset() for message in messages], pa.int64()))
                case "_partition":
                    found.append(pa.repeat(pa.scalar(number, pa.int32()), size))
                case "_topic":
                    found.append(pa.repeat(pa.scalar(topic.encode(), pa.binary()), size))
                case "_timestamp":
                    found.append(_times(messages))
                case "_headers":
                    found.append(pa.array(headers, pa.binary()))
                case _:
                    found.append(pa.array(_keys(messages), pa.binary()))
        return found

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


def _judge(
    what: str, layout: Mapping[str, Any], fields: Fields, take: Callable[[Sequence[MessageLike]], list[Any]]
) -> Judge:
    """Return what judges values, or keys, of this layout. Raises KeyError, TypeError or ValueError."""
    kind, settings = layout["kind"], {name: one for name, one in layout.items() if name != "kind"}
    if kind in TEXTS:
        if settings:
            raise ValueError(f"{kind!r} has no settings")
        return lambda messages: _judged(fields, [pa.array(take(messages), pa.binary()) for _ in fields.items])
    pair: LinePair
    if kind == Json.kind:
        pair = JsonLines(fields, Json(**settings).paths)
    elif kind == Csv.kind:
        pair = CsvLines(decoder_alone(Csv.of(settings), fields))
    elif kind == Avro.kind:
        from txtopo.spouts.kafka.avro_lines import AvroLines

        pair = AvroLines(fields, Avro.of(settings))
    else:
        raise ValueError(f"{what}s of format {kind!r}")

    def judge(messages: Sequence[MessageLike]) -> tuple[pa.RecordBatch, Mapping[int, str]]:
        texts = take(messages)
        missing = {at for at, text in enumerate(texts) if text is None} if None in texts else ()
        sifted = judged(pair, [text for text in texts if text is not None] if missing else texts)
        if not missing:
            return sifted.batch, {at: _of(what, reason) for at, reason in sifted.refused.items()}
        return _with_missing(what, fields, sifted, missing, len(texts))

    return judge


def _with_missing(
    what: str, fields: Fields, sifted: Sifted, missing: set[int], count: int
) -> tuple[pa.RecordBatch, Mapping[int, str]]:
    """Put in what messages without a value or key are: a tombstone is refused; fields of a missing key are NULL."""
    there = [at for at in range(count) if at not in missing]
    wrong = {there[at]: _of(what, reason) for at, reason in sifted.refused.items()}
    if what == "value":
        return sifted.batch, wrong | dict.fromkeys(missing, TOMBSTONE)
    needed = [field.name for field in fields.items if not field.nullable]
    if needed:
        return sifted.batch, wrong | dict.fromkeys(missing, f"the message has no key, and {needed[0]} is NOT NULL")
    rows = iter(range(sifted.batch.num_rows))
    order = [None if at in missing else next(rows) for at in range(count) if at not in wrong]
    return sifted.batch.take(pa.array(order, pa.int64())), wrong


def _judged(fields: Fields, columns: Sequence[pa.Array]) -> tuple[pa.RecordBatch, dict[int, str]]:
    batch = whole_batch(fields, columns)
    return (batch, {}) if batch is not None else sifted_batch(fields, columns)


def _by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _of(what: str, reason: str) -> str:
    """Return the reason of a line for a value or key."""
    return f"the {what}{reason.removeprefix('the line')}" if reason.startswith("the line") else reason


def _odd_times(messages: Sequence[MessageLike]) -> list[int]:
    """Return the places of messages with a timestamp that is no time."""
    first, last = TIMES_MS[0], TIMES_MS[-1]
    stamps = [message.timestamp() for message in messages]
    return [at for at, (kind, millis) in enumerate(stamps) if not first <= millis <= last and kind != NO_KIND]


def _times(messages: Sequence[MessageLike]) -> pa.Array:
    stamps = [message.timestamp() for message in messages]
    millis = [None if kind == NO_KIND or at == NO_TIME else at for kind, at in stamps]
    return pa.array(millis, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


def _headers(message: MessageLike) -> bytes | None:
    """Return headers as JSON text: a list of pairs; bytes that are no text as `{"base64": …}`. None: a name is no text.
    Must be called once for each message: after such a name the client gives headers that end the process.
    """
    try:
        headers = message.headers()
    except (SystemError, UnicodeDecodeError):
        return None
    return json.dumps([[key, _header(value)] for key, value in headers or ()], ensure_ascii=False).encode()


def _header(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}
