"""What every executor must do, as tests from spout to committer: subclass `ExecutorContract` and give `make_executor`.

Counts are compared with an independent recount by Python's own `csv` and `decimal`.
"""

from __future__ import annotations

import csv
import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from txtopo.committers.count_committer import CountCommitter
from txtopo.core.values import Failed, Outcome, Processed, TransactionAttempt
from txtopo.ports import Assignment, Executor
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.spouts.file_spout import FileSpout
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import SpoutContext, Topology

SPOUT = "sales"
COMMITTER = "by_shop"
FIELDS = "shop string, day date, price decimal(12,2), amount int"
HEADER = "shop,day,price,amount"
CODE_HASH = bytes(range(32))
"""What `make_executor` gives its executor as the code's hash."""


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def plan_batches(topology: Topology) -> list[dict[str, Any]]:
    """Metadata of every batch of a `once` run, by the spout's own coordinator half, on a simulated clock."""
    clock = _Clock()
    component = topology.spouts[0]
    context = SpoutContext(
        topology=topology.name,
        spout=component.name,
        consumed={},
        once=True,
        monotonic=clock.monotonic,
        say=lambda line: None,
    )
    coordinator = component.spout.open_coordinator(context)
    planned: list[dict[str, Any]] = []
    while not coordinator.is_exhausted():
        if coordinator.is_ready():
            previous = planned[-1][component.name] if planned else None
            planned.append({component.name: coordinator.initialize_transaction(len(planned) + 1, previous)})
        clock.now += 1.0
    coordinator.close()
    return planned


def recount(paths: Sequence[Path]) -> dict[tuple[str | None, datetime.date | None], tuple[int, Decimal, int]]:
    """(shop, day) -> (rows, sum of price, sum of amount), in plain Python. An empty field is NULL here."""
    counts: dict[tuple[str | None, datetime.date | None], tuple[int, Decimal, int]] = {}
    for path in paths:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                key = (row["shop"] or None, datetime.date.fromisoformat(row["day"]) if row["day"] else None)
                rows, price, amount = counts.get(key, (0, Decimal(0), 0))
                counts[key] = (rows + 1, price + Decimal(row["price"] or 0), amount + int(row["amount"] or 0))
    return counts


def counted(rows: pa.Table) -> dict[tuple[str | None, datetime.date | None], tuple[int, Decimal, int]]:
    """Result rows in the form of `recount`; a key that comes twice is an error."""
    found = {(row["shop"], row["day"]): (row["sales"], row["turnover"], int(row["pieces"])) for row in rows.to_pylist()}
    if len(found) != rows.num_rows:
        raise AssertionError(f"{rows.num_rows} result rows hold {len(found)} keys")
    return found


class ExecutorContract:
    """Tests that call `make_executor(topology)`; it gives an executor whose code hash is CODE_HASH, started by the
    test, closed by whoever made it.
    """

    def make_executor(self, topology: Topology) -> Executor:
        raise NotImplementedError

    def topology(self, folder: Path, fields: str = FIELDS, **options: Any) -> Topology:
        """From files in `folder` to counts by shop and day."""
        builder = TopologyBuilder("contract")
        builder.set_spout(SPOUT, FileSpout(folder, fields, **options))
        sums = {"price": "turnover", "amount": "pieces"}
        committer = CountCommitter("sales_by_shop", ["shop", "day"], count="sales", sums=sums)
        builder.set_committer_bolt(COMMITTER, committer).fields_grouping(SPOUT, ["shop", "day"])
        return builder.build()

    def run(self, topology: Topology, planned: Sequence[Mapping[str, Any]], attempt: int = 0) -> list[Outcome]:
        """Process all of them as one wave."""
        executor = self.make_executor(topology)
        executor.start()
        return list(executor.process(_assignments(planned, attempt)))

    def one(self, folder: Path, **options: Any) -> Processed:
        """Process all files of the folder as one batch that must succeed."""
        topology = self.topology(folder, files_per_batch=100, **options)
        (outcome,) = self.run(topology, plan_batches(topology))
        assert isinstance(outcome, Processed), outcome
        return outcome

    def check_counts(self, outcome: Processed, paths: Sequence[Path]) -> None:
        """Results equal the recount, and the numbers of rows agree with it."""
        expected = recount(paths)
        (result,) = outcome.results
        assert counted(result.rows) == expected
        assert result.committer == COMMITTER
        assert result.row_count == result.rows.num_rows == len(expected)
        assert result.arrived == outcome.read == sum(rows for rows, _, _ in expected.values())
        assert outcome.rejected == outcome.dead_lettered == 0

    def test_counts_and_exact_sums_equal_an_independent_recount(self, tmp_path: Path) -> None:
        """Row counts and sums by key are exact; NULL is a key like any other; a NULL adds nothing to a sum."""
        lines = [
            HEADER,
            "north,2024-01-01,0.10,1",
            "north,2024-01-01,0.20,2",
            "south,,1e2,",
            ",2024-01-01,,5",
            ",,9999999999.99,-7",
            ",,0.01,2147483647",
            "only,2024-02-02,,",
        ]
        path = _write(tmp_path / "a.csv", *lines)

        outcome = self.one(tmp_path)

        self.check_counts(outcome, [path])
        assert outcome.code_hash == CODE_HASH
        assert counted(outcome.results[0].rows)[(None, None)] == (2, Decimal("10000000000.00"), 2147483640)

    def test_result_rows_have_the_columns_and_types_of_the_committer(self, tmp_path: Path) -> None:
        _write(tmp_path / "a.csv", HEADER, "north,2024-01-01,1.00,1")
        topology = self.topology(tmp_path)

        (outcome,) = self.run(topology, plan_batches(topology))

        assert isinstance(outcome, Processed)
        expected = arrow_schema(topology.committers[0].result_fields)
        found = outcome.results[0].rows.schema
        assert found.names == expected.names == ["shop", "day", "sales", "turnover", "pieces"]
        assert found.types == expected.types

    def test_a_file_without_records_is_a_batch_with_no_rows(self, tmp_path: Path) -> None:
        """An empty batch is a legal batch (K6), of 0 bytes or of a header alone, and has a result of each committer."""
        for content in ("", HEADER, HEADER + "\r\n\r\n"):
            (tmp_path / "a.csv").write_text(content, newline="")

            outcome = self.one(tmp_path)

            assert (outcome.read, len(outcome.results)) == (0, 1)
            assert (outcome.results[0].arrived, outcome.results[0].row_count) == (0, 0)
            assert outcome.results[0].rows.schema.names == ["shop", "day", "sales", "turnover", "pieces"]

    def test_columns_are_matched_by_the_names_in_each_header(self, tmp_path: Path) -> None:
        """Another order, further columns and a byte order mark change nothing."""
        first = _write(
            tmp_path / "a.csv", "amount,x,x,day,price,shop", "1,,,2024-01-01,2.50,north", "2,no number,,,0.25,south"
        )
        second = tmp_path / "b.csv"
        second.write_bytes(b"\xef\xbb\xbf" + f"{HEADER},y\r\nnorth,2024-01-01,1.00,4,\r\n".encode())

        self.check_counts(self.one(tmp_path), [first, second])

    def test_quoted_line_ends_and_delimiters_belong_to_the_value(self, tmp_path: Path) -> None:
        path = _write(
            tmp_path / "a.csv",
            HEADER,
            '"no\nrth",2024-01-01,1.00,1',
            '"no\nrth",2024-01-01,1.00,1',
            '"a, ""b""\r\n",,1,1',
            '5" pipe,,"1",2',
        )

        self.check_counts(self.one(tmp_path), [path])

    def test_a_large_file_is_read_in_parts_and_each_record_once(self, tmp_path: Path) -> None:
        """Parts are cut anywhere, smaller than a record and larger than several; records are not."""
        lines = [
            f"shop{number % 7},2024-01-{number % 28 + 1:02},{number}.{number % 100:02},{number}" for number in range(30)
        ]
        path = _write(tmp_path / "a.csv", HEADER, *lines)
        for part_bytes in (1, 17, 100):
            topology = self.topology(tmp_path, part_bytes=part_bytes)
            planned = plan_batches(topology)

            (outcome,) = self.run(topology, planned)

            assert isinstance(outcome, Processed), outcome
            self.check_counts(outcome, [path])
            assert len(topology.spouts[0].spout.parts(planned[0][SPOUT])) > 5

    def test_a_wave_gives_an_outcome_for_each_attempt_in_order(self, tmp_path: Path) -> None:
        paths = [
            _write(tmp_path / f"{name}.csv", HEADER, *[f"{name},2024-01-01,1.00,{rows}"] * rows)
            for rows, name in enumerate("abc", 1)
        ]
        topology = self.topology(tmp_path)

        executor = self.make_executor(topology)
        executor.start()
        told: list[Outcome] = []
        outcomes = executor.process(_assignments(plan_batches(topology), 4), told.append)

        assert told == list(outcomes), "each is told as well"
        assert [outcome.attempt for outcome in outcomes] == [TransactionAttempt(txid, 4) for txid in (1, 2, 3)]
        for outcome, path in zip(outcomes, paths, strict=True):
            assert isinstance(outcome, Processed)
            self.check_counts(outcome, [path])

    def test_plans_pass_over_no_rows_at_all(self, tmp_path: Path) -> None:
        """W4: what fails without a row is no batch's fault; this topology has nothing of the kind."""
        executor = self.make_executor(self.topology(tmp_path))
        executor.start()

        assert executor.try_over_nothing() is None

    def test_a_wave_gives_the_same_outcomes_as_its_attempts_alone(self, tmp_path: Path) -> None:
        """Each txid keeps its own counts, rejected records and rows, whichever others are in its wave; one without rows
        has its empty results.
        """
        for number, rows in enumerate((3, 0, 40, 1, 7, 0, 12)):
            lines = [f"shop{at % 4},2024-01-{at % 9 + 1:02},{at}.25,{at * number}" for at in range(rows)]
            rejected = [",,,", ",,,many"][: min(number, rows)]
            _write(tmp_path / f"{number}.csv", HEADER, *lines, *rejected)
        topology = self.topology(tmp_path, rejected_max=0.9)
        planned = plan_batches(topology)
        executor = self.make_executor(topology)
        executor.start()

        first = executor.process(_assignments(planned[:2], 0))
        together = executor.process(_assignments(planned, 1))
        alone = [executor.process([assignment])[0] for assignment in _assignments(planned, 2)]

        assert len(first) == 2 and len(together) == len(alone) == 7
        for one, other in zip(together, alone, strict=True):
            assert isinstance(one, Processed) and isinstance(other, Processed)
            assert one.attempt == TransactionAttempt(other.attempt.txid, 1)
            assert one.results[0].rows.equals(other.results[0].rows)
            assert one.results[0].arrived == other.results[0].arrived == one.read - one.rejected
            assert (one.read, one.rejected_rows, one.edges) == (other.read, other.rejected_rows, other.edges)

    def test_a_bad_batch_in_a_wave_fails_alone_and_its_neighbours_are_processed(self, tmp_path: Path) -> None:
        """One bad file never makes its neighbours look bad: its failure is the one that it has alone."""
        paths = [_write(tmp_path / f"{name}.csv", HEADER, f"{name},2024-01-01,1.00,1") for name in "abcd"]
        bad = _write(tmp_path / "z.csv", HEADER, "e,2024-01-01,1.00,many")
        topology = self.topology(tmp_path)
        planned = plan_batches(topology)
        executor = self.make_executor(topology)
        executor.start()
        executor.process(_assignments(planned[:2], 0))

        *good, failed = executor.process(_assignments(planned, 1))
        (alone,) = executor.process(_assignments(planned, 2)[-1:])

        assert isinstance(failed, Failed) and isinstance(alone, Failed)
        assert failed.failure == alone.failure
        assert failed.failure.position == f"{bad}:2"
        for outcome, path in zip(good, paths, strict=True):
            assert isinstance(outcome, Processed), outcome
            self.check_counts(outcome, [path])

    def test_records_that_do_not_parse_are_kept_beside_the_counts_of_all_others(self, tmp_path: Path) -> None:
        """Each is counted and kept with file, line, reason and raw text, in the order of the source, in however many
        parts it is read.
        """
        lines = [f"shop{at % 3},2024-01-{at % 9 + 1:02},{at}.50,{at}" for at in range(60)]
        only_good = _write(tmp_path.parent / f"{tmp_path.name}-good.csv", HEADER, *lines)
        for at, bad in ((50, "south,2024-01-01,1.00"), (31, "south,,,many"), (30, "south,2024-02-30,,1")):
            lines.insert(at, bad)
        path = _write(tmp_path / "a.csv", HEADER, *lines)
        for part_bytes in (10_000, 150):
            outcome = self.one(tmp_path, part_bytes=part_bytes)

            (result,) = outcome.results
            assert counted(result.rows) == recount([only_good])
            assert (outcome.read, outcome.rejected, result.arrived) == (63, 3, 60)
            found = outcome.rejected_rows
            assert [(row.spout, row.path, row.line) for row in found] == [(SPOUT, str(path), at) for at in (32, 34, 54)]
            assert [row.raw for row in found] == [
                b"south,2024-02-30,,1",
                b"south,,,many",
                b"south,2024-01-01,1.00",
            ]
            assert [row.raw_bytes for row in found] == [len(row.raw) for row in found]
            assert all(row.reason for row in found) and "'amount'" in found[1].reason

    def test_which_records_are_rejected_does_not_depend_on_what_is_counted(self, tmp_path: Path) -> None:
        """Plan and declared schema alone decide: a column that nobody reads is parsed all the same."""
        _write(tmp_path / "a.csv", HEADER, *["north,2024-01-01,1.00,1"] * 19, "north,2024-01-01,1.00,many")
        topology = self.topology(tmp_path)
        builder = TopologyBuilder("contract")
        builder.set_spout(SPOUT, topology.spouts[0].spout)
        builder.set_committer_bolt(COMMITTER, CountCommitter("by_day", ["day"])).fields_grouping(SPOUT, ["day"])

        (outcome,) = self.run(builder.build(), plan_batches(topology))

        assert isinstance(outcome, Processed), outcome
        assert (outcome.read, outcome.rejected, outcome.results[0].arrived) == (20, 1, 19)
        assert [row.line for row in outcome.rejected_rows] == [21]

    def test_the_share_of_rejected_records_is_one_of_the_whole_batch(self, tmp_path: Path) -> None:
        """A wrong schema must not commit empty counts; a part or a file of a batch may be bad as a whole."""
        bad = _write(tmp_path / "a.csv", HEADER, *["north,2024-01-01,1.00,many"] * 3)
        _write(tmp_path / "b.csv", HEADER, *["north,2024-01-01,1.00,1"] * 3)
        options: dict[str, Any] = {"files_per_batch": 2, "part_bytes": 10}

        kept = self.one(tmp_path, part_bytes=10, rejected_max=0.5)
        topology = self.topology(tmp_path, rejected_max=0.49, **options)
        (failed,) = self.run(topology, plan_batches(topology))

        assert (kept.read, kept.rejected) == (6, 3)
        assert isinstance(failed, Failed), failed
        assert (failed.failure.kind, failed.failure.component) == ("data", SPOUT)
        assert failed.failure.position == f"{bad}:2"
        assert "3 of 6 records rejected" in failed.failure.message

    def test_processing_a_plan_again_rejects_the_same_records(self, tmp_path: Path) -> None:
        """Repeating an attempt's plan gives the same results, rejected records included."""
        _write(tmp_path / "a.csv", HEADER, *["north,2024-01-01,1.00,1", "north,2024-01-01,1.00,many"] * 5)
        topology = self.topology(tmp_path, rejected_max=0.5, part_bytes=30)
        planned = plan_batches(topology)

        first, second = (self.run(topology, planned, attempt)[0] for attempt in (0, 1))

        assert isinstance(first, Processed) and isinstance(second, Processed)
        assert len(first.rejected_rows) == 5
        assert first.rejected_rows == second.rejected_rows

    def test_sums_of_large_integers_do_not_wrap(self, tmp_path: Path) -> None:
        """Sums are exact beyond the 64 bits of what is summed, for each key and for NULL."""
        path = _write(
            tmp_path / "a.csv", HEADER, *[f"{shop},,,{2**63 - 1}" for shop in ("north", "north", "north", "")]
        )

        outcome = self.one(tmp_path, fields=FIELDS.replace("amount int", "amount bigint"))

        self.check_counts(outcome, [path])
        assert counted(outcome.results[0].rows)[("north", None)] == (3, Decimal(0), 3 * (2**63 - 1))

    def test_a_bad_line_fails_its_own_attempt_and_no_other(self, tmp_path: Path) -> None:
        """One bad file never makes its neighbours look bad; the failure names component, file and line."""
        first = _write(tmp_path / "a.csv", HEADER, "north,2024-01-01,1.00,1")
        bad = _write(tmp_path / "b.csv", HEADER, '"two\nlines",,,', "", "south,2024-01-01,1.00,many")
        last = _write(tmp_path / "c.csv", HEADER, "south,2024-01-01,1.00,3")
        topology = self.topology(tmp_path)

        before, failed, after = self.run(topology, plan_batches(topology))

        assert isinstance(before, Processed) and isinstance(after, Processed)
        self.check_counts(before, [first])
        self.check_counts(after, [last])
        assert isinstance(failed, Failed)
        assert failed.failure.kind == "data"
        assert failed.failure.component == SPOUT
        assert failed.failure.position == f"{bad}:5"
        assert "'amount'" in failed.failure.message and "'many'" in failed.failure.message
        assert failed.failure.detail == "south,2024-01-01,1.00,many"

    def test_a_null_in_a_field_declared_not_null_fails_the_batch(self, tmp_path: Path) -> None:
        bad = _write(tmp_path / "a.csv", HEADER, "north,2024-01-01,1.00,1", ",2024-01-01,1.00,1")
        topology = self.topology(tmp_path, fields=FIELDS.replace("shop string", "shop string not null"))

        (outcome,) = self.run(topology, plan_batches(topology))

        assert isinstance(outcome, Failed)
        assert outcome.failure.position == f"{bad}:3"

    def test_a_sum_beyond_38_digits_fails_the_batch(self, tmp_path: Path) -> None:
        """Sums are exact or there are none."""
        _write(tmp_path / "a.csv", HEADER, *[f"north,2024-01-01,{'9' * 36}.00,1"] * 2)
        topology = self.topology(tmp_path, fields=FIELDS.replace("decimal(12,2)", "decimal(38,2)"))

        (outcome,) = self.run(topology, plan_batches(topology))

        assert isinstance(outcome, Failed)
        assert outcome.failure.kind == "data"

    def test_a_changed_source_is_refused_with_both_fingerprints(self, tmp_path: Path) -> None:
        """Other content than planned is never read, a touched file is no change (K7)."""
        path = _write(tmp_path / "a.csv", HEADER, "north,2024-01-01,1.00,1")
        topology = self.topology(tmp_path)
        planned = plan_batches(topology)
        sha256 = planned[0][SPOUT]["files"][0]["sha256"]
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
        (touched,) = self.run(topology, planned)
        path.write_bytes(content.replace(b"north", b"south"))

        (changed,) = self.run(topology, planned)
        path.unlink()
        (vanished,) = self.run(topology, planned)

        assert isinstance(touched, Processed)
        for outcome in (changed, vanished):
            assert isinstance(outcome, Failed)
            assert outcome.failure.kind == "data"
            assert outcome.failure.component == SPOUT
            assert str(path) in outcome.failure.message and sha256 in outcome.failure.message
        assert isinstance(changed, Failed)
        assert changed.failure.message.count("sha256") == 2

    def test_processing_a_plan_again_gives_the_same_rows(self, tmp_path: Path) -> None:
        """Repeating an attempt's plan gives the same results."""
        lines = [f"shop{number % 5},,{number}.00,1" for number in range(50)]
        _write(tmp_path / "a.csv", HEADER, *lines)
        topology = self.topology(tmp_path)
        planned = plan_batches(topology)

        outcomes = [self.run(topology, planned, attempt)[0] for attempt in (0, 1)]

        tables = [counted(outcome.results[0].rows) for outcome in outcomes if isinstance(outcome, Processed)]
        assert len(tables) == 2 and tables[0] == tables[1]

    def test_nothing_is_known_of_an_attempt_that_does_not_run(self, tmp_path: Path) -> None:
        """`progress` is 0 for an unknown attempt, and cancelling one does nothing, however often."""
        _write(tmp_path / "a.csv", HEADER, "north,2024-01-01,1.00,1")
        topology = self.topology(tmp_path)
        executor = self.make_executor(topology)
        executor.start()
        attempt = TransactionAttempt(1, 0)

        executor.cancel(attempt)
        executor.cancel(attempt)
        outcomes = executor.process([Assignment(attempt=attempt, metadata=plan_batches(topology)[0])])

        assert isinstance(outcomes[0], Processed)
        assert executor.progress(TransactionAttempt(99, 0)) == 0


def _assignments(planned: Sequence[Mapping[str, Any]], attempt: int) -> list[Assignment]:
    return [
        Assignment(attempt=TransactionAttempt(txid, attempt), metadata=metadata)
        for txid, metadata in enumerate(planned, 1)
    ]


def _write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    return path
