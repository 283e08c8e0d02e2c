"""Helpers for tests: harnesses for a user's topologies, contract suites to inherit, simulated stores and clocks. Names load when they are used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txtopo.testing.feeding import FeederSpout, FeederTopology
    from txtopo.testing.feeding_tuples import FedEmission
    from txtopo.testing.harness import TopologyHarness

_HOMES = {
    "FedEmission": "txtopo.testing.feeding_tuples",
    "FeederSpout": "txtopo.testing.feeding",
    "FeederTopology": "txtopo.testing.feeding",
    "TopologyHarness": "txtopo.testing.harness",
}

__all__ = ["FedEmission", "FeederSpout", "FeederTopology", "TopologyHarness"]


def __getattr__(name: str) -> Any:
    # PEP 562: a test of one tuple bolt must not wait for stores and Spark.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
