"""The phase in which a component runs: in the processing phase, or in the commit phase downstream of committers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

PROCESSING = 0
"""The phase of a component without an upstream committer."""


def phases_of(reads: Mapping[str, Sequence[str]], committers: Collection[str]) -> dict[str, int]:
    """Return the phase of each component, by name: the number of committers upstream of it on the longest path.

    `reads` maps each component to its sources; spouts can be omitted. It must have no cycle. A component of a phase n >
    0 runs in the driver, in the commit of its batch, when all committers of lower phases are applied: only then do all
    its tuples exist.

    >>> phases_of({"counts": ["lines"], "bucketize": ["counts"], "buckets": ["bucketize"]}, ["counts", "buckets"])
    {'counts': 0, 'bucketize': 1, 'buckets': 1}
    """
    found: dict[str, int] = {}

    def phase(name: str) -> int:
        if name not in found:
            found[name] = max((phase(one) + (one in committers) for one in reads.get(name, ())), default=PROCESSING)
        return found[name]

    return {name: phase(name) for name in reads}
