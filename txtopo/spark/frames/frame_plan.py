"""Compiles a topology to DataFrames: an emitter leaf for each spout, then the bolts, then one aggregation for each
stream that committers read.

Emitters get their batch from a local property of the job, so a plan does not name the batch. If every node of the
physical plan is a pure function of its one input partition, one plan serves all batches of one part (`is_reusable`):
Spark then analyses, optimises and generates code once per topology. Everything else (several parts, exchanges, tables,
the current time, a bolt that runs jobs) is planned again for each attempt. A wave has another kind of plan: its leaves
put the run of each tuple into a hidden column that the bolts do not see (`txtopo.spark.frames.row_local_check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from txtopo.core.fields import Fields
from txtopo.core.plan import Metadata
from txtopo.errors import BatchDataError, TopologyError, TxtopoError
from txtopo.spark.emit import HIDDEN, FrameEmitter, TaskEmitter
from txtopo.spark.failures import building_error
from txtopo.spark.frames.aggregate import CountJob, count_frame, required_fields, spark_schema
from txtopo.spark.frames.earlier_calls import EarlierCalls
from txtopo.spark.frames.not_null_check import assert_not_null
from txtopo.spark.frames.persisted import let_go, let_go_on_error
from txtopo.spark.frames.plan_lock import PLAN_LOCK
from txtopo.spark.frames.planned_frames import columns_read, is_reusable
from txtopo.spark.frames.row_local_check import CarriedFrame, NotCarriedError, carry
from txtopo.spark.frames.source_nodes import check_leaves, leaf_of, leaves_in, unread
from txtopo.spark.frames.user_jobs import own_jobs
from txtopo.spark.jobs import Run, check
from txtopo.spark.session.kept_settings import settings_kept
from txtopo.spark.signatures import Signer
from txtopo.topology.components import BoltComponent, SpoutComponent, Topology
from txtopo.topology.partial_counts import PartialCount, counted_in_spout, counted_together
from txtopo.topology.user_exceptions import is_of_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The plans of a topology, one for each stream that committers read."""

    counted: tuple[CountJob, ...]
    leaves: tuple[DataFrame, ...]
    """The DataFrames that the bolts read."""
    foreign: str | None = None
    """Of a plan for waves: the bolt with code that is not Spark's own; None: there is none (see CarriedFrame)."""

    def unread(self) -> list[DataFrame]:
        """Leaves that no committer's plan reads: a separate job counts and checks their records, which are part of the
        batch too.
        """
        return unread(self.leaves, [counted.frame for counted in self.counted])

    def let_go(self) -> None:
        """Unpersist what bolts persisted, once all jobs have ended."""
        let_go(self.leaves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reusable:
    """A compiled topology that can run every batch of one part."""

    copy: int
    """Its number: it serves one order at a time."""
    compiled: Compiled
    needed: Mapping[str, list[str]]
    """By spout: the columns that anything downstream reads."""


class Compiler:
    """Builds the plans of one topology in one session."""

    def __init__(self, spark: SparkSession, topology: Topology, code_hash: bytes, reports: Accumulator[Any]) -> None:
        self._spark = spark
        self._topology = topology
        self._code_hash = code_hash
        self._reports = reports
        self._schemas: dict[str, StructType] = {item.name: spark_schema(item.spout.fields) for item in topology.spouts}
        self._partial = {item.name: partial_count(topology, item.name) for item in topology.spouts}
        self._counting = topology.acking != "off"
        self._slices_max = max(1, 4 * spark.sparkContext.defaultParallelism)
        self._earlier = EarlierCalls(spark)
        self.compares = True
        """False: no wave is compared with separate runs, so a plan for waves with foreign code is refused."""

    def compile(
        self,
        rows: Mapping[str, int],
        signer: Signer,
        order: str | None = None,
        frames: Mapping[str, DataFrame] | None = None,
        runs: Sequence[Run] = (),
    ) -> Compiled:
        """Plan a batch with this number of source tasks by spout. Raises BatchDataError if a bolt raises,
        CancelledError.

        `signer` signs for this copy of the plan. `order` is the order if it is too large for a local property, `frames`
        are the tuples of spouts that give a DataFrame. `runs` are the runs that the plan is for.
        """
        leaves = {**self._leaves(rows, signer, order), **(frames or {})}
        with let_go_on_error(leaves.values()):
            streams = self._streams(leaves, runs)
            counted = self._counted(streams, signer)
        return Compiled(counted=counted, leaves=tuple(leaves.values()))

    def compile_wave(
        self, rows: Mapping[str, int], signer: Signer, order: str | None = None, runs: Sequence[Run] = ()
    ) -> Compiled:
        """Plan several batches as one. Raises NotCarriedError with the bolt that would see more than its own batch,
        CancelledError.
        """
        self._check_spouts_can_tell_runs()
        leaves = self._leaves(rows, signer, order, HIDDEN)
        with let_go_on_error(leaves.values()):
            found = self._carried_streams(leaves, [item.input.source for item in self._topology.committers], runs)
            foreign = next((one.foreign for one in found.values() if one.foreign is not None), None)
            check_own_code(foreign, compares=self.compares)
            streams = {name: one.frame for name, one in found.items()}
            if all(count == 1 for count in rows.values()):
                # Spark also forgets after Python functions that there is only one partition.
                streams = {name: frame.coalesce(1) for name, frame in streams.items()}
            counted = self._counted(streams, signer, HIDDEN)
        return Compiled(counted=counted, leaves=tuple(leaves.values()), foreign=foreign)

    def _counted(
        self, streams: Mapping[str, DataFrame], signer: Signer, run: str | None = None
    ) -> tuple[CountJob, ...]:
        return tuple(
            count_frame(
                readers,
                streams[source],
                run,
                counting=self._counting,
                copy=signer.copy,
                partial=self._partial.get(source),
            )
            for source, readers in counted_together(self._topology).items()
        )

    def check(self, signer: Signer) -> None:
        """Run every bolt over empty input and compare its fields with those declared. Raises TopologyError or
        BatchDataError.
        """
        leaves = self._leaves(self.one_task, signer)
        try:
            streams = self._streams(leaves)
            for bolt in self._topology.frame_bolts:
                if bolt.fields is not None and bolt.name in streams:
                    compare_fields(bolt.name, bolt.fields, streams[bolt.name].schema, self._named(bolt.name))
        finally:
            let_go(leaves.values())

    def reusable(self, signer: Signer, runs: Sequence[Run] = ()) -> tuple[Reusable | None, Mapping[str, list[str]]]:
        """Return one plan for all batches of one part, and the columns read, by spout; None if the plan would not equal
        a new plan exactly.

        `runs` are the runs that wait for it. Raises BatchDataError, CancelledError.
        """
        with own_jobs(self._spark) as own:
            compiled = self.compile(self.one_task, signer, runs=runs)
        compiled.let_go()  # Before Spark reads it: a plan that runs again and again keeps nothing between two runs.
        needed = self._needed(compiled)
        if (
            (own.any() if runs else own.any_in_process())
            or any(item.spout.emits_frame for item in self._topology.spouts)
            or not all(is_reusable(counted.frame, counted.stream) for counted in compiled.counted)
        ):
            return None, needed
        return Reusable(copy=signer.copy, compiled=compiled, needed=needed), needed

    def reusable_wave(self, signer: Signer, runs: Sequence[Run] = ()) -> tuple[Reusable | None, str | None]:
        """Return one plan for all waves with one task per spout, None if each needs a separate plan; and
        `Compiled.foreign`. Raises NotCarriedError if waves are impossible.
        """
        compiled = self.compile_wave(self.one_task, signer, runs=runs)
        compiled.let_go()
        if not all(is_reusable(counted.frame, counted.stream) for counted in compiled.counted):
            return None, compiled.foreign
        return Reusable(copy=signer.copy, compiled=compiled, needed=self._needed(compiled)), compiled.foreign

    def _check_spouts_can_tell_runs(self) -> None:
        for item in self._topology.spouts:
            if item.spout.emits_frame:
                raise NotCarriedError(f"spout {item.name} returns a DataFrame that does not show the batch of a row")
            if HIDDEN in map(str.lower, item.spout.fields.names):
                raise NotCarriedError(f"spout {item.name} has a field that is called {HIDDEN}")

    def _leaves(
        self, rows: Mapping[str, int], signer: Signer, order: str | None = None, hidden: str | None = None
    ) -> dict[str, DataFrame]:
        spouts = self._topology.spouts
        return {
            item.name: self.leaf(
                item.name, rows[item.name], signer, order, hidden=hidden, partial=self._partial[item.name]
            )
            for item in spouts
        }

    def _streams(self, leaves: Mapping[str, DataFrame], runs: Sequence[Run] = ()) -> dict[str, DataFrame]:
        """Return by name the tuples of every spout, and of every DataFrame bolt with no tuple bolt upstream."""
        streams = dict(leaves)
        with PLAN_LOCK.taken(runs):
            for bolt in self._bolts_on_frames():
                check(runs)
                streams[bolt.name] = call_bolt(
                    bolt, [streams[subscription.source] for subscription in bolt.inputs], self._earlier
                )
        self._check_leaves(leaves, streams)
        return streams

    def _check_leaves(self, leaves: Mapping[str, DataFrame], streams: Mapping[str, DataFrame]) -> None:
        own = leaves_in(leaves.values())
        for bolt in self._bolts_on_frames():
            check_leaves(bolt.name, streams[bolt.name], own)

    def _carried_streams(
        self, leaves: Mapping[str, DataFrame], wanted: Iterable[str], runs: Sequence[Run]
    ) -> dict[str, CarriedFrame]:
        """Return the streams in `wanted` with the column HIDDEN as their last. Raises NotCarriedError with a bolt that
        makes this impossible.
        """
        streams = {name: leaf.drop(HIDDEN) for name, leaf in leaves.items()}
        ways: dict[str, list[str]] = {name: [] for name in leaves}
        spout_of = {name: name for name in leaves}
        with PLAN_LOCK.taken(runs):
            for bolt in self._bolts_on_frames():
                check(runs)
                if len(bolt.inputs) > 1:
                    raise NotCarriedError(f"bolt {bolt.name} reads several streams")
                source = bolt.inputs[0].source
                with own_jobs(self._spark) as own:
                    streams[bolt.name] = call_bolt(bolt, [streams[source]], self._earlier)
                # Nothing else runs at the start, so a job in a thread that does not inherit the properties is noticed
                # as well.
                if own.any() if runs else own.any_in_process():
                    # What it read may be a literal in its plan, which a walk over the plan cannot see.
                    raise NotCarriedError(f"bolt {bolt.name} runs a Spark job while it is called")
                ways[bolt.name] = [*ways[source], bolt.name]
                spout_of[bolt.name] = spout_of[source]
        self._check_leaves(leaves, streams)
        return {name: carried(ways[name], streams, leaves[spout_of[name]], name) for name in dict.fromkeys(wanted)}

    def leaf(
        self,
        spout: str,
        rows: int,
        signer: Signer,
        order: str | None,
        *,
        hidden: str | None = None,
        partial: PartialCount | None = None,
    ) -> DataFrame:
        """Return the tuples of a spout, before any bolt, read by `rows` source tasks, or their groups if `partial` is
        given; with the number of their run in the column `hidden` if it is given.
        """
        component = next(item for item in self._topology.spouts if item.name == spout)
        emitter = TaskEmitter(
            name=spout,
            spout=component.spout,
            code_hash=self._code_hash,
            reports=self._reports,
            signer=signer,
            order=order,
            hidden=hidden,
            partial=partial,
        )
        schema = self._schema(component, partial)
        if hidden is not None:
            schema = StructType([*schema.fields, StructField(hidden, IntegerType(), nullable=False)])
        leaf = leaf_of(self._spark.range(0, rows, 1, min(rows, self._slices_max)), emitter, schema)
        # Spark forgets after mapInArrow that there is only one partition; after `coalesce` it groups without exchange.
        return leaf.coalesce(1) if rows == 1 else leaf

    def frame(self, spout: str, metadata: Metadata, runs: Sequence[Run] = ()) -> DataFrame:
        """Return what a spout that gives a DataFrame gives for a batch. Raises BatchDataError with its name,
        CancelledError.
        """
        component = next(item for item in self._topology.spouts if item.name == spout)
        with PLAN_LOCK.taken(runs):
            return call_spout(component, self._spark, metadata)

    def counted(
        self, spout: str, frame: DataFrame, signer: Signer, order: str | None, *, one_by_one: bool = False
    ) -> DataFrame:
        """Return the tuples of such a spout, counted by partition as they pass, or their groups unless they must leave
        `one_by_one`. `signer` names the run that the DataFrame belongs to.
        """
        partial = None if one_by_one else self._partial[spout]
        component = next(item for item in self._topology.spouts if item.name == spout)
        emitter = FrameEmitter(
            name=spout,
            spout=component.spout,
            code_hash=self._code_hash,
            reports=self._reports,
            signer=signer,
            order=order,
            partial=partial,
        )
        return leaf_of(frame, emitter, self._schema(component, partial))

    def _schema(self, spout: SpoutComponent, partial: PartialCount | None) -> StructType:
        if partial is None:
            return self._schemas[spout.name]
        schema: StructType = spark_schema(Fields(partial.columns(spout.spout.fields)))
        return schema

    def is_counted_in_spout(self, source: str) -> bool:
        """Return True if the tasks of this spout count its tuples; False if not, and for a bolt."""
        return self._partial.get(source) is not None

    @property
    def one_task(self) -> dict[str, int]:
        """Return the number of source tasks by spout for a batch of one part."""
        return dict.fromkeys(self._schemas, 1)

    def _bolts_on_frames(self) -> Iterator[BoltComponent]:
        known = set(self._schemas)
        for bolt in self._topology.frame_bolts:
            if all(subscription.source in known for subscription in bolt.inputs):
                known.add(bolt.name)
                yield bolt

    def _needed(self, compiled: Compiled) -> dict[str, list[str]]:
        names = columns_read(counted.frame for counted in compiled.counted)
        # Groups have columns of their own; their tasks read these.
        for partial in filter(None, self._partial.values()):
            names |= {name.lower() for name in partial.fields}
        return {
            item.name: [name for name in item.spout.fields.names if name.lower() in names]
            for item in self._topology.spouts
        }

    def _named(self, source: str) -> set[str]:
        named: set[str] = set()
        for committer in self._topology.committers:
            if committer.input.source == source:
                named |= set(required_fields(committer.bolt.aggregation()))
        return named


def partial_count(topology: Topology, spout: str) -> PartialCount | None:
    """Return how the tasks of a spout group its tuples; None if these are sent one by one."""
    found = counted_in_spout(topology, spout)
    return None if isinstance(found, str) else found


def carried(way: Sequence[str], streams: Mapping[str, DataFrame], leaf: DataFrame, name: str) -> CarriedFrame:
    """Return a stream with HIDDEN, carried bolt by bolt so that the first bolt that makes this impossible, or has
    foreign code, can be named.
    """
    if not way:
        return carry(streams[name], leaf, HIDDEN)
    foreign: str | None = None
    for bolt in way:
        try:
            found = carry(streams[bolt], leaf, HIDDEN)
        except NotCarriedError as error:
            raise NotCarriedError(f"bolt {bolt} {error}") from error
        if foreign is None and found.foreign is not None:
            foreign = f"bolt {bolt} contains {found.foreign}"
    return CarriedFrame(found.frame, foreign)


def check_own_code(foreign: str | None, *, compares: bool) -> None:
    """Raise NotCarriedError if a plan for waves has code that was not there at the start, when it was decided that no
    wave needs to be compared.
    """
    if foreign is not None and not compares:
        raise NotCarriedError(f"{foreign}, and did not at the start")


def call_spout(component: SpoutComponent, spark: SparkSession, metadata: Metadata) -> DataFrame:
    """Return what a spout that gives a DataFrame gives for a batch, with exactly its declared fields. Raises
    BatchDataError with its name.
    """
    spout = component.name
    try:
        schema = spark_schema(component.spout.fields)
        with settings_kept(spark, spout):
            made = component.spout.frame(spark, metadata)
        if not isinstance(made, DataFrame):
            raise TopologyError(f"spout {spout} gave {type(made).__name__}, not a DataFrame")
        # Spark's `to` would fill a missing field with NULL.
        if missing := set(map(str.lower, schema.names)) - set(map(str.lower, made.columns)):
            raise BatchDataError(
                f"its DataFrame lacks {', '.join(sorted(missing))}", component=spout, fault="missing columns"
            )
        check_leaves(spout, made, frozenset())
        return made.to(schema)
    except TxtopoError:
        raise
    except BaseException as error:
        if not is_of_code(error):
            raise
        raise building_error(error, spout) from error


def call_bolt(bolt: BoltComponent, inputs: list[DataFrame], earlier: EarlierCalls) -> DataFrame:
    """Return what a bolt makes of its inputs. Raises BatchDataError with the bolt and the user's line, TopologyError if
    it returns no DataFrame.
    """
    called = earlier.now()
    try:
        with settings_kept(inputs[0].sparkSession, bolt.name):
            if len(inputs) == 1:
                made = bolt.function(inputs[0])
            else:
                made = bolt.function(
                    **{subscription.source: frame for subscription, frame in zip(bolt.inputs, inputs, strict=True)}
                )
    except TxtopoError:
        raise
    except BaseException as error:
        if not is_of_code(error):
            raise
        raise building_error(error, bolt.name) from error
    if not isinstance(made, DataFrame):
        raise TopologyError(f"bolt {bolt.name} returned {type(made).__name__}, not a DataFrame")
    earlier.check(bolt.name, made, inputs, called)
    return assert_not_null(bolt.name, bolt.fields, made)


def compare_fields(bolt: str, declared: Fields, actual: StructType, named: set[str]) -> None:
    """Compare what a bolt declares with what it returns; `named` are fields that something downstream names in
    addition. Raises TopologyError.
    """
    found: dict[str, DataType] = {field.name: field.dataType for field in actual.fields}
    wanted = {field.name: field.dataType for field in spark_schema(declared).fields}
    for name, declared_type in wanted.items():
        if name not in found:
            raise TopologyError(
                f"bolt {bolt} declares field {name} {declared_type.simpleString()}, but returns only "
                f"{', '.join(found) or 'no fields'}"
            )
        if found[name] != declared_type:
            raise TopologyError(
                f"bolt {bolt} declares field {name} as {declared_type.simpleString()}, but returns "
                f"{found[name].simpleString()}"
            )
    folded = [name.lower() for name in found]
    doubled = sorted({name for name in (*wanted, *named) if folded.count(name.lower()) > 1})
    if doubled:
        raise TopologyError(f"bolt {bolt} returns more than one field called {', '.join(doubled)}")
