"""The paths on which `rows=` of a DataFrame bolt is enforced: rows are counted where tuples become DataFrames and where
DataFrames become tuples, never between two functions.

So `rows=` can be checked only if every function on the path between two counts declares it.
"""

from __future__ import annotations

from collections.abc import Mapping

from txtopo.topology.components import BoltComponent, Topology


def unchecked_promises(topology: Topology) -> frozenset[str]:
    """Return the bolts whose `rows=` cannot be checked, because another bolt on their path declares nothing; `txtopo
    explain` lists them.
    """
    bolts = {bolt.name: bolt for bolt in topology.frame_bolts}
    counted = _with_counted_input(topology, bolts)
    known = {bolt.name for bolt in topology.frame_bolts if _is_known_so_far(bolt, bolts, counted)}
    return frozenset(
        bolt.name
        for bolt in topology.frame_bolts
        if bolt.rows != "any" and not (bolt.name in known and _is_counted_downstream(bolt.name, topology, known))
    )


def _with_counted_input(topology: Topology, bolts: Mapping[str, BoltComponent]) -> frozenset[str]:
    """Return the bolts whose input is counted: those downstream of tuple bolts, or of a DataFrame of a spout in a
    topology with tuples.
    """
    inside = {item.name for item in topology.spouts if not (topology.has_tuples and item.spout.emits_frame)}
    for bolt in topology.frame_bolts:
        if all(subscription.source in inside for subscription in bolt.inputs):
            inside.add(bolt.name)
    return frozenset(bolts) - inside


def _is_known_so_far(bolt: BoltComponent, bolts: Mapping[str, BoltComponent], counted: frozenset[str]) -> bool:
    """True if all functions from the last count to this one declare `rows`."""
    if bolt.rows == "any" or len(bolt.inputs) != 1:
        return False
    before = bolts.get(bolt.inputs[0].source)
    return bolt.name in counted or before is None or _is_known_so_far(before, bolts, counted)


def _is_counted_downstream(name: str, topology: Topology, known: set[str]) -> bool:
    """True if the output is counted, directly or after downstream functions that declare `rows`."""
    frames = {bolt.name for bolt in topology.frame_bolts}
    readers = {
        item.name
        for item in (*topology.bolts, *topology.committers)
        if any(subscription.source == name for subscription in item.inputs)
    }
    return bool(readers - frames) or any(_is_counted_downstream(reader, topology, known) for reader in readers & known)
