"""When a component runs: in the processing phase, or in the commit phase downstream of committers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

PROCESSING = 0
"""The phase of all that is downstream of no committer."""


def phases_of(reads: Mapping[str, Sequence[str]], committers: Collection[str]) -> dict[str, int]:
    """The phase of each component, by name: so many committers, one after the other, are upstream of it.

    `reads` are the sources of each component; what reads nothing, such as a spout, need not be in it. Nothing may read
    itself, on whatever way.
    A component of phase n above 0 runs in the driver, in the turn of its batch, once all committers of the phases below
    n are applied: only then
    are all its tuples there.

    >>> phases_of({"counts": ["lines"], "bucketize": ["counts"], "buckets": ["bucketize"]}, ["counts", "buckets"])
    {'counts': 0, 'bucketize': 1, 'buckets': 1}
    """
    found: dict[str, int] = {}

    def phase(name: str) -> int:
        if name not in found:
            found[name] = max((phase(one) + (one in committers) for one in reads.get(name, ())), default=PROCESSING)
        return found[name]

    return {name: phase(name) for name in reads}
