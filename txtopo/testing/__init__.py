"""Helpers for testing topologies without services: a harness on simulated stores and clocks, a feeder for single
tuples, a transaction that records statements. The public names are listed in `__all__` and are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo._lazy import lazy_exports

if TYPE_CHECKING:
    from txtopo.committers.memory.memory_transaction import MemoryTransaction
    from txtopo.testing.capturing import Emission
    from txtopo.testing.feeding import FeederSpout, FeederTopology
    from txtopo.testing.feeding_tuples import FedEmission
    from txtopo.testing.harness import BatchSeen, TopologyHarness

_HOMES = {
    "BatchSeen": "txtopo.testing.harness",
    "Emission": "txtopo.testing.capturing",
    "FedEmission": "txtopo.testing.feeding_tuples",
    "FeederSpout": "txtopo.testing.feeding",
    "FeederTopology": "txtopo.testing.feeding",
    "MemoryTransaction": "txtopo.committers.memory.memory_transaction",
    "TopologyHarness": "txtopo.testing.harness",
}

__all__ = [
    "BatchSeen",
    "Emission",
    "FedEmission",
    "FeederSpout",
    "FeederTopology",
    "MemoryTransaction",
    "TopologyHarness",
]

# A test of one tuple bolt should import neither stores nor Spark.
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
