"""The phase in which a component runs: in the processing phase, or in the commit phase downstream of committers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

PROCESSING = 0
"""The phase of a component without an upstream committer."""


class Phases(NamedTuple):
    """When the components of a topology run, by name."""

    of: Mapping[str, int]
    """The phase of each component; of a committer that of its executor half."""
    applied: Mapping[str, int]
    """The phase at whose end each committer is applied."""


def phases_of(
    reads: Mapping[str, Sequence[str]], committers: Collection[str], readers: Mapping[str, Sequence[str]] | None = None
) -> Phases:
    """Return the phase of each component: the number of committers that are applied one after the other before it has
    all its tuples.

    `reads` maps each component to its sources; spouts can be omitted. `readers` maps a committer to those committers
    that read its table as it was before the batch: it is applied in the phase of the last of them, or later. There must
    be no cycle. A component of a phase n > 0 runs in the driver, in the commit of its batch, when all committers of
    lower phases are applied: only then do all its tuples exist.

    >>> phases_of({"counts": ["lines"], "bucketize": ["counts"], "buckets": ["bucketize"]}, ["counts", "buckets"]).of
    {'counts': 0, 'bucketize': 1, 'buckets': 1}
    """
    found: dict[str, int] = {}
    applied: dict[str, int] = {}
    asked = readers or {}

    def phase(name: str) -> int:
        if name not in found:
            found[name] = max(
                (end(one) + 1 if one in committers else phase(one) for one in reads.get(name, ())), default=PROCESSING
            )
        return found[name]

    def end(name: str) -> int:
        if name not in applied:
            applied[name] = max([phase(name), *(end(one) for one in asked.get(name, ()))])
        return applied[name]

    return Phases({name: phase(name) for name in reads}, {name: end(name) for name in committers})


def readers_of(committers: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return, by committer, which ones read its table; given what each one reads."""
    found: dict[str, list[str]] = {}
    for name, tables in committers.items():
        for table in tables:
            found.setdefault(table, []).append(name)
    return found
