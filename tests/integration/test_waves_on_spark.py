"""Waves on a real local session: which bolts may share a job, results that equal those of each batch alone, and what a
bad batch does to others.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tests.kit.drivers import wait_until
from tests.kit.fix_spark import frame_jobs
from tests.kit.list_spout import FIELDS, ListSpout, assignment, list_topology, row
from txtopo.committers.count_committer import CountCommitter
from txtopo.core.plan import Metadata
from txtopo.core.values import Failed, Outcome, Processed, TransactionAttempt
from txtopo.ports import Assignment
from txtopo.spark import jobs as jobs_module
from txtopo.spark import plan_copies
from txtopo.spark.executor import SparkExecutor, wave_refusal
from txtopo.spark.frames import frame_jobs as frame_jobs_module
from txtopo.spark.frames.frame_jobs import FrameJobs
from txtopo.spark.frames.frame_plan import Compiler
from txtopo.spouts.file_spout import FileSpout
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import SpoutContext, Topology
from txtopo.topology.spark_types import RowsPromise

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Cannot infer the eval type:UserWarning")]

CODE_HASH = b"code"
untyped: Any = F
"""Of these the stubs know only few forms."""


@pytest.fixture
def told() -> list[str]:
    """What the operator is told."""
    return []


@pytest.fixture
def started(spark_session: SparkSession, told: list[str]) -> Iterator[Callable[..., SparkExecutor]]:
    made: list[SparkExecutor] = []

    def make(topology: Topology, *, proven: bool = True) -> SparkExecutor:
        """With `proven` a first wave was compared already, so that the next one runs in one job alone."""
        made.append(SparkExecutor(topology, CODE_HASH, session=spark_session, say=told.append))
        made[-1].start()
        if proven:
            first = [idle_of(topology, txid) for txid in (901, 902)]
            assert all(isinstance(outcome, Processed) for outcome in made[-1].process(first))
            assert made[-1].one_by_one is None
        return made[-1]

    yield make
    for executor in made:
        executor.close()


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs each go of jobs was for."""
    counts: list[int] = []
    results = FrameJobs.results

    def noting(self: FrameJobs, runs: Any, *args: Any, **options: Any) -> Any:
        counts.append(len(runs))
        return results(self, runs, *args, **options)

    monkeypatch.setattr(FrameJobs, "results", noting)
    return counts


def idle_of(topology: Topology, txid: int) -> Assignment:
    """A batch of every spout with one small row."""
    metadata = {item.name: {"parts": [[row("first")]]} for item in topology.spouts}
    return Assignment(attempt=TransactionAttempt(txid, 0), metadata=metadata)


def processed(outcomes: Sequence[Outcome]) -> list[Processed]:
    found = [outcome for outcome in outcomes if isinstance(outcome, Processed)]
    assert len(found) == len(outcomes), [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    return found


def same(one: Processed, other: Processed) -> bool:
    """Equal in all that is committed, down to types and the order of rows."""
    assert (one.read, one.rejected, one.rejected_rows, one.edges, one.code_hash) == (
        other.read,
        other.rejected,
        other.rejected_rows,
        other.edges,
        other.code_hash,
    )
    for ours, theirs in zip(one.results, other.results, strict=True):
        assert (ours.committer, ours.arrived, ours.row_count) == (theirs.committer, theirs.arrived, theirs.row_count)
        assert ours.rows.schema.equals(theirs.rows.schema)
        assert ours.rows.equals(theirs.rows), (ours.rows.to_pylist(), theirs.rows.to_pylist())
    return True


def doubled(amount: int | None) -> int | None:
    return None if amount is None else amount * 2


def by_sql(frame: DataFrame) -> DataFrame:
    return frame.sparkSession.sql("select upper(name) name, amount, big, price from {d} where amount > 1", d=frame)


def by_view(frame: DataFrame) -> DataFrame:
    frame.createOrReplaceTempView("waves_view")
    return frame.sparkSession.sql("select * from waves_view v lateral view explode(array(1, 2)) t as x").drop("x")


CARRIED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "select": lambda d: d.select("big", "name", "amount", "price"),
    "filter": lambda d: d.filter("amount > 1 and name is not null").filter(F.col("amount") < 8),
    "columns": lambda d: (
        d.withColumn("amount", F.col("amount") + 1)
        .withColumnRenamed("big", "b")
        .withColumn("big", F.lit(1).cast("bigint"))
    ),
    "fillna": lambda d: d.fillna({"name": "none"}),
    "alias": lambda d: d.alias("z").filter("z.amount > 0").select("z.*"),
    "explode": lambda d: d.withColumn("x", F.explode(F.array(F.lit(1), F.col("amount")))).drop("x"),
    "outer": lambda d: d.selectExpr("*", "posexplode_outer(array(amount)) as (p, x)").drop("p", "x"),
    "stack": lambda d: d.selectExpr("*", "stack(2, 1, 2) as x").drop("x"),
    "udf": lambda d: d.withColumn("amount", F.udf(doubled, "int")("amount")),
    "sql": by_sql,
    "view": by_view,
    "pipe": lambda d: d.sparkSession.sql(
        "from {d} |> where amount > 0 |> extend amount + 1 as more |> select name, more as amount, big, price", d=d
    ),
    "hint": lambda d: d.hint("broadcast"),
    "nothing": lambda d: d,
}


CHAINS = [
    ["nothing", "select", "columns", "fillna", "alias", "filter"],
    ["explode", "outer", "stack", "sql"],
    ["view", "udf", "hint", "pipe"],
]


def chains() -> Topology:
    """All bolts that can be carried, some behind others, with a committer at each end and one at the spout itself."""
    builder = TopologyBuilder("chains")
    builder.set_spout("source", ListSpout())
    sums = {"amount": "amount_sum", "big": "big_sum", "price": "price_sum"}
    for number, names in enumerate(CHAINS):
        source = "source"
        for name in names:
            builder.set_bolt(name, CARRIED[name], inputs=source, fields=FIELDS)
            source = name
        committer = CountCommitter(f"counts_{number}", ["name"], count="n", sums=sums)
        builder.set_committer_bolt(f"to_{number}", committer).fields_grouping(source, ["name"])
    builder.set_committer_bolt("plain", CountCommitter("counts", ["amount", "name"], count="n")).fields_grouping(
        "source", ["name"]
    )
    return builder.build()


def random_rows(draw: random.Random, rows_max: int) -> list[Any]:
    names = [None, "a", "b", "ü", "A b", ""]
    return [
        row(
            draw.choice(names),
            draw.choice([None, 0, 1, 3, 7, 2**20]),
            draw.choice([None, 2**62]),
            draw.choice([None, "0.50", "-3"]),
        )
        for _ in range(draw.randint(0, rows_max))
    ]


def test_bolts_that_treat_each_row_by_itself_are_carried_and_waves_of_them_equal_their_batches_alone(
    started: Callable[..., SparkExecutor], shared: list[int], told: list[str]
) -> None:
    """One job for a wave changes nothing. A new Spark that renames a node, or plans one of these otherwise, fails here:
    bolts would be refused.
    """
    draw = random.Random(4711)
    executor = started(chains())
    assert sorted(name for names in CHAINS for name in names) == sorted(CARRIED)
    assert executor.one_by_one is None
    wave = [assignment(txid, random_rows(draw, 12)) for txid in range(1, 5)] + [assignment(5, [])]
    shared.clear()

    together = processed(executor.process(wave))
    alone = processed([executor.process([again])[0] for again in wave])

    assert shared == [5, 1, 1, 1, 1, 1]
    assert all(same(one, other) for one, other in zip(together, alone, strict=True))
    assert [outcome.attempt for outcome in together] == [item.attempt for item in wave]
    for at in range(len(CHAINS) + 1):
        assert sum(outcome.results[at].arrived for outcome in together), "a committer that gets nothing shows nothing"
    assert not told


def mean(amounts: pa.Array) -> pa.Array:
    return pa.array([int(pc.mean(amounts).as_py())] * len(amounts), pa.int32())


def arrow_means(frame: DataFrame) -> DataFrame:
    return frame.withColumn("amount", untyped.arrow_udf(mean, "int")("amount"))


def pandas_means(frame: DataFrame) -> DataFrame:
    import pandas as pd

    def mean(amounts: Any) -> Any:
        return pd.Series([int(amounts.mean())] * len(amounts))

    mean.__annotations__ = {"amounts": pd.Series, "return": pd.Series}
    return frame.withColumn("amount", untyped.pandas_udf(mean, "int")("amount"))


def above_average(frame: DataFrame) -> DataFrame:
    average = frame.select(F.avg("amount").alias("a"))
    return frame.filter(F.col("amount") > average.scalar())


def by_action(frame: DataFrame) -> DataFrame:
    return frame.filter(F.col("amount") >= frame.count())


def by_table_function(frame: DataFrame) -> DataFrame:
    class Last:
        def eval(self, amount: int) -> Iterator[tuple[int]]:
            yield (amount,)

        def terminate(self) -> Iterator[tuple[int]]:
            yield (99,)

    frame.sparkSession.udtf.register("waves_last", untyped.udtf(Last, returnType="x int"))
    return frame.sparkSession.sql("select name, x amount, big, price from {d}, lateral waves_last(amount)", d=frame)


REFUSED: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "aggregate": (
        lambda d: d.groupBy("name").agg(
            F.max("amount").alias("amount"), F.max("big").alias("big"), F.max("price").alias("price")
        ),
        "depends on other rows: Aggregate",
    ),
    "join": (lambda d: d.join(d.select("name").alias("e"), "name"), "depends on other rows: Join"),
    "union": (lambda d: d.union(d), "depends on other rows: Union"),
    "window": (
        lambda d: d.withColumn("amount", F.expr("cast(row_number() over (order by name) as int)")),
        "depends on other rows: Window",
    ),
    "limit": (lambda d: d.limit(2), "depends on other rows: GlobalLimit"),
    "offset": (lambda d: d.offset(2), "depends on other rows: Offset"),
    "distinct": (lambda d: d.distinct(), "depends on other rows: Deduplicate"),
    "sort": (lambda d: d.orderBy("name"), "depends on other rows: Sort"),
    "repartition": (lambda d: d.repartition(2, "name"), "depends on other rows: RepartitionByExpression"),
    "sample": (lambda d: d.sample(0.5, 1), "depends on other rows: Sample"),
    "observe": (lambda d: d.observe("o", F.count("*").alias("n")), "depends on other rows: CollectMetrics"),
    "chance": (lambda d: d.filter(F.rand() > 2), "gives another result each time: "),
    "row ids": (lambda d: d.withColumn("big", F.monotonically_increasing_id()), "gives another result each time: "),
    "current time": (lambda d: d.filter(F.current_timestamp() > "2020-01-01"), "depends on when or where it runs: "),
    "subquery": (above_average, "depends on other rows: a subquery"),
    "sql subquery": (
        lambda d: d.sparkSession.sql("select * from {d} where amount in (select max(amount) from {d})", d=d),
        "depends on other rows: a subquery",
    ),
    "action": (by_action, "runs a Spark job while it is called"),
    "arrow udf": (arrow_means, "depends on other rows: mean gets many rows together"),
    "pandas udf": (pandas_means, "depends on other rows: mean gets many rows together"),
    "mapInPandas": (lambda d: d.mapInPandas(lambda batches: batches, FIELDS), "depends on other rows: MapInPandas"),
    "mapInArrow": (lambda d: d.mapInArrow(lambda batches: batches, FIELDS), "depends on other rows: MapInArrow"),
    "table function": (by_table_function, "depends on other rows"),
    "with": (
        lambda d: d.sparkSession.sql("with t as (select * from {d}) select * from t", d=d),
        "is not known to treat each row by itself: WithCTE",
    ),
    "unpivot": (
        lambda d: d.unpivot(["name", "big", "price"], ["amount"], "k", "v").selectExpr(
            "name", "v amount", "big", "price"
        ),
        "is not known to treat each row by itself: Expand",
    ),
    "hidden column": (lambda d: d.withColumn("$RUN", F.lit(1)), "it has its own column $run"),
    "hidden input": (lambda d: d.filter("`$run` = 0"), "reads $run"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_bolt_that_looks_at_other_rows_is_named_as_the_reason_for_one_job_a_batch(
    spark_session: SparkSession, kind: str
) -> None:
    """Refused and said in words, which `explain` shows: a wave would mix the batches."""
    bolt, words = REFUSED[kind]

    refusal = wave_refusal(list_topology(lambda d: d.filter("amount > 0"), bolt), spark_session)

    assert refusal is not None
    assert refusal.startswith(f"bolt bolt2 {words}"), refusal


DAYS = "name is not null or cast(name as date) < "


@pytest.mark.parametrize(
    "condition",
    [
        *[
            f"{DAYS}{made}"
            for made in (
                "'today'",
                "to_date(' Yesterday')",
                "cast(concat('to', 'day') as date)",
                "date'tomorrow'",
                'DATE "now"',
                "to_timestamp('now')",
                "timestamp_ntz 'now'",
                "(select date'today')",
                "(select to_date('today'))",
            )
        ],
        lambda: (
            F.col("name").isNotNull()
            | (F.to_date("name") < F.when(F.col("amount") > 1, F.expr("date'today'")).otherwise("2024-01-01"))
        ),
    ],
)
def test_a_text_that_spark_takes_for_the_time_is_never_fixed_in_a_plan_of_many_batches(
    started: Callable[..., SparkExecutor], condition: Any
) -> None:
    """Promise: a plan that serves other batches gives what a new one would. Spark puts the day in while it plans, so
    each attempt is planned anew.
    """
    executor = started(
        list_topology(lambda frame: frame.filter(condition() if callable(condition) else condition)), proven=False
    )

    refused = executor.one_by_one
    assert refused is not None
    assert "bolt bolt1 depends on when it runs: a text such as 'today'" in refused or "a subquery" in refused
    assert frame_jobs(executor).reusable is None
    assert isinstance(executor.process([assignment(1, [row("a")])])[0], Processed)


@pytest.mark.parametrize("made", ["'2024-01-01'", "to_date('2024-01-01')", "date'2024-01-01'", "to_date(upper(name))"])
def test_any_other_day_is_a_day_like_any_other(started: Callable[..., SparkExecutor], made: str) -> None:
    executor = started(list_topology(lambda frame: frame.filter(f"{DAYS}{made}")), proven=False)

    assert executor.one_by_one is None
    assert frame_jobs(executor).reusable is not None


def test_a_refused_topology_processes_a_wave_batch_by_batch(
    started: Callable[..., SparkExecutor], shared: list[int]
) -> None:
    executor = started(list_topology(lambda d: d.dropDuplicates(["name"])), proven=False)

    outcomes = processed(executor.process([assignment(txid, [row("a"), row("a")]) for txid in (1, 2)]))

    assert executor.one_by_one == "bolt bolt1 depends on other rows: Deduplicate"
    assert shared == [1, 1]
    assert [outcome.results[0].arrived for outcome in outcomes] == [1, 1]


def test_a_bolt_of_several_inputs_is_refused(spark_session: SparkSession) -> None:
    builder = TopologyBuilder("two")
    for name in ("left", "right"):
        builder.set_spout(name, ListSpout())
    builder.set_bolt("both", lambda left, right: left.union(right), inputs=["left", "right"], fields=FIELDS)
    builder.set_committer_bolt("counter", CountCommitter("counts", ["name"], count="n")).fields_grouping(
        "both", ["name"]
    )

    assert wave_refusal(builder.build(), spark_session) == "bolt both reads several streams"


def test_a_spout_with_a_field_of_the_hidden_name_is_refused(spark_session: SparkSession) -> None:
    builder = TopologyBuilder("named")
    builder.set_spout("source", ListSpout("name string, `$Run` int"))
    builder.set_committer_bolt("counter", CountCommitter("counts", ["name"], count="n")).fields_grouping(
        "source", ["name"]
    )

    assert wave_refusal(builder.build(), spark_session) == "spout source has a field that is called $run"


def test_random_waves_equal_their_batches_alone(
    started: Callable[..., SparkExecutor], shared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same rows in the same order, same types, same `arrived`, batches without rows and parts included; in one task, in
    several, by a plan of its own.
    """
    draw = random.Random(15)
    executor = started(list_topology(lambda d: d.filter("amount > 0"), sums=("amount", "big", "price")))
    for at in range(6):
        parts_max, order_bytes = (1, 10**6) if at % 3 == 0 else (3, 10**6) if at % 3 == 1 else (2, 10)
        monkeypatch.setattr(jobs_module, "ORDER_BYTES_MAX", order_bytes)
        wave = [
            assignment(100 * at + number, *[random_rows(draw, 9) for _ in range(draw.randint(1, parts_max))])
            for number in range(draw.randint(2, 9))
        ]
        shared.clear()

        together = processed(executor.process(wave))
        assert shared == [len(wave)]
        alone = processed([executor.process([again])[0] for again in wave])

        assert all(same(one, other) for one, other in zip(together, alone, strict=True))
    assert len(executor._reports) == 0


def test_large_batches_of_one_part_are_spread_over_tasks(
    started: Callable[..., SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many small files a task, but not all of a wave of large ones."""
    executor = started(list_topology())
    monkeypatch.setattr(ListSpout, "batch_bytes", lambda self, metadata: 600, raising=False)
    made: list[Mapping[str, int]] = []
    compile_wave = Compiler.compile_wave

    def noting(self: Any, rows: Mapping[str, int], *args: Any) -> Any:
        made.append(rows)
        return compile_wave(self, rows, *args)

    monkeypatch.setattr(Compiler, "compile_wave", noting)
    wave = [assignment(txid, [row("a", txid)]) for txid in (1, 2, 3)]

    monkeypatch.setattr(frame_jobs_module, "TOGETHER_BYTES_MAX", 1800)
    processed(executor.process(wave))
    small = list(made)
    monkeypatch.setattr(frame_jobs_module, "TOGETHER_BYTES_MAX", 1799)
    outcomes = processed(executor.process(wave))

    assert (small, made) == ([], [{"source": 3}])
    assert [outcome.results[0].rows.to_pylist()[0]["sum_amount"] for outcome in outcomes] == [1, 2, 3]


def fails_on_seven(frame: DataFrame) -> DataFrame:
    return frame.withColumn("amount", (F.lit(7) / (F.col("amount") - 7)).cast("int"))


@pytest.mark.parametrize(
    ("bad", "words"),
    [([row("x", 7)], "[DIVIDE_BY_ZERO]"), (["bad"], "not a number"), ([row("x"), "os-error"], "disk is away")],
    ids=["a job fails", "an emitter reports", "infrastructure"],
)
def test_a_bad_batch_of_a_wave_fails_alone_and_its_neighbours_are_processed(
    started: Callable[..., SparkExecutor], shared: list[int], bad: list[Any], words: str
) -> None:
    """A wave whose job fails is a failure of none of its batches: each is run again alone, and only that counts."""
    executor = started(list_topology(fails_on_seven))
    shared.clear()

    before, failed, after = executor.process([assignment(1, [row("a")]), assignment(2, bad), assignment(3, [row("b")])])

    assert shared[:2] == [3, 1]
    assert isinstance(before, Processed) and isinstance(after, Processed)
    assert [found.results[0].rows.to_pylist()[0]["name"] for found in (before, after)] == ["a", "b"]
    assert isinstance(failed, Failed) and words in failed.failure.message
    alone = executor.process([assignment(2, bad, attempt=1)])[0]
    assert isinstance(alone, Failed) and alone.failure == failed.failure
    assert executor.one_by_one is None
    assert len(executor._reports) == 0


def test_the_neighbours_of_a_bad_batch_share_a_job_again(
    started: Callable[..., SparkExecutor], shared: list[int]
) -> None:
    """Where nothing names the bad one, by halves; each result has its own batch's rows."""
    executor = started(list_topology(fails_on_seven))
    shared.clear()
    amounts = [1, 2, 3, 4, 5, 7, 8, 9]

    outcomes = executor.process([assignment(txid, [row("a", amount)]) for txid, amount in enumerate(amounts, start=1)])

    assert shared[:5] == [8, 4, 4, 1, 1], "jobs that look for the bad row follow"
    assert [isinstance(outcome, Processed) for outcome in outcomes] == [amount != 7 for amount in amounts]
    sums = [one.results[0].rows.column("sum_amount").to_pylist() for one in outcomes if isinstance(one, Processed)]
    assert sums == [[7 // (amount - 7)] if amount > 7 else [-(7 // (7 - amount))] for amount in amounts if amount != 7]
    assert len(executor._reports) == 0


def test_files_that_are_only_counted_share_jobs_from_the_first_wave_on(
    started: Callable[..., SparkExecutor], shared: list[int], tmp_path: Path
) -> None:
    """No code that could keep something of one batch for another sees their rows: results are those of each alone."""
    topology = file_topology(tmp_path)
    executor = started(topology, proven=False)
    wave = [
        Assignment(attempt=TransactionAttempt(txid, 0), metadata={"lines": planned_file(tmp_path, txid)})
        for txid in (1, 2, 3)
    ]

    assert executor.waves_proven and not started(list_topology(), proven=False).waves_proven
    together = processed(executor.process(wave))
    assert shared == [3]

    for assigned, outcome in zip(wave, together, strict=True):
        (alone,) = processed(executor.process([assigned]))
        assert outcome.results[0].rows.equals(alone.results[0].rows)
        assert (outcome.read, outcome.edges) == (alone.read, alone.edges)
    assert [outcome.read for outcome in together] == [3, 4, 5]


def test_files_that_are_only_counted_have_one_plan_for_one_batch_and_for_many(
    started: Callable[..., SparkExecutor], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No plan is made while batches wait, and results are those of a separate plan: a batch of several parts has it."""
    made: list[str] = []
    for name in ("reusable", "reusable_wave", "compile", "compile_wave"):
        plain = getattr(Compiler, name)

        def noting(*args: Any, name: str = name, plain: Any = plain, **options: Any) -> Any:
            made.append(name)
            return plain(*args, **options)

        monkeypatch.setattr(Compiler, name, noting)
    monkeypatch.setattr(plan_copies, "WAIT_S_MAX", 3600.0)
    executor = started(file_topology(tmp_path), proven=False)
    copies = min(executor.spark.sparkContext.defaultParallelism, plan_copies.MADE_AT_START)
    assert made == ["reusable_wave", "compile_wave"] * copies
    made.clear()
    metadata = {txid: planned_file(tmp_path, txid) for txid in range(1, 13)}
    batches = [Assignment(attempt=TransactionAttempt(txid, 0), metadata={"lines": metadata[txid]}) for txid in metadata]

    with ThreadPoolExecutor(4) as pool:
        waves = [batches[:1], batches[1:4], batches[4:5], batches[5:9], *[[one] for one in batches[9:]]]
        found = [one for outcomes in pool.map(executor.process, waves) for one in processed(outcomes)]

    assert made == []
    for txid, outcome in zip(metadata, found, strict=True):
        whole = metadata[txid]
        divided = {**whole, "format": {**whole["format"], "part_bytes": 4}}
        (alone,) = processed(
            executor.process([Assignment(attempt=TransactionAttempt(txid, 1), metadata={"lines": divided})])
        )
        assert (outcome.read, outcome.edges) == (alone.read, alone.edges) and outcome.read == txid + 2
        assert outcome.results[0].rows.equals(alone.results[0].rows)
        assert outcome.results[0].arrived == alone.results[0].arrived
    assert set(made) == {"compile"}


@pytest.mark.parametrize("chain", range(len(CHAINS)))
def test_functions_of_spark_alone_share_jobs_from_the_first_wave_on(
    started: Callable[..., SparkExecutor], shared: list[int], tmp_path: Path, chain: int
) -> None:
    """Spark's own expressions keep nothing; a Python function in a column may, so that its first wave is compared."""
    names = CHAINS[chain]
    executor = started(files_through(tmp_path, *[CARRIED[name] for name in names]), proven=False)
    wave = [
        Assignment(attempt=TransactionAttempt(txid, 0), metadata={"lines": planned_file(tmp_path, txid)})
        for txid in (1, 2)
    ]

    assert executor.one_by_one is None and executor.waves_proven == ("udf" not in names)
    together = processed(executor.process(wave))

    assert shared == ([2] if "udf" not in names else [2, 1, 1])
    alone = processed([executor.process([one])[0] for one in wave])
    assert all(same(one, other) for one, other in zip(together, alone, strict=True))


def test_a_function_that_calls_python_only_later_ends_waves(
    started: Callable[..., SparkExecutor], shared: list[int], told: list[str], tmp_path: Path
) -> None:
    """Nothing was compared at the start, so nothing that needs it may share a job: each batch alone counts."""
    armed: list[bool] = []
    executor = started(
        files_through(tmp_path, lambda frame: CARRIED["udf"](frame) if armed else frame.filter("amount >= 0")),
        proven=False,
    )
    assert executor.waves_proven
    armed.append(True)
    metadata = [planned_file(tmp_path, txid) for txid in (1, 2)]
    # Several parts: a wave of them is planned by itself.
    divided = [{**found, "format": {**found["format"], "part_bytes": 4}} for found in metadata]

    processed(
        executor.process(
            [
                Assignment(attempt=TransactionAttempt(txid, 0), metadata={"lines": found})
                for txid, found in enumerate(divided, 1)
            ]
        )
    )

    assert executor.one_by_one == "bolt bolt1 contains PythonUDF, and did not at the start"
    assert shared == [2, 1, 1] and len(told) == 1


def wide(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("*", "2L AS big", "cast(1 AS decimal(38,2)) AS price")


def files_through(folder: Path, *functions: Callable[[DataFrame], DataFrame]) -> Topology:
    """Files, through these functions, to counts."""
    fields = "name string, amount int, big bigint, price decimal(38,2)"
    builder = TopologyBuilder("through")
    builder.set_spout("lines", FileSpout(folder, "name string, amount int", settled_s=0))
    builder.set_bolt(
        "wide", lambda d: d.selectExpr("*", "2L AS big", "cast(1 AS decimal(38,2)) AS price"), "lines", fields=fields
    )
    source = "wide"
    for number, function in enumerate(functions, 1):
        builder.set_bolt(f"bolt{number}", function, source, fields=fields)
        source = f"bolt{number}"
    counts = CountCommitter("t", ["name"], sums=["amount"])
    builder.set_committer_bolt("counter", counts).fields_grouping(source, ["name"])
    return builder.build()


def file_topology(folder: Path) -> Topology:
    builder = TopologyBuilder("files")
    builder.set_spout("lines", FileSpout(folder, "name string, amount int", settled_s=0))
    builder.set_committer_bolt("counter", CountCommitter("t", ["name"], sums=["amount"])).shuffle_grouping("lines")
    return builder.build()


def planned_file(folder: Path, txid: int) -> Metadata:
    """The plan of a file of a folder of its own, with txid + 2 rows."""
    path = folder / f"{txid}.csv"
    path.write_text("name,amount\n" + "".join(f"{'ab'[at % 2]},{at}\n" for at in range(txid + 2)))
    context = SpoutContext(
        topology="t", spout="lines", consumed={}, once=False, monotonic=lambda: 0.0, say=lambda words: None
    )
    coordinator = FileSpout(path, "name string, amount int", settled_s=0).open_coordinator(context)
    assert [coordinator.is_ready() for _ in range(2)][1]
    return coordinator.initialize_transaction(txid, None)


def test_the_first_wave_is_also_run_batch_by_batch_and_proves_the_others(
    started: Callable[..., SparkExecutor], shared: list[int], told: list[str]
) -> None:
    """Two batches, compared by result; what each gave alone counts. From then on a wave is one job."""
    executor = started(list_topology(), proven=False)
    wave = [assignment(txid, [row("a", txid)] * txid) for txid in range(1, 8)]

    first = processed(executor.process(wave))
    assert shared == [2, 1, 1, 5]
    processed(executor.process(wave))

    assert shared[4:] == [7]
    assert [outcome.results[0].arrived for outcome in first] == [1, 2, 3, 4, 5, 6, 7]
    assert not told and executor.one_by_one is None


def test_a_first_wave_without_a_verdict_proves_nothing(
    started: Callable[..., SparkExecutor], shared: list[int]
) -> None:
    """Where one of its batches is bad there is nothing to compare: the next wave is the first one."""
    executor = started(list_topology(), proven=False)
    executor.process([assignment(1, ["bad"]), assignment(2, [row("a")])])
    shared.clear()

    processed(executor.process([assignment(3, [row("a")]), assignment(2, [row("a")], attempt=1)]))

    assert shared == [2, 1, 1]


def remembers(frame: DataFrame) -> DataFrame:
    """Numbers its rows with what Spark takes for a function of one row."""
    seen: list[int] = []

    def number(amount: int) -> int:
        seen.append(amount)
        return len(seen)

    return frame.withColumn("amount", F.udf(number, "int")("amount"))


def test_a_difference_in_the_first_wave_ends_waves_loudly(
    started: Callable[..., SparkExecutor], shared: list[int], told: list[str]
) -> None:
    """A function that remembers earlier rows shows in no plan: the comparison finds it, and the results of each batch
    alone count.
    """
    executor = started(list_topology(remembers), proven=False)
    assert executor.one_by_one is None
    wave = [assignment(txid, [row("a"), row("b")]) for txid in (1, 2)]

    outcomes = processed(executor.process(wave))

    assert executor.one_by_one == "batch 2 has other results of committer counter in a first wave than alone"
    assert told == [
        (
            f"batches are processed one by one from now on: {executor.one_by_one}; what is committed is what each gave "
            f"alone"
        )
    ]
    for outcome in outcomes:
        assert [found["sum_amount"] for found in outcome.results[0].rows.to_pylist()] == [1, 2]
    shared.clear()
    executor.process(wave)
    assert shared == [1, 1]


def test_a_job_of_somebody_else_is_none_of_the_bolts(
    started: Callable[..., SparkExecutor], spark_session: SparkSession, shared: list[int], told: list[str]
) -> None:
    """Other workers run theirs while the plan of a wave is built: that a bolt depends on other rows must not be
    concluded from it.
    """
    armed, called, done = threading.Event(), threading.Event(), threading.Event()

    def bolt1(frame: DataFrame) -> DataFrame:
        if armed.is_set():
            called.set()
            assert done.wait(60)
        return frame.filter("amount > 0")

    executor = started(list_topology(bolt1))
    shared.clear()
    armed.set()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(executor.process, [assignment(txid, [row("a")], [row("b")]) for txid in (1, 2)])
        assert called.wait(60)
        spark_session.range(3).count()
        done.set()
        processed(running.result(60))

    assert shared == [2]
    assert executor.one_by_one is None and not told


def in_a_thread(action: Callable[[], Any]) -> None:
    thread = InheritableThread(target=action)
    thread.start()
    thread.join()


@pytest.mark.parametrize("run", [lambda action: action(), in_a_thread], ids=["by itself", "in a thread"])
def test_a_bolt_that_runs_a_job_only_later_ends_waves_and_the_operator_is_told(
    started: Callable[..., SparkExecutor], told: list[str], run: Callable[[Callable[[], Any]], None]
) -> None:
    armed = threading.Event()

    def bolt1(frame: DataFrame) -> DataFrame:
        if armed.is_set():
            run(frame.count)
        return frame.filter("amount > 0")

    executor = started(list_topology(bolt1))
    armed.set()

    for first in (1, 11):
        processed(executor.process([assignment(first + at, [row("a")], [row("b")]) for at in range(2)]))

    assert executor.one_by_one == "bolt bolt1 runs a Spark job while it is called"
    assert told == [
        (
            f"batches are processed one by one from now on: {executor.one_by_one}; what is committed is what each gave "
            f"alone"
        )
    ]


def test_cancelling_one_attempt_of_a_wave_loses_no_other(started: Callable[..., SparkExecutor], tmp_path: Path) -> None:
    """The job that they share is cancelled; the others are then run alone, inside the same call."""
    executor = started(list_topology())
    wave = [assignment(1, [f"wait {tmp_path}", row("a")]), assignment(2, [row("b")]), assignment(3, [row("c")])]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(executor.process, wave)
        wait_until(lambda: any(tmp_path.glob("pid-*")), "the start of the task")

        executor.cancel(TransactionAttempt(1, 0))
        cancelled, *others = running.result(30)
        (tmp_path / "go").touch()

    assert isinstance(cancelled, Failed)
    assert (cancelled.failure.kind, cancelled.failure.message) == ("infrastructure", "cancelled")
    assert [found.results[0].rows.to_pylist()[0]["name"] for found in processed(others)] == ["b", "c"]


def test_a_tasks_progress_counts_for_every_attempt_of_its_wave(
    started: Callable[..., SparkExecutor], tmp_path: Path
) -> None:
    """Timeouts go by progress: what the shared job gets done is progress of each."""
    executor = started(list_topology())
    wave = [assignment(1, [row("a")], [f"wait {tmp_path}", row("a")]), assignment(2, [row("b")])]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(executor.process, wave)

        wait_until(lambda: all(executor.progress(item.attempt) > 0 for item in wave), "progress of the whole wave")
        (tmp_path / "go").touch()

        processed(running.result(30))
    assert executor.progress(TransactionAttempt(2, 0)) == 0


def test_who_waits_for_its_turn_after_a_failed_wave_shows_progress(
    started: Callable[..., SparkExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of a wave must not time out while those before it run alone."""
    executor = started(list_topology())
    results, seen = FrameJobs.results, []

    def noting(self: FrameJobs, *args: Any, **options: Any) -> Any:
        seen.append(executor.progress(TransactionAttempt(4, 0)))
        return results(self, *args, **options)

    monkeypatch.setattr(FrameJobs, "results", noting)

    executor.process([assignment(1, ["bad"]), *(assignment(txid, [row("a")]) for txid in (2, 3, 4))])

    assert len(seen) == 5 and sorted(set(seen)) == seen


def test_nothing_of_a_wave_is_left_on_the_thread_that_ran_it(started: Callable[..., SparkExecutor]) -> None:
    executor = started(list_topology())
    executor.process([assignment(1, [row("a")]), assignment(2, [row("a")])])

    context = executor.spark.sparkContext
    assert not context.getJobTags()
    assert context.getLocalProperty("txtopo.order") is None


def test_a_spout_that_is_idle_in_a_batch_emits_nothing(
    started: Callable[..., SparkExecutor], shared: list[int]
) -> None:
    """A spout missing in the metadata has no part in the batch, alone and in a wave: nothing is read, nothing is
    missed.
    """
    builder = TopologyBuilder("two")
    for name in ("left", "right"):
        builder.set_spout(name, ListSpout())
        committer = CountCommitter(f"{name}_counts", ["name"], count="n")
        builder.set_committer_bolt(f"to_{name}", committer).fields_grouping(name, ["name"])
    executor = started(builder.build())
    shared.clear()

    def batch(txid: int, attempt: int = 0, **rows: list[list[Any]]) -> Assignment:
        metadata = {name: {"parts": parts} for name, parts in rows.items()}
        return Assignment(attempt=TransactionAttempt(txid, attempt), metadata=metadata)

    a, b = [row("a")], [row("b"), row("b")]
    waves: list[dict[str, Any]] = [{"left": [a]}, {"right": [b]}, {"left": [a, b], "right": [b]}]

    together = processed(executor.process([batch(txid, **rows) for txid, rows in enumerate(waves, 1)]))
    small = processed(executor.process([batch(txid, 1, **rows) for txid, rows in enumerate(waves[:2], 1)]))
    alone = processed([executor.process([batch(txid, 2, **rows)])[0] for txid, rows in enumerate(waves, 1)])

    assert shared == [3, 2, 1, 1, 1]
    arrived = [[result.arrived for result in outcome.results] for outcome in together]
    assert arrived == [[1, 0], [0, 2], [3, 2]]
    assert all(same(one, other) for one, other in zip(together, alone, strict=True))
    assert all(same(one, other) for one, other in zip(small, alone, strict=False))


class TableSpout(ListSpout):
    """Gives the rows of its metadata as a DataFrame of so many partitions, the last of them empty."""

    emits_frame = True

    def emit_part(self, metadata: Any, part: Any, tally: Any) -> Any:
        raise AssertionError("a spout that gives a DataFrame emits no parts")

    def frame(self, spark: SparkSession, metadata: Mapping[str, Any]) -> DataFrame:
        rows = [(name, amount) for name, amount in metadata["rows"]]
        # Not in the declared order, and narrower than declared.
        frame = spark.createDataFrame(rows, "name string, amount smallint").select("amount", "name")
        return frame.repartition(metadata["partitions"], "name").withColumns(
            {"big": F.lit(0), "price": F.lit(1).cast("decimal(5,2)")}
        )


def table_topology(bolt: Callable[[DataFrame], DataFrame]) -> Topology:
    builder = TopologyBuilder("table")
    builder.set_spout("source", TableSpout())
    builder.set_bolt("bolt1", bolt, inputs="source", fields=FIELDS)
    for name in ("by_name", "by_amount"):
        committer = CountCommitter(name, [name.removeprefix("by_")], count="n")
        builder.set_committer_bolt(name, committer).fields_grouping("bolt1", [name.removeprefix("by_")])
    return builder.build()


def table(txid: int, *rows: tuple[str, int], partitions: int = 3, attempt: int = 0) -> Assignment:
    metadata = {"source": {"rows": [list(found) for found in rows], "partitions": partitions}}
    return Assignment(attempt=TransactionAttempt(txid, attempt), metadata=metadata)


def test_a_spout_that_gives_a_dataframe_is_counted_by_partition_and_runs_without_waves(
    started: Callable[..., SparkExecutor], shared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are counted on their way by the tasks, once however many committers read them; it tells no batch, so
    that none share a job.
    """
    executor = started(table_topology(lambda d: d.filter("amount <> 5")), proven=False)
    assert executor.one_by_one == "spout source returns a DataFrame that does not show the batch of a row"

    first, second, empty, large = processed(
        executor.process(
            [table(1, ("a", 1), ("b", 2), ("b", 5)), table(2, ("c", 1)), table(3, partitions=1), table(4, ("d", 1))]
        )
    )
    monkeypatch.setattr(jobs_module, "ORDER_BYTES_MAX", 10)
    (inside,) = processed(executor.process([table(4, ("d", 1), attempt=1)]))

    assert shared == [1, 1, 1, 1, 1]
    assert [found.read for found in (first, second, empty, large)] == [3, 1, 0, 1]
    assert [[result.arrived for result in found.results] for found in (first, second, empty)] == [
        [2, 2],
        [1, 1],
        [0, 0],
    ]
    assert same(large, inside)


def test_the_bad_row_of_a_dataframe_spout_is_named_by_its_values(started: Callable[..., SparkExecutor]) -> None:
    executor = started(table_topology(fails_on_seven), proven=False)

    (failed,) = executor.process([table(1, ("a", 1), ("b", 2), ("x", 7))])

    assert isinstance(failed, Failed) and failed.failure.kind == "data"
    assert "[DIVIDE_BY_ZERO]" in failed.failure.message and "name='x', amount=7" in failed.failure.message


def test_a_dataframe_spout_whose_partitions_are_not_all_read_is_no_success(
    started: Callable[..., SparkExecutor],
) -> None:
    executor = started(table_topology(lambda d: d.limit(1)), proven=False)

    (failed,) = executor.process([table(1, ("a", 1), ("b", 2), ("c", 3))])

    assert isinstance(failed, Failed) and "gave no report" in failed.failure.message


class RangeSpout(TableSpout):
    """Its partitions follow no field, so that a union puts them behind each other."""

    def frame(self, spark: SparkSession, metadata: Mapping[str, Any]) -> DataFrame:
        frame = spark.range(0, metadata["rows"], 1, metadata["partitions"])
        return frame.selectExpr("'a' name", "1 amount", "id big", "cast(0 as decimal(38,2)) price")


def ranged(bolt: Callable[[DataFrame], DataFrame], rows: RowsPromise = "any") -> Topology:
    builder = TopologyBuilder("ranged")
    builder.set_spout("source", RangeSpout())
    builder.set_bolt("bolt1", bolt, inputs="source", fields=FIELDS, rows=rows)
    builder.set_committer_bolt("counter", CountCommitter("counts", ["name"], count="n")).fields_grouping(
        "bolt1", ["name"]
    )
    return builder.build()


def of_range(txid: int, rows: int, partitions: int) -> Assignment:
    metadata = {"source": {"rows": rows, "partitions": partitions}}
    return Assignment(attempt=TransactionAttempt(txid, 0), metadata=metadata)


@pytest.mark.parametrize("rows", ["same", "any"])
def test_a_dataframe_spout_that_is_read_twice_in_one_plan_is_no_success(
    started: Callable[..., SparkExecutor], rows: RowsPromise
) -> None:
    """Its second reading would count as rows read, and let a bolt that doubles every row pass for one that keeps their
    number.
    """
    executor = started(ranged(lambda d: d.union(d), rows), proven=False)

    for txid, partitions in enumerate((1, 2, 3), 1):
        (failed,) = executor.process([of_range(txid, 10, partitions)])

        assert isinstance(failed, Failed) and failed.failure.kind == "data"
        assert f"{2 * partitions} parts gave a report where there are {partitions}" in failed.failure.message
        assert "union with itself" in failed.failure.message


def test_partitions_of_a_dataframe_spout_that_are_read_in_one_task_are_no_success(
    started: Callable[..., SparkExecutor],
) -> None:
    """They could not be told apart: the message says what does it and what does not."""
    executor = started(ranged(lambda d: d.coalesce(1)), proven=False)
    other = started(ranged(lambda d: d.repartition(1)), proven=False)

    (failed,) = executor.process([of_range(1, 10, 2)])
    (outcome,) = processed(other.process([of_range(1, 10, 2)]))

    assert isinstance(failed, Failed)
    assert "coalesce() reads several partitions in one task, repartition() does not" in failed.failure.message
    assert (outcome.read, outcome.results[0].arrived) == (10, 10)


def test_a_spout_whose_dataframe_lacks_a_field_fails_its_batch_by_name(started: Callable[..., SparkExecutor]) -> None:
    executor = started(table_topology(lambda d: d), proven=False)
    spout = executor._topology.spouts[0].spout
    assert isinstance(spout, TableSpout)
    spout.frame = lambda spark, metadata: spark.range(3)  # type: ignore[method-assign]

    (failed,) = executor.process([table(1, ("a", 1))])

    assert isinstance(failed, Failed)
    assert (failed.failure.kind, failed.failure.component) == ("data", "source")
    assert failed.failure.message == "its DataFrame lacks amount, big, name, price"
