"""Compile a topology to DataFrames: an emitter leaf for each spout, the bolts on top, one aggregation for each committer.

Emitters learn their batch from a local property of the job, so a plan does not name the batch. Where every node of the physical plan is a pure
function of its one input partition, one plan serves all batches of one part (`is_reusable`): Spark then analyses, optimises and generates code
once a topology. Everything else (several parts, exchanges, tables, the current time, a bolt that runs jobs) is planned for each attempt anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError, TxtopoError
from txtopo.spark.aggregate import Counted, count_frame, required_fields, spark_schema
from txtopo.spark.emitting import Emitter
from txtopo.spark.failures import building_error
from txtopo.topology.components import BoltComponent, Topology

_PURE_NODES = frozenset(
    {
        "WholeStageCodegen", "InputAdapter", "Range", "MapInArrow", "Coalesce", "ColumnarToRow", "Project", "Filter", "Generate", "Expand", "Sort",
        "HashAggregate", "ObjectHashAggregate", "SortAggregate", "BatchEvalPython", "ArrowEvalPython", "MapInPandas",
    }
)  # fmt: skip
"""Physical nodes that keep nothing between two runs. An exchange is not among them: it keeps its files, and a second run would read the first's."""
_BATCH_BOUND = re.compile(
    r"current_?(?:timestamp|date|time)|localtimestamp|\bnow\(|\brand[ns]?\(|\buuid\(|\bshuffle\(", re.IGNORECASE
)
"""Expressions whose value Spark fixes when it plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The plans of a topology, one for each committer."""

    counted: tuple[Counted, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reusable:
    """A compiled topology that every batch of one part can run on."""

    compiled: Compiled
    needed: Mapping[str, list[str]]
    """By spout: the columns that anything behind it reads."""


class Compiler:
    """Builds the plans of one topology in one session."""

    def __init__(self, spark: SparkSession, topology: Topology, code_hash: bytes, reports: Accumulator[Any]) -> None:
        self._spark = spark
        self._topology = topology
        self._code_hash = code_hash
        self._reports = reports
        self._schemas: dict[str, StructType] = {item.name: spark_schema(item.spout.fields) for item in topology.spouts}
        self._slices_max = max(1, 4 * spark.sparkContext.defaultParallelism)

    def compile(self, parts: Mapping[str, int], order: str | None = None) -> Compiled:
        """Plan a batch with so many parts by spout. Raises BatchDataError where a bolt raises. `order` is for what no local property can hold."""
        streams = self._streams(parts, order)
        return Compiled(
            counted=tuple(
                count_frame(component, streams[component.input.source]) for component in self._topology.committers
            )
        )

    def check(self) -> None:
        """Run every bolt over empty input and compare its fields with those declared. Raises TopologyError or BatchDataError."""
        streams = self._streams(dict.fromkeys(self._schemas, 1), None)
        for bolt in self._topology.bolts:
            if bolt.fields is not None:
                _compare(bolt.name, bolt.fields, streams[bolt.name].schema, self._named(bolt.name))

    def reusable(self) -> tuple[Reusable | None, Mapping[str, list[str]]]:
        """One plan for all batches of one part, or None where it would not be exactly what planning anew gives; and the columns read, by spout."""
        scheduler = self._spark.sparkContext._jsc.sc().dagScheduler()
        jobs_before = scheduler.numTotalJobs()
        compiled = self.compile(dict.fromkeys(self._schemas, 1))
        executions = [counted.frame._jdf.queryExecution() for counted in compiled.counted]
        names = set().union(*(_referenced(execution.optimizedPlan()) for execution in executions))
        needed = {
            item.name: [name for name in item.spout.fields.names if name.lower() in names]
            for item in self._topology.spouts
        }
        if scheduler.numTotalJobs() != jobs_before or not all(is_reusable(execution) for execution in executions):
            return None, needed
        return Reusable(compiled=compiled, needed=needed), needed

    def _streams(self, parts: Mapping[str, int], order: str | None) -> dict[str, DataFrame]:
        streams = {item.name: self.leaf(item.name, parts[item.name], order) for item in self._topology.spouts}
        for bolt in self._topology.bolts:
            streams[bolt.name] = _call(bolt, [streams[subscription.source] for subscription in bolt.inputs])
        return streams

    def leaf(self, spout: str, parts: int, order: str | None) -> DataFrame:
        """The tuples of a spout, before any bolt."""
        component = next(item for item in self._topology.spouts if item.name == spout)
        emitter = Emitter(
            name=spout, spout=component.spout, code_hash=self._code_hash, reports=self._reports, order=order
        )

        def emit(batches: Any) -> Any:
            return emitter(batches)

        leaf = self._spark.range(0, parts, 1, min(parts, self._slices_max)).mapInArrow(emit, self._schemas[spout])
        # Spark forgets behind mapInArrow that one partition is one; told again, it groups without an exchange.
        return leaf.coalesce(1) if parts == 1 else leaf

    def _named(self, source: str) -> set[str]:
        named: set[str] = set()
        for committer in self._topology.committers:
            if committer.input.source == source:
                named |= set(required_fields(committer.bolt.aggregation()))
        return named


def is_reusable(execution: Any) -> bool:
    """Is every node of this JVM QueryExecution a pure function of one partition, with nothing that Spark fixed while planning?"""
    plan = execution.executedPlan()
    if not plan.subqueriesAll().isEmpty() or _BATCH_BOUND.search(execution.analyzed().toString()):
        return False
    return all(node.nodeName().partition(" ")[0] in _PURE_NODES for node in _nodes(plan))


def _call(bolt: BoltComponent, inputs: list[DataFrame]) -> DataFrame:
    try:
        if len(inputs) == 1:
            made = bolt.function(inputs[0])
        else:
            made = bolt.function(
                **{subscription.source: frame for subscription, frame in zip(bolt.inputs, inputs, strict=True)}
            )
    except TxtopoError:
        raise
    except Exception as error:
        raise building_error(error, bolt.name) from error
    if not isinstance(made, DataFrame):
        raise TopologyError(f"bolt {bolt.name} returned {type(made).__name__}, not a DataFrame")
    return made


def _compare(bolt: str, declared: Fields, actual: StructType, named: set[str]) -> None:
    found: dict[str, DataType] = {field.name: field.dataType for field in actual.fields}
    wanted = {field.name: field.dataType for field in spark_schema(declared).fields}
    for name, declared_type in wanted.items():
        if name not in found:
            raise TopologyError(
                f"bolt {bolt} declares field {name} {declared_type.simpleString()}, but returns only {', '.join(found) or 'no fields'}"
            )
        if found[name] != declared_type:
            raise TopologyError(
                f"bolt {bolt} declares field {name} as {declared_type.simpleString()}, but returns {found[name].simpleString()}"
            )
    folded = [name.lower() for name in found]
    doubled = sorted({name for name in (*wanted, *named) if folded.count(name.lower()) > 1})
    if doubled:
        raise TopologyError(f"bolt {bolt} returns more than one field called {', '.join(doubled)}")


def _nodes(plan: Any) -> list[Any]:
    children = plan.children()
    nodes = [plan]
    for index in range(children.size()):
        nodes.extend(_nodes(children.apply(index)))
    return nodes


def _referenced(plan: Any) -> set[str]:
    """Lower-case names of all attributes that any node of a logical plan reads: never fewer than the leaf's columns that matter."""
    names: set[str] = set()
    for node in _nodes(plan):
        references = node.references().toSeq()
        names |= {references.apply(index).name().lower() for index in range(references.size())}
    return names
