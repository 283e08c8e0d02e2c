"""Which committers can be filled with batches that were committed without them, and what belongs to such a committer
(R32). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txtopo.topology.components import CommitterComponent
from txtopo.topology.phases import PROCESSING


def filled_by(committers: Sequence[CommitterComponent], name: str) -> tuple[CommitterComponent, ...]:
    """Return what a backfill of committer `name` fills, in the order in which it is applied: the committer and its
    parts. Empty if there is no such committer.
    """
    named = next((one for one in committers if one.name == name), None)
    if named is None:
        return ()
    names = {name, *(f"{name}{added}" for added in named.bolt.parts())}
    return tuple(one for one in committers if one.name in names)


def cannot_backfill(committers: Sequence[CommitterComponent], phases: Mapping[str, int], name: str) -> str | None:
    """Return why committer `name` cannot be filled, as text; None: it can."""
    named = next((one for one in committers if one.name == name), None)
    if named is None:
        return f"the topology has no committer {name}; it has {', '.join(one.name for one in committers)}"
    whole = next(
        (one.name for one in committers if one.name != name and named in filled_by(committers, one.name)), None
    )
    if whole is not None:
        return f"committer {name} is a part of {whole}: backfill {whole}"
    if phases.get(name, PROCESSING) != PROCESSING:
        return f"committer {name} is downstream of a committer, which emits nothing without being applied again"
    why = named.bolt.cannot().get("backfill")
    return None if why is None else f"committer {name} cannot be filled: {why}"
