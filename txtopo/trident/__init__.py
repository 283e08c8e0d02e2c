"""Trident's streams: `from txtopo.trident import TridentTopology`. They compile to an ordinary Topology."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo._lazy import lazy_exports

if TYPE_CHECKING:
    from txtopo.trident.aggregates import (
        Aggregator,
        CombinerAggregator,
        Count,
        CountDistinct,
        Max,
        Mean,
        Min,
        ReducerAggregator,
        Sum,
    )
    from txtopo.trident.functions import ArrowFilter, ArrowFunction, FilterNull, Split
    from txtopo.trident.grouped import ChainedAggregate, GroupedStream
    from txtopo.trident.state_query import MapGet, QueryFunction, ReadOnlyMapState
    from txtopo.trident.states import PostgresMapState
    from txtopo.trident.static_states import CsvRows, PythonRows, StaticRows, StaticState
    from txtopo.trident.stream import PersistedState, TridentStream
    from txtopo.trident.trident_topology import TridentTopology

_HOMES = {
    "StaticState": "txtopo.trident.static_states",
    "StaticRows": "txtopo.trident.static_states",
    "PythonRows": "txtopo.trident.static_states",
    "CsvRows": "txtopo.trident.static_states",
    "Aggregator": "txtopo.trident.aggregates",
    "ArrowFilter": "txtopo.trident.functions",
    "ArrowFunction": "txtopo.trident.functions",
    "ChainedAggregate": "txtopo.trident.grouped",
    "CombinerAggregator": "txtopo.trident.aggregates",
    "Count": "txtopo.trident.aggregates",
    "CountDistinct": "txtopo.trident.aggregates",
    "FilterNull": "txtopo.trident.functions",
    "GroupedStream": "txtopo.trident.grouped",
    "MapGet": "txtopo.trident.state_query",
    "Max": "txtopo.trident.aggregates",
    "Mean": "txtopo.trident.aggregates",
    "Min": "txtopo.trident.aggregates",
    "PersistedState": "txtopo.trident.stream",
    "PostgresMapState": "txtopo.trident.states",
    "QueryFunction": "txtopo.trident.state_query",
    "ReadOnlyMapState": "txtopo.trident.state_query",
    "ReducerAggregator": "txtopo.trident.aggregates",
    "Split": "txtopo.trident.functions",
    "TridentStream": "txtopo.trident.stream",
    "Sum": "txtopo.trident.aggregates",
    "TridentTopology": "txtopo.trident.trident_topology",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)

__all__ = [
    "StaticState",
    "StaticRows",
    "PythonRows",
    "CsvRows",
    "Aggregator",
    "ArrowFilter",
    "ArrowFunction",
    "ChainedAggregate",
    "CombinerAggregator",
    "Count",
    "CountDistinct",
    "FilterNull",
    "GroupedStream",
    "MapGet",
    "Max",
    "Mean",
    "Min",
    "PersistedState",
    "PostgresMapState",
    "QueryFunction",
    "ReadOnlyMapState",
    "ReducerAggregator",
    "Split",
    "TridentStream",
    "Sum",
    "TridentTopology",
]
