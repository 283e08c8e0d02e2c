"""Trident's streams: `from txtopo.trident import TridentTopology`. They compile to an ordinary Topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo._lazy import lazy_exports

if TYPE_CHECKING:
    from txtopo.trident.functions import ArrowFilter, ArrowFunction, FilterNull, Split
    from txtopo.trident.stream import PersistedState, Stream
    from txtopo.trident.topology import TridentTopology

_HOMES = {
    "ArrowFilter": "txtopo.trident.functions",
    "ArrowFunction": "txtopo.trident.functions",
    "FilterNull": "txtopo.trident.functions",
    "PersistedState": "txtopo.trident.stream",
    "Split": "txtopo.trident.functions",
    "Stream": "txtopo.trident.stream",
    "TridentTopology": "txtopo.trident.topology",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)

__all__ = [
    "ArrowFilter",
    "ArrowFunction",
    "FilterNull",
    "PersistedState",
    "Split",
    "Stream",
    "TridentTopology",
]
