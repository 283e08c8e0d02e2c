"""Reads and checks `outputs`, the streams that a tuple bolt or committer declares (Storm's OutputFieldsDeclarer)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import NAME_PATTERN
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.topology.streams import DEFAULT_STREAM, Stream

_HOW = 'write outputs = ["word string", "n bigint"], or [Stream("word string", name="words"), …]'


def parse_outputs(who: str, outputs: object) -> Mapping[str, Stream]:
    """Return the declared streams by name, in order of declaration, each with parsed Fields; empty if nothing is
    emitted.

    Text entries together are the fields of the default stream. Raises TopologyTypeError for anything but a list of text
    and Streams, TopologyError for a stream or field that is declared twice and for fields that cannot be parsed.

    >>> parse_outputs("bolt 'split'", ["word string", Stream("line string", name="errors")]).keys()
    dict_keys(['default', 'errors'])
    """
    if not isinstance(outputs, list | tuple):
        raise TopologyTypeError(f"{who}: outputs={outputs!r} is not a list: {_HOW}")
    streams: dict[str, Stream] = {}
    texts = [entry for entry in outputs if isinstance(entry, str)]
    for entry in outputs:
        if isinstance(entry, str):
            streams.setdefault(DEFAULT_STREAM, Stream(_fields(who, DEFAULT_STREAM, ", ".join(texts))))
        elif not isinstance(entry, Stream):
            raise TopologyTypeError(f"{who}: {entry!r} in its outputs is neither text nor a Stream: {_HOW}")
        elif entry.name in streams or (entry.name == DEFAULT_STREAM and texts):
            raise TopologyError(f"{who}: its outputs declare stream {entry.name!r} twice")
        else:
            name = _checked_name(who, entry.name)
            streams[name] = Stream(_fields(who, name, entry.fields), name=name, direct=entry.direct)
    return streams


def parse_result(who: str, result: object) -> Fields | None:
    """Return the fields of the rows between the halves of a BatchCommitter; None if it declares none."""
    if not isinstance(result, list | tuple) or not all(isinstance(entry, str) for entry in result):
        raise TopologyTypeError(
            f'{who}: result={result!r} is not a list of text: write result = ["word string", "n bigint"]'
        )
    return _fields(who, "result", ", ".join(result)) if result else None


def fields_of(stream: Stream) -> Fields:
    """Return the parsed fields of a declared stream."""
    return parse_fields(stream.fields)


def _fields(who: str, stream: str, declared: object) -> Fields:
    if not isinstance(declared, str | Fields):
        raise TopologyTypeError(f"{who}: the fields of stream {stream!r} are {declared!r}: {_HOW}")
    try:
        fields = parse_fields(declared)
    except TopologyError as error:
        raise TopologyError(f"{who}, stream {stream!r}: {error}") from error
    if not fields.items:
        raise TopologyError(f"{who}: stream {stream!r} declares no fields")
    return fields


def _checked_name(who: str, name: object) -> str:
    if not isinstance(name, str):
        raise TopologyTypeError(f"{who}: a stream's name is text, not {name!r}")
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise TopologyError(
            f"{who}: stream name {name!r} is not allowed: it must start with a lowercase letter, then have at most 40 "
            f"lowercase letters, digits or underscores"
        )
    return name
