"""The table of formats: from a name, and from the layout in a plan, to the format that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts.formats.csv.csv_format import Csv
from txtopo.spouts.formats.format import KIND, Format
from txtopo.spouts.formats.json_format import Json
from txtopo.spouts.formats.parquet.parquet_format import Parquet
from txtopo.spouts.formats.pattern import Pattern
from txtopo.spouts.formats.text import Text
from txtopo.spouts.planned_file import COMPONENT

KINDS: Mapping[str, type[Format]] = {one.kind: one for one in (Csv, Json, Text, Pattern, Parquet)}
"""Name -> class of every format that txtopo brings."""
ENDINGS = {".jsonl": Json.kind, ".ndjson": Json.kind, ".json": Json.kind, ".parquet": Parquet.kind}
"""How paths end -> the format of their files, if none is given."""
NOT_OF_THE_FORMAT = ("kind", "part_bytes", "file_fields", "partitions")
"""Entries of a planned layout that belong to the spout."""


def chosen_format(
    chosen: str | Format | None, path: str, *, delimiter: str | None, null_values: Sequence[str] | None
) -> Format:
    """Return the format that a FileSpout was given; if it was given none, the one that the ending of its path names, or
    CSV. `delimiter` and `null_values` are its short forms for CSV. Raises TopologyError.
    """
    short = {"delimiter": delimiter, "null_values": null_values}
    options = {name: value for name, value in short.items() if value is not None}
    if isinstance(chosen, Format):
        _check_kind(chosen)
        if options:
            raise TopologyError(f"FileSpout: {next(iter(options))} belongs to the format: write it into {chosen!r}")
        return chosen
    name = _by_ending(path, options) if chosen is None else chosen
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise TopologyError(
            f"FileSpout: format {chosen!r} is none of {', '.join(KINDS)}, and no format of files from txtopo.formats"
        )
    if options and kind is not Csv:
        raise TopologyError(f"FileSpout: files of format {name!r} have no {next(iter(options))}")
    try:
        return kind.of(options)
    except TopologyError as error:
        raise TopologyError(f"FileSpout: {error}") from error
    except TypeError as error:
        raise TopologyError(
            f"FileSpout: format {name!r} needs more than its name: format={kind.__name__}(…)"
        ) from error


def _by_ending(path: str, options: Mapping[str, Any]) -> str:
    """Return the name of the format of files with such a path; options of CSV mean CSV."""
    found = next((name for ending, name in ENDINGS.items() if path.lower().endswith(ending)), Csv.kind)
    return Csv.kind if options else found


def planned_format(layout: Mapping[str, Any], own: Format) -> Format:
    """Return the format with which a batch was planned (R12); `own` is the format of the spout now, of which the class
    is taken if its name is the same. Raises BatchDataError for a layout that this release cannot read exactly.
    """
    kind = layout["kind"]
    settings = {name: value for name, value in layout.items() if name not in NOT_OF_THE_FORMAT}
    if kind == own.kind and settings == own.layout():
        return own
    known = type(own) if kind == own.kind else KINDS.get(kind)
    try:
        if known is None:
            raise ValueError("there is no such format here")
        return known.of(settings)
    except (TypeError, ValueError) as error:
        raise BatchDataError(
            f"the batch was planned with format {kind!r} and {settings}, which this release cannot read ({error}): use "
            f"the release and the format that planned it, or replan the batch",
            component=COMPONENT,
            fault="format of the plan unknown",
            halts=True,
        ) from error


def is_own(format_: Format) -> bool:
    """Return True for a format that txtopo brings."""
    return type(format_) in KINDS.values()


def _check_kind(chosen: Format) -> None:
    """Plans and audit know a format by its kind, so two classes must not share one."""
    kind = type(chosen).kind
    if not isinstance(kind, str) or not KIND.fullmatch(kind):
        raise TopologyError(
            f"FileSpout: kind {kind!r} of {type(chosen).__name__} is not a name of small letters, digits and _"
        )
    if KINDS.get(kind, type(chosen)) is not type(chosen):
        raise TopologyError(
            f"FileSpout: {type(chosen).__name__} has the kind {kind!r} of a format of txtopo: choose another one"
        )
