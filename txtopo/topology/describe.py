"""A topology as JSON values: everything except its code, for the code hash (R12), `show` and `explain`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from re import Pattern
from typing import Any

from txtopo.topology.components import (
    BoltComponent,
    CommitterComponent,
    SpoutComponent,
    Subscription,
    Topology,
    TupleBoltComponent,
)
from txtopo.topology.outputs import fields_of
from txtopo.topology.streams import Stream


def describe_topology(topology: Topology) -> Mapping[str, Any]:
    """Return all components by name, and the settings of the whole topology."""
    return {
        "name": topology.name,
        "spouts": {component.name: _spout(component) for component in topology.spouts},
        "bolts": {
            bolt.name: _frame_bolt(bolt) if isinstance(bolt, BoltComponent) else _tuple_bolt(bolt)
            for bolt in topology.bolts
        },
        "committers": {component.name: _committer(component) for component in topology.committers},
        "acking": topology.acking,
        "guarantee": topology.guarantee,
        "config": dict(topology.config),
    }


def _spout(component: SpoutComponent) -> Mapping[str, Any]:
    described = dict(component.spout.describe())
    if component.spout.kind != "transactional":
        described["spout_kind"] = component.spout.kind
    if component.tasks is not None:
        described["tasks"] = component.tasks
    return described


def _frame_bolt(bolt: BoltComponent) -> Mapping[str, Any]:
    return {
        "inputs": [subscription.source for subscription in bolt.inputs],
        "fields": bolt.fields.ddl if bolt.fields else None,
        "rows": bolt.rows,
        "function": getattr(bolt.function, "__qualname__", type(bolt.function).__name__),
    }


def _tuple_bolt(bolt: TupleBoltComponent) -> Mapping[str, Any]:
    return {
        "inputs": [subscription_json(subscription) for subscription in bolt.inputs],
        "outputs": streams_json(bolt.outputs),
        "tasks": bolt.tasks,
        "class": class_name(bolt.bolt),
        "config": dict(bolt.bolt.config),
        "attributes": digest_of(bolt.bolt),
    }


def _committer(component: CommitterComponent) -> Mapping[str, Any]:
    described: dict[str, Any] = {
        **component.bolt.describe(),
        "input": component.input.source,
        "grouping": component.input.grouping,
        "grouping_fields": list(component.input.fields),
        "fields": component.fields.ddl,
        "tasks": component.tasks,
    }
    if component.bolt.effects != "transaction":
        described["effects"] = component.bolt.effects
    described |= component.bolt.describe_component(component)
    return described


def subscription_json(subscription: Subscription) -> Mapping[str, Any]:
    """Return an input of a component that receives tuples."""
    described: dict[str, Any] = {
        "source": subscription.source,
        "stream": subscription.stream,
        "grouping": subscription.grouping,
    }
    if subscription.fields:
        described["fields"] = list(subscription.fields)
    if subscription.custom is not None:
        described |= {"class": class_name(subscription.custom), "attributes": digest_of(subscription.custom)}
    return described


def streams_json(outputs: Mapping[str, Stream]) -> Mapping[str, Any]:
    """Return declared streams by name."""
    return {name: {"fields": fields_of(stream).ddl, "direct": stream.direct} for name, stream in outputs.items()}


def class_name(component: object) -> str:
    """Return the name of a component's class."""
    return type(component).__qualname__


def digest_of(component: object) -> str:
    """Return a digest of the arguments that a template was made with, such as `Split(sep=",")`: another value is
    another topology, but a value may be a secret.
    """
    slots = [name for kind in type(component).__mro__ for name in getattr(kind, "__slots__", ())]
    attributes = {name: getattr(component, name) for name in slots if hasattr(component, name)}
    attributes |= getattr(component, "__dict__", {})
    text = json.dumps(_plain(attributes), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: object) -> Any:
    """Return a value as JSON, the same in every process. A value that is not plain data is replaced by its type, so
    that no memory address or hash order enters the description.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Mapping):
        pairs = [(_plain(key), _plain(item)) for key, item in value.items()]
        return {"map": sorted(pairs, key=_text)}
    if isinstance(value, set | frozenset):
        return {"set": sorted((_plain(item) for item in value), key=_text)}
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return {"type": type(value).__qualname__, "value": value.name}
    if isinstance(value, Decimal | date | time | timedelta | PurePath):
        return {"type": type(value).__qualname__, "value": repr(value)}
    if isinstance(value, Pattern):
        return {"pattern": _plain(value.pattern), "flags": value.flags}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            "type": type(value).__qualname__,
            "value": {one.name: _plain(getattr(value, one.name)) for one in fields(value)},
        }
    named = getattr(value, "__qualname__", None)
    return {"name": named} if isinstance(named, str) else {"type": type(value).__qualname__}


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)
