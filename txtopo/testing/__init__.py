"""Helpers for testing topologies without services: a harness on simulated stores and clocks, a feeder for single
tuples, a transaction that records statements. The public names are listed in `__all__` and are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo._lazy import lazy_exports

if TYPE_CHECKING:
    from txtopo.committers.memory.memory_store import Answers, Executed
    from txtopo.committers.memory.memory_transaction import MemoryTransaction
    from txtopo.core.events import End
    from txtopo.core.values import DeadLetter, EdgeCount, FailureKind, RejectedRow
    from txtopo.testing.capturing import Emission
    from txtopo.testing.feeding import FeederSpout, FeederTopology
    from txtopo.testing.feeding_tuples import FedEmission
    from txtopo.testing.harness import BatchSeen, TopologyHarness
    from txtopo.testing.harness_rules import HarnessRules
    from txtopo.testing.simulated import SimulatedStores

_HOMES = {
    "Answers": "txtopo.committers.memory.memory_store",
    "BatchSeen": "txtopo.testing.harness",
    "DeadLetter": "txtopo.core.values",
    "EdgeCount": "txtopo.core.values",
    "Emission": "txtopo.testing.capturing",
    "End": "txtopo.core.events",
    "Executed": "txtopo.committers.memory.memory_store",
    "FailureKind": "txtopo.core.values",
    "FedEmission": "txtopo.testing.feeding_tuples",
    "FeederSpout": "txtopo.testing.feeding",
    "FeederTopology": "txtopo.testing.feeding",
    "HarnessRules": "txtopo.testing.harness_rules",
    "MemoryTransaction": "txtopo.committers.memory.memory_transaction",
    "RejectedRow": "txtopo.core.values",
    "SimulatedStores": "txtopo.testing.simulated",
    "TopologyHarness": "txtopo.testing.harness",
}

__all__ = [
    "Answers",
    "BatchSeen",
    "DeadLetter",
    "EdgeCount",
    "Emission",
    "End",
    "Executed",
    "FailureKind",
    "FedEmission",
    "FeederSpout",
    "FeederTopology",
    "HarnessRules",
    "MemoryTransaction",
    "RejectedRow",
    "SimulatedStores",
    "TopologyHarness",
]

# A test of one tuple bolt should import neither stores nor Spark.
if not TYPE_CHECKING:  # a type checker would take it for a promise of every name
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
