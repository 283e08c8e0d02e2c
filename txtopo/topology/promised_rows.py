"""Where `rows=` of a DataFrame bolt can be enforced: tuples are counted where they enter and leave DataFrames, never
between two functions.

So a promise can be held against a bolt only if every function on one way, from where tuples come in to where they are
read, makes one.
"""

from __future__ import annotations

from collections.abc import Mapping

from txtopo.topology.components import BoltComponent, Topology


def unchecked_promises(topology: Topology) -> frozenset[str]:
    """Bolts whose `rows=` nothing looks at, since another one on their way says nothing of its own: `txtopo explain`
    tells.
    """
    bolts = {bolt.name: bolt for bolt in topology.frame_bolts}
    counted = _with_counted_input(topology, bolts)
    known = {bolt.name for bolt in topology.frame_bolts if _is_known_so_far(bolt, bolts, counted)}
    return frozenset(
        bolt.name
        for bolt in topology.frame_bolts
        if bolt.rows != "any" and not (bolt.name in known and _is_counted_behind(bolt.name, topology, known))
    )


def _with_counted_input(topology: Topology, bolts: Mapping[str, BoltComponent]) -> frozenset[str]:
    """Bolts whose input is counted by itself: behind tuple bolts, or behind a DataFrame of a spout in a topology of
    tuples.
    """
    inside = {item.name for item in topology.spouts if not (topology.has_tuples and item.spout.emits_frame)}
    for bolt in topology.frame_bolts:
        if all(subscription.source in inside for subscription in bolt.inputs):
            inside.add(bolt.name)
    return frozenset(bolts) - inside


def _is_known_so_far(bolt: BoltComponent, bolts: Mapping[str, BoltComponent], counted: frozenset[str]) -> bool:
    """True if all functions from the last count up to this one declare what they do to the number of rows."""
    if bolt.rows == "any" or len(bolt.inputs) != 1:
        return False
    before = bolts.get(bolt.inputs[0].source)
    return bolt.name in counted or before is None or _is_known_so_far(before, bolts, counted)


def _is_counted_behind(name: str, topology: Topology, known: set[str]) -> bool:
    """True if its output is counted, directly or after downstream functions that declare what they do."""
    frames = {bolt.name for bolt in topology.frame_bolts}
    readers = {
        item.name
        for item in (*topology.bolts, *topology.committers)
        if any(subscription.source == name for subscription in item.inputs)
    }
    return bool(readers - frames) or any(_is_counted_behind(reader, topology, known) for reader in readers & known)
