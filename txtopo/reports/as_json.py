"""The model as JSON with a schema version and stable keys: raw numbers, times in UTC with Z, one document per
command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

from txtopo.reports.formatting import instant
from txtopo.reports.model import BatchDetail, BatchRow, TopologyStatus


def status_json(topologies: Sequence[TopologyStatus]) -> str:
    """Return schema `txtopo.status/2`."""
    extra = ("planned_ahead", "next_commands")
    return document(
        "txtopo.status/2",
        {"topologies": [{**plain(one), **{name: plain(getattr(one, name)) for name in extra}} for one in topologies]},
    )


def batches_json(topology: str, batches: Sequence[BatchRow]) -> str:
    """Return schema `txtopo.batches/1`; newest batch first."""
    return document("txtopo.batches/1", {"topology": topology, "batches": plain(batches)})


def batch_json(batch: BatchDetail) -> str:
    """Return schema `txtopo.batch/2`."""
    return document(
        "txtopo.batch/2",
        {**plain(batch), "failures": plain(batch.failures), "next_commands": plain(batch.next_commands)},
    )


def document(schema: str, values: Mapping[str, Any]) -> str:
    """Return one JSON document that begins with its schema."""
    return json.dumps({"schema": schema, **values}, indent=2, ensure_ascii=True, allow_nan=False)


def plain(value: Any) -> Any:
    """Return dataclasses as objects, sequences as lists, times as text; anything else unchanged."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return value
