"""What every ledger must do with committers of one's own, as tests to inherit with the rest of `LedgerContract`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.contracts.ledger_driver import ROWS, Driver, LedgerWorld, committer, die_at, lead_on, result_of
from txtopo.committers.count_committer import CountCommitter
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.fields import Fields, parse_fields
from txtopo.core.values import (
    Aborted,
    AlreadyCommitted,
    CommitOutcome,
    Committed,
    CommitterResult,
    TransactionAttempt,
)
from txtopo.errors import BatchDataError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.testing.feeding import FeederSpout
from txtopo.topology.batch_committer import BatchCommitter, CommitCollector, CommitTransaction
from txtopo.topology.components import CommitterComponent, SpoutComponent, Subscription
from txtopo.topology.keyed_table import KeyedTable
from txtopo.topology.outputs import parse_outputs
from txtopo.topology.streams import Stream, Tuple
from txtopo.topology.tuple_bolts import BatchOutputCollector, TopologyContext

WORDS = parse_fields("word string, n bigint")
FLIGHTS = KeyedTable(
    table="public.flights_count",
    keys=parse_fields("carrier string, origin string"),
    values=parse_fields("count bigint, distance decimal(38,0)"),
)
Rows = Sequence[tuple[Any, ...]]
Commit = Callable[[CommitTransaction, Sequence[Tuple], CommitCollector], int | None]


class Words(BatchCommitter):
    """Inserts each row into `words`, or does what it is told."""

    def __init__(self, commit: Commit | None = None) -> None:
        self._commit = commit
        self.calls = 0

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
        """Apply."""
        self.calls += 1
        if self._commit is not None:
            return self._commit(transaction, rows, collector)
        for row in rows:
            transaction.execute("insert into words (word, n) values (%s, %s)", list(row.values))
        return None


class NewWords(Words):
    """Passes on what it got, with the number of its batch; names the rest."""

    outputs: ClassVar[Sequence[str | Stream]] = ["word string not null, txid bigint", Stream("n int", name="small")]

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
        """Write and emit."""
        super().commit(transaction, rows, collector)
        for row in rows:
            collector.emit([row["word"], transaction.attempt.txid])
            if row["n"] < 3:
                collector.emit([row["n"]], "small")
        return 0


class Below(BatchCommitter):
    """Reads committers: remembers in `self` what came, and writes how it came."""

    result: ClassVar[Sequence[str]] = ["line string"]
    config: ClassVar[Mapping[str, Any]] = {"mine": 2}

    def prepare(
        self,
        config: Mapping[str, Any],
        context: TopologyContext,
        collector: BatchOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Keeps the collector."""
        super().prepare(config, context, collector, attempt)
        self.lines = [f"0 {context.topology}/{context.component} {dict(config)} {attempt}"]

    def execute(self, tup: Tuple) -> None:
        """Remembers."""
        self.lines.append(f"{len(self.lines)} {tup.component}:{tup.stream} {list(tup.values)}")

    def finish_batch(self) -> None:
        """Emits what was remembered."""
        for line in reversed(self.lines):
            self.collector.emit([line])

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
        """Applies; this copy has taken in no tuple."""
        for row in rows:
            transaction.execute(
                "insert into lines (line, of) values (%s, %s)", [row["line"], hasattr(self, "lines") * 1]
            )
        return None


def own(bolt: BatchCommitter, name: str = "words", fields: Fields = WORDS, *reads: Subscription) -> CommitterComponent:
    """A committer of one's own."""
    inputs = reads or (Subscription(source="split"),)
    outputs = parse_outputs(name, bolt.outputs)
    return CommitterComponent(name=name, bolt=bolt, input=inputs[0], inputs=inputs, fields=fields, outputs=outputs)


def words(rows: Rows, name: str = "words", fields: Fields = WORDS, **wrong: Any) -> CommitterResult:
    """Its result rows; `wrong` overrides a number."""
    schema = arrow_schema(fields)
    columns = [pa.array([row[at] for row in rows], kind.type) for at, kind in enumerate(schema)]
    table = pa.Table.from_arrays(columns, schema=schema)
    numbers = {"arrived": len(rows), "row_count": len(rows), **wrong}
    return CommitterResult(committer=name, rows=table, bytes=100, **numbers)


def try_with(world: LedgerWorld, commit: Commit, rows: Rows = (("a", 1), ("b", 2))) -> tuple[Driver, CommitOutcome]:
    """A driver whose first batch is committed by this code."""
    driver = lead_on(world, committer(), own(Words(commit)))
    return driver, driver.commit(driver.ready(1), results=(result_of(ROWS), words(rows)))


def broken_number(transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
    """Fails in Python."""
    return int("no number")


class OwnCommitterContract:
    """A BatchCommitter: its driver half in the one database transaction of the batch."""

    def test_own_code_commits_with_its_batch_or_not_at_all(
        self, world: LedgerWorld, listen: Callable[[crash_points.Listener], None]
    ) -> None:
        """What `commit` does through the transaction happens exactly once, whenever the driver dies."""
        world.make_table("words", "word text, n bigint")
        driver = lead_on(world, own(Words()))
        plan, results = driver.ready(1), (words([("b", 2), ("a", None)], arrived=5),)
        die_at(listen, CrashPoint.BEFORE_COMMIT)
        with pytest.raises(KeyboardInterrupt):
            driver.commit(plan, results=results)
        crash_points.listen(None)
        assert world.own_rows("words") == []

        assert isinstance(driver.commit(plan, results=results), Committed)
        assert driver.commit(plan, results=results) == AlreadyCommitted(txid=1)

        assert world.own_rows("words") == [("a", None), ("b", 2)]
        assert world.counts(1) == {"words": (5, 5, 2, 2, 0)}

    def test_rows_come_in_one_order_with_their_names(self, world: LedgerWorld) -> None:
        """Two attempts apply alike: rows are sorted by all their fields, NULL last, and read as Tuples."""
        seen: list[list[Any]] = []

        def look(transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
            seen.append([(row["word"], row[1], row.component) for row in rows])
            return None

        rows = [("b", 1), (None, 3), ("a", None), ("Z", 9), ("a", 2)]
        driver = lead_on(world, own(Words(look)))
        for txid, order in ((1, rows), (2, rows[::-1])):
            assert isinstance(driver.commit(driver.ready(txid), results=(words(order),)), Committed)

        expected = [("Z", 9), ("a", 2), ("a", None), ("b", 1), (None, 3)]
        assert seen == [[(*row, "words") for row in expected]] * 2

    def test_digest_of_own_rows_depends_on_them_and_not_on_their_order(self, world: LedgerWorld) -> None:
        """The digest is the order-free sum of the hashes of the rows passed to it, hostile text included."""
        driver = lead_on(world, own(Words(lambda *_: None)))
        handed: list[list[tuple[Any, ...]]] = [
            [("a\0", 1), ("b", None)],
            [("b", None), ("a\0", 1)],
            [("a\0", None), ("b", 1)],
            [],
        ]
        outcomes = [driver.commit(driver.ready(txid), results=(words(rows),)) for txid, rows in enumerate(handed, 1)]

        digests = [outcome.counts[0].digest for outcome in outcomes if isinstance(outcome, Committed)]
        assert digests[0] == digests[1] != digests[2]
        assert digests[3] == 0

    def test_what_commit_returns_is_what_it_wrote(self, world: LedgerWorld) -> None:
        """Returns how many rows were written, None: all; the rest is ignored on purpose."""
        driver, outcome = try_with(world, lambda *_: 1)

        assert isinstance(outcome, Committed)
        assert world.counts(1)["words"] == (2, 2, 2, 1, 1)
        for txid, wrong in enumerate((3, -1, True, "2"), 2):
            driver = lead_on(world, committer(), own(Words(lambda *_, wrong=wrong: wrong)))
            results = (result_of(ROWS), words([("a", 1), ("b", 2)]))
            failed = driver.commit(
                driver.ready(2, path=f"/in/{txid}.csv") if txid == 2 else driver.plan(2, "/in/2.csv"), results=results
            )
            assert isinstance(failed, Aborted)
            assert f"commit returned {wrong!r}" in failed.failure.message

    def test_rows_that_are_not_those_of_the_tasks_are_refused(self, world: LedgerWorld) -> None:
        """I6: results = written + ignored, and both are counted from the rows passed to it."""
        driver = lead_on(world, own(Words(lambda *_: None)))

        outcome = driver.commit(driver.ready(1), results=(words([("a", 1)], row_count=2, arrived=2),))

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "words")
        assert "2 result rows were passed to it" in outcome.failure.message

    @pytest.mark.parametrize(
        "statement",
        [
            "commit",
            "ROLLBACK",
            "/* - */ (Commit",
            "begin",
            "start transaction",
            "savepoint a",
            "release a",
            "end",
            "abort",
            "prepare transaction 'x'",
            "set local statement_timeout = 0",
            "reset all",
            "discard all",
            "copy words from stdin",
            "select set_config('lock_timeout', '0', true)",
            "select 1; commit",
            "select ';'; select 2",
            "select $$;$$; select 2",
            "",
            "select 'open",
        ],
    )
    def test_own_code_cannot_end_its_database_transaction(self, world: LedgerWorld, statement: str) -> None:
        """P9: a statement that would end, divide or change it is refused, and so is the batch, even where the code
        swallows the error.
        """

        def swallow(transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
            try:
                transaction.execute(statement)
            except Exception:
                return None
            return None

        _, outcome = try_with(world, swallow)

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "words")
        assert "may not execute" in outcome.failure.message
        assert f"{__file__}:" in outcome.failure.message or "committer words" in outcome.failure.message
        assert (world.rows("flights_count"), world.ledger_row(1)) == ({}, None)

    @pytest.mark.parametrize(
        "statement",
        ["select ';' as \"a;b\" -- ; commit", "(select 1);", "/* ; /* */ ; */ select $a$;$a$", "select E'\\';'"],
    )
    def test_honest_statements_pass(self, world: LedgerWorld, statement: str) -> None:
        """What refuses everything proves nothing."""
        _, outcome = try_with(world, lambda transaction, *_: len(transaction.execute(statement)) * 0)

        assert isinstance(outcome, Committed)

    def test_an_error_of_own_code_is_a_data_failure(self, world: LedgerWorld) -> None:
        """Whatever the code raises fails the batch and names the committer; all committers or none (R13)."""
        driver, outcome = try_with(world, broken_number)

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "words")
        assert "committer words: ValueError: invalid literal" in outcome.failure.message
        assert "broken_number" in str(outcome.failure.detail)
        assert world.rows("flights_count") == {}

        def leave(*_: Any) -> int | None:
            raise SystemExit(3)

        driver = lead_on(world, committer(), own(Words(leave)))
        outcome = driver.commit(driver.plan(1), results=(result_of(ROWS), words([])))
        assert isinstance(outcome, Aborted)
        assert outcome.failure.kind == "data"

    def test_every_try_starts_from_a_fresh_copy(self, world: LedgerWorld) -> None:
        """What one attempt leaves in the object is not there for the next."""
        calls: list[int] = []
        bolt = Words()
        driver = lead_on(world, own(bolt))
        world.make_table("words", "word text, n bigint")

        class Counting(Words):
            def commit(self, *told: Any) -> int | None:
                super().commit(*told)
                calls.append(self.calls)
                return None

        driver = lead_on(world, own(Counting()))
        for txid in (1, 2):
            assert isinstance(driver.commit(driver.ready(txid), results=(words([("a", 1)]),)), Committed)

        assert calls == [1, 1]

    def test_own_code_cannot_be_taken_back(self, world: LedgerWorld) -> None:
        """A recompute needs contributions; a redrive of a quarantined batch needs none."""
        world.make_table("words", "word text, n bigint")
        driver = lead_on(world, own(Words()))
        results = (words([("a", 1)]),)
        driver.commit(driver.ready(1), results=results)
        driver.quarantine(driver.ready(2))

        redriven = driver.commit(driver.redo(3, 2), results=results)
        recomputed = driver.commit(driver.redo(4, 1), results=results)

        assert isinstance(redriven, Committed)
        assert isinstance(recomputed, Aborted)
        assert "is custom code, so batch 1 cannot be reversed" in recomputed.failure.message
        assert world.own_rows("words") == [("a", 1), ("a", 1)]

    def test_committers_feed_committers_in_the_same_turn(self, world: LedgerWorld) -> None:
        """It may feed committers further down in the same turn, beside what came out of the processing phase: all in
        one order, all counted.
        """
        world.make_table("words", "word text, n bigint")
        world.make_table("lines", "line text, of int")
        reads = (
            Subscription(source="other"),
            Subscription(source="words"),
            Subscription(source="words", stream="small"),
        )
        below = own(Below(), "below", parse_fields("x int"), *reads)
        counting = CountCommitter("by_word", ["word"], count="n", sums={"txid": "t"})
        emitted = parse_fields("word string not null, txid bigint")
        counted = CommitterComponent(name="by_word", bolt=counting, input=Subscription(source="words"), fields=emitted)
        # Set in the wrong order: a committer is applied behind those that it reads.
        driver = lead_on(world, below, counted, own(NewWords()))
        driver.spouts = (SpoutComponent(name="other", spout=FeederSpout("x int")),)
        other = words([(7,), (5,)], "other", parse_fields("x int")).rows
        results = (
            CommitterResult(
                committer="below", arrived=2, rows=None, row_count=0, bytes=0, deferred=(("other", "default", other),)
            ),
            words([("b", 2), ("a", 9), ("b", 1)]),
        )

        outcome = driver.commit(driver.ready(1), results=results)

        assert isinstance(outcome, Committed), outcome
        assert [count.committer for count in outcome.counts] == ["words", "below", "by_word"]
        assert world.counts(1) == {
            "words": (3, 3, 3, 0, 3),
            "below": (7, 7, 8, 8, 0),
            "by_word": (3, 3, 2, 2, 0),
        }
        found = sorted(line for line, _ in world.own_rows("lines"))
        assert found == [
            "0 flights/below {'mine': 2} 1:0",
            "1 words:small [1]",
            "2 words:small [2]",
            "3 words:default ['a', 1]",
            "4 words:default ['b', 1]",
            "5 words:default ['b', 1]",
            "6 other:default [5]",
            "7 other:default [7]",
        ]
        assert {of for _, of in world.own_rows("lines")} == {0}
        assert world.edges(1) == {
            "words -> below": (3, 3),
            "words:small -> below": (2, 2),
            "words -> by_word": (3, 3),
            "other -> below": (2, 2),
        }

    @pytest.mark.parametrize(
        ("values", "stream", "said"),
        [
            (["a"], "default", "emitted 1 values ('a'); it declares 2 fields (word, txid)"),
            (["a", "b"], "default", "field txid: 'b' (str) is no bigint"),
            ([None, 1], "default", "field word: NULL, but it is declared NOT NULL"),
            ([2**31], "small", "field n: 2147483648 (int) is no int"),
            (["a", 1], "nowhere", "on stream 'nowhere'; it declares default, small"),
        ],
    )
    def test_what_a_committer_emits_is_checked(
        self, world: LedgerWorld, values: list[Any], stream: str, said: str
    ) -> None:
        """Emitted values are checked against the declared outputs; field and value are named."""

        class Wrong(NewWords):
            def commit(
                self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector
            ) -> int | None:
                collector.emit(values, stream)
                return None

        driver = lead_on(world, own(Wrong()))

        outcome = driver.commit(driver.ready(1), results=(words([]),))

        assert isinstance(outcome, Aborted)
        assert (outcome.failure.kind, outcome.failure.component) == ("data", "words")
        assert said in outcome.failure.message

    def test_deferred_tuples_that_are_not_all_there_are_refused(self, world: LedgerWorld) -> None:
        """I6: arrived = counted, also for the executor half that runs in the driver."""
        driver = lead_on(
            world,
            own(NewWords(lambda *_: None)),
            own(Below(), "below", parse_fields("x int"), Subscription(source="other"), Subscription(source="words")),
        )
        handed = CommitterResult(committer="below", arrived=2, rows=None, row_count=0, bytes=0)

        outcome = driver.commit(driver.ready(1), results=(words([]), handed))

        assert isinstance(outcome, Aborted)
        assert "2 tuples arrived at its tasks, 0 were passed to the commit" in outcome.failure.message

    def test_rows_are_read_by_key_as_the_batch_before_has_left_them(self, world: LedgerWorld) -> None:
        """By `reads` it is applied before the committer of the table. NULL is a key, and a text that no table has is no
        key; after a failed statement nothing is read.
        """
        seen: list[Any] = []
        asked = [("AA", None), ("UA", "EWR"), ("AA", "JFK"), ("x", "y"), (None, None), ("a\0", "b"), ("AA", None)]

        def read(transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
            seen.append(dict(transaction.rows_of(FLIGHTS, asked)))
            assert transaction.rows_of(FLIGHTS, []) == {}
            return None

        bolt = Words(read)
        bolt.reads = ("by_route",)
        driver = lead_on(world, own(bolt), committer())
        for txid in (1, 2):
            outcome = driver.commit(driver.ready(txid), results=(words([("a", 1)]), result_of(ROWS)))
            assert isinstance(outcome, Committed), outcome

        assert seen == [{}, {(carrier, origin): (n, Decimal(sums)) for carrier, origin, n, sums in ROWS}]

    def test_reading_a_table_that_is_not_there_fails_the_batch(self, world: LedgerWorld) -> None:
        """Also if the code continues."""
        missing = KeyedTable(table="public.no_table", keys=FLIGHTS.keys, values=FLIGHTS.values)

        def read(transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
            with contextlib.suppress(BatchDataError):
                transaction.rows_of(missing, [("AA", "JFK")])
            with pytest.raises(BatchDataError):
                transaction.rows_of(FLIGHTS, [("AA", "JFK")])
            return None

        _, outcome = try_with(world, read)

        assert isinstance(outcome, Aborted)
        assert "no_table" in outcome.failure.message

    def test_nothing_is_read_after_the_commit(self, world: LedgerWorld) -> None:
        """A transaction that was kept is closed."""
        kept: list[CommitTransaction] = []
        _, outcome = try_with(world, lambda transaction, rows, collector: kept.append(transaction))
        assert isinstance(outcome, Committed), outcome
        with pytest.raises(BatchDataError, match=r"no_table|the commit of its batch has ended"):
            kept[0].rows_of(KeyedTable(table="public.no_table", keys=FLIGHTS.keys, values=FLIGHTS.values), [("a", "b")])

    def test_a_counting_committer_passes_on_the_rows_of_the_batch(self, world: LedgerWorld) -> None:
        """As they are after it; a batch that redoes one of them is refused, since what followed stays."""
        fields = "distance decimal(38,0), origin string"
        counting = committer(values=fields)
        passing = replace(counting, outputs=counting.bolt.declared_outputs("by_route"))
        world.make_table("words", "n bigint, word text")

        def insert(transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> int | None:
            for row in rows:
                transaction.execute("insert into words (n, word) values (%s, %s)", list(row.values))
            return None

        below = own(Words(insert), "below", parse_fields(fields), Subscription(source="by_route"))
        driver = lead_on(world, passing, below)
        for txid in (1, 2):
            outcome = driver.commit(driver.ready(txid), results=(result_of(ROWS),))
            assert isinstance(outcome, Committed), outcome

        expected = [(n * sums, origin) for _, origin, _, sums in ROWS for n in (1, 2)]
        found = [(int(n), word) for n, word in world.own_rows("words")]
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert world.counts(2)["below"] == (3, 3, 3, 3, 0)
        again = driver.commit(driver.redo(3, 1), results=(result_of(ROWS),))
        assert isinstance(again, Aborted)
        assert "by_route passes on its values, and what followed from those of batch 1" in again.failure.message
        assert len(world.own_rows("words")) == len(expected)
