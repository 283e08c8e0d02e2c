"""Events as lines: one event per line, as text in reading order or as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from txtopo.reports.as_json import plain
from txtopo.reports.batch_text import changed
from txtopo.reports.formatting import batches_named, clip, count, instant
from txtopo.reports.timeline import TimelineEvent

_WORDS = {
    "leader_started": "leader started",
    "leader_ended": "leader ended",
    "order_given": "order given",
    "order_done": "order done",
    "order_refused": "order refused",
    "attempt_begun": "attempt begun",
    "attempt_failed": "attempt failed",
    "attempt_cancelled": "attempt cancelled",
}
_KIND_WIDTH = max(map(len, _WORDS.values()))


def event_line(event: TimelineEvent, width: int | None = None) -> str:
    """Return time, batch (and attempt), event and facts; cut to `width`, the terminal's, if it is known."""
    batch = "" if event.txid is None else str(event.txid)
    attempt = "" if event.attempt is None else f":{event.attempt}"
    kind = _WORDS.get(event.kind, event.kind)
    line = f"{instant(event.at)}  {batch + attempt:>8}  {kind:<{_KIND_WIDTH}}  {'; '.join(_told(event))}"
    return clip(line.rstrip(), width)


def event_json(event: TimelineEvent) -> str:
    """Return schema `txtopo.event/2`, on one line."""
    values = {
        "schema": "txtopo.event/2",
        "at": instant(event.at),
        "kind": event.kind,
        "txid": event.txid,
        "attempt": event.attempt,
        "order_id": event.order_id,
        "facts": plain(event.facts),
    }
    return json.dumps(values, ensure_ascii=True, allow_nan=False)


def _told(event: TimelineEvent) -> list[str]:
    facts = event.facts
    match event.kind:
        case "leader_started" | "leader_ended":
            who = f"{facts.get('host')} pid {facts.get('pid')}, epoch {facts.get('epoch')}"
            return [who, *_given(facts, "state", "reason")]
        case "order_given" | "order_done" | "order_refused":
            about = f" of {batches_named(facts['txids'])}" if facts["txids"] else ""
            about += f" of {facts['committer']}" if "committer" in facts else ""
            return [
                f"order {event.order_id}: {facts['order']}{about}",
                *_by(facts),
                *_given(facts, "reason", "answer"),
            ]
        case "action":
            order = [] if event.order_id is None else [f"order {event.order_id}"]
            states = [changed(facts["before"], facts["after"])] if facts["before"] or facts["after"] else []
            return [str(facts["command"]), *_by(facts), *order, *_given(facts, "reason"), *states]
        case "attempt_failed" | "attempt_cancelled":
            return _failure(facts)
        case "committed" | "quarantined":
            return _batch(facts)
        case _:
            alone = ["alone"] if facts.get("alone") else []
            return [f"epoch {facts.get('epoch')}", *_given(facts, "host"), *alone]


def _failure(facts: Mapping[str, Any]) -> list[str]:
    message = str(facts.get("message", ""))
    place = [
        str(facts[name]) for name in ("component", "position") if name in facts and str(facts[name]) not in message
    ]
    kind = f"{facts['kind']}: " if "kind" in facts else ""
    told = f"{kind}{' at '.join(place)}{': ' if place and message else ''}{message}"
    return [told] if told else []


def _batch(facts: Mapping[str, Any]) -> list[str]:
    redo = [f"redoes batch {facts['redo_of']}"] if "redo_of" in facts else []
    if "backfills" in facts:
        redo.append(f"counts batch {facts['backfills']} into committer {facts['committer']}")
    read = [f"{count(facts['read'])} read, {count(facts.get('rejected') or 0)} rejected"] if "read" in facts else []
    return [*redo, *read, *_given(facts, "reason")]


def _by(facts: Mapping[str, Any]) -> list[str]:
    return [f"by {facts.get('actor', 'unknown')} on {facts.get('host', 'unknown')}"] if "actor" in facts else []


def _given(facts: Mapping[str, Any], *names: str) -> list[str]:
    return [str(facts[name]) for name in names if name in facts]
