"""Helpers for tests: harnesses for a user's topologies, contract suites to inherit, simulated stores and clocks. Names load when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txtopo.committers.memory_transaction import MemoryTransaction
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
    "MemoryTransaction": "txtopo.committers.memory_transaction",
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


def __getattr__(name: str) -> Any:
    # PEP 562: a test of one tuple bolt must not wait for stores and Spark.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
