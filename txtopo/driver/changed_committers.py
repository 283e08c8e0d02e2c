"""Compares the committers of a topology with those that its last leader described: what its tables hold of earlier
batches was made by those. A change that these tables cannot follow halts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from txtopo.errors import Halted
from txtopo.topology.components import Topology

Described = Mapping[str, Any]


def check_committers(last_txid: int, described: Described, topology: Topology) -> None:
    """Raise Halted if a committer that may have counted batches has other keys, numbers or rules than before: its
    tables would hold two things. `last_txid` is committed, `described` the description of the last leader.
    """
    if not last_txid:
        return
    before = described.get("committers", {})
    for committer in topology.committers:
        known = before.get(committer.name)
        if known is None:
            continue
        changes = changed(known, committer.bolt.describe())
        if changes:
            raise Halted(
                f"committer {committer.name} of {topology.name} has counted batches, and now has "
                f"{'; '.join(changes)}: what it counted before does not fit",
                next_command=f"make {committer.name} as it was; or give the changed one another name and another "
                f"table, start `txtopo run` again, then txtopo backfill {topology.name} with that name",
            )


def new_committers(last_txid: int, described: Described, topology: Topology) -> tuple[str, ...]:
    """Return the names of the committers that the last leader did not have, although batches are committed."""
    before = described.get("committers")
    if not last_txid or not isinstance(before, Mapping):
        return ()
    return tuple(committer.name for committer in topology.committers if committer.name not in before)


def changed(before: Described, now: Described) -> list[str]:
    """Return what differs between two descriptions of a committer so that its tables cannot follow, as texts.

    Not compared: the table, which its registration protects; the input field of a number, which may be renamed at its
    source; how wide a view's windows are.
    """
    if _kind(before) != _kind(now):
        return [f"kind {_kind(now)} instead of {_kind(before)}"]
    added = sorted(_distinct(now) - _distinct(before))
    return [
        *(
            f"{what} {_shown(new)} instead of {_shown(old)}"
            for what, read in _COMPARED.items()
            if (old := read(before)) != (new := read(now))
        ),
        *(f"distinct values of {one}, which it did not count" for one in added),
    ]


def _kind(one: Described) -> str:
    kind = str(one.get("kind"))
    return "aggregate" if kind == "count" else kind  # release 0.1.0 and CountCommitter describe the same tables so


def _numbers(one: Described) -> list[str]:
    sums = [("sum", column) for column in one.get("sums", {}).values()]
    named = [*sums, *((kind, column) for kind, _, column in one.get("aggregates", ()))]
    return sorted(f"{column} ({kind})" for kind, column in named)


def _distinct(one: Described) -> set[str]:
    # Those that are no longer counted keep a table that is right up to then.
    return {f"{field} as {column}" for field, column, *_ in one.get("distinct", ())}


_COMPARED: Mapping[str, Callable[[Described], Any]] = {
    "keys": lambda one: sorted(one.get("keys", ())),
    "number of rows": lambda one: one.get("count"),
    "numbers": _numbers,
    "averages": lambda one: sorted(entry[0] for entry in one.get("averages", ())),
    "windows": lambda one: [list(entry)[1:] for entry in one.get("windows", ())],
    "version": lambda one: list(one.get("version", ())),
    "deleted": lambda one: one.get("deleted"),
    "contributions": lambda one: one.get("contributions"),
}
"""Words for a part of a description -> what reads it."""


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(one) for one in value) or "none"
    return "none" if value is None else str(value)
