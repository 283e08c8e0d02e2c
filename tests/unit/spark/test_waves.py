"""Waves without Spark: when several attempts share a go, what a failed go means, and what is proven before the first
one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from txtopo.bolts import BasicBolt, BatchCommitter, CustomStreamGrouping
from txtopo.committers.count_committer import CountCommitter
from txtopo.committers.new_ids import NewIds
from txtopo.core.values import CommitterResult, Failed, Failure, Outcome, Processed, RejectedRow, TransactionAttempt
from txtopo.errors import DriverFull
from txtopo.ports import Assignment
from txtopo.spark import waves as waves_module
from txtopo.spark.emit import TaskEmitter, emitter_order
from txtopo.spark.frames.aggregate import results_of
from txtopo.spark.frames.arrived_rows import Counted
from txtopo.spark.jobs import BatchWork, CancelledError, Run, RunReports, check
from txtopo.spark.reports import Report, Reports
from txtopo.spark.running_attempts import Running
from txtopo.spark.signatures import Signer
from txtopo.spark.wave_proof import is_apart_by_construction
from txtopo.spark.waves import Waves, same_rows
from txtopo.spouts.file_spout import FileSpout
from txtopo.spouts.kafka_spout import KafkaSpout
from txtopo.spouts.table_spout import TableSpout
from txtopo.spouts.text_spout import TextSpout
from txtopo.topology.builder import TopologyBuilder
from txtopo.topology.components import Spout, Topology

BAD = Failure(kind="data", message="bad row")
AWAY = Failure(kind="infrastructure", message="disk is away")


class TroubleError(Exception):
    """A job failed for this reason."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class FakeJobs:
    """Jobs whose every go is noted, and may fail or differ as a test wants it."""

    def __init__(self) -> None:
        self.one_by_one: str | None = None
        self.apart = False
        self.goes: list[list[int]] = []
        self.names: list[str] = []
        self.tags: list[set[str]] = []
        self.raises: Callable[[list[int]], Failure | None] = lambda txids: None
        self.verdict: Callable[[Processed, int], Outcome] = lambda outcome, count: outcome
        self.before: Callable[[Sequence[Run]], None] = lambda runs: None
        self.explained: list[tuple[int, Failure]] = []

    def start(self) -> None: ...

    def settle_waves(self) -> None: ...

    def warm_up(self) -> None: ...

    def run_over_nothing(self) -> None: ...

    def split(self, assignment: Assignment, run: Run) -> BatchWork:
        return BatchWork(assignment=assignment, parts={})

    def results(self, runs: Sequence[Run], works: Sequence[BatchWork]) -> list[list[CommitterResult]]:
        txids = [run.attempt.txid for run in runs]
        self.goes.append(txids)
        self.names += [run.name for run in runs]
        self.tags.append({run.tag for run in runs})
        self.before(runs)
        check(runs)
        if failure := self.raises(txids):
            raise TroubleError(failure)
        return [[result(txid)] for txid in txids]

    def blame(self, reports: RunReports) -> Failure | None:
        return None

    def outcome(self, run: Run, work: BatchWork, results: Sequence[CommitterResult], reports: RunReports) -> Outcome:
        made = Processed(attempt=run.attempt, code_hash=b"", read=1, results=tuple(results))
        return self.verdict(made, len(self.goes[-1]))

    def explain(self, run: Run, work: BatchWork, failure: Failure, error: Exception | None) -> Outcome:
        self.explained.append((run.attempt.txid, failure))
        return Failed(attempt=run.attempt, failure=failure)


def result(txid: int) -> CommitterResult:
    return CommitterResult(committer="c", arrived=1, rows=pa.table({"n": [txid]}), row_count=1, bytes=8)


def judge(error: Exception, run: Run, reports: RunReports) -> Failure:
    if isinstance(error, CancelledError):
        return Failure(kind="infrastructure", message="cancelled")
    return error.failure if isinstance(error, TroubleError) else Failure(kind="suspect", message=str(error))


class Kit:
    """Waves over fake jobs."""

    def __init__(self) -> None:
        self.jobs = FakeJobs()
        self.reports = Reports()
        self.told: list[str] = []
        self.running = Running("t", self.reports, lambda: None)  # type: ignore[arg-type,return-value]
        self.waves = Waves(self.jobs, self.running, self.reports, judge, self.told.append)

    def process(self, *txids: int) -> list[Outcome]:
        return self.waves.process([Assignment(attempt=TransactionAttempt(txid, 0), metadata={}) for txid in txids])


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Kit:
    monkeypatch.setattr(Running, "_completed_tasks", lambda self, tag: 0)
    monkeypatch.setattr(Running, "_cancel_jobs", lambda self, run: None)
    return Kit()


@pytest.fixture
def proven(kit: Kit) -> Kit:
    kit.process(901, 902)
    kit.jobs.goes.clear()
    return kit


def kinds(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.failure.kind if isinstance(outcome, Failed) else "ok" for outcome in outcomes]


def test_the_first_wave_has_two_batches_and_is_run_one_by_one_too(kit: Kit) -> None:
    """ARCHITECTURE 4.5: the first wave of a run is also run batch by batch and compared."""
    outcomes = kit.process(1, 2, 3, 4, 5, 6)

    assert kit.jobs.goes == [[1, 2], [1], [2], [3, 4, 5, 6]]
    assert [outcome.attempt.txid for outcome in outcomes] == [1, 2, 3, 4, 5, 6]
    assert kinds(outcomes) == ["ok"] * 6 and not kit.told


def test_a_wave_of_one_shares_nothing_and_proves_nothing(kit: Kit) -> None:
    kit.process(1)
    kit.process(2, 3)

    assert kit.jobs.goes == [[1], [2, 3], [2], [3]]


def test_jobs_that_refuse_waves_get_one_attempt_at_a_time(kit: Kit) -> None:
    kit.jobs.one_by_one = "bolt x depends on other rows"

    kit.process(1, 2)

    assert kit.jobs.goes == [[1], [2]]
    assert kit.waves.one_by_one == "bolt x depends on other rows"


@pytest.mark.parametrize("failure", [BAD, AWAY])
def test_a_wave_that_fails_is_a_failure_of_none_of_its_attempts(proven: Kit, failure: Failure) -> None:
    """Each runs again alone, and only that counts."""
    proven.jobs.raises = lambda txids: failure if 2 in txids else None

    outcomes = proven.process(1, 2, 3)

    assert proven.jobs.goes == [[1, 2, 3], [1], [2], [3]]
    assert kinds(outcomes) == ["ok", failure.kind, "ok"]
    assert proven.jobs.explained == [(2, failure)], "only what failed alone is explained"
    assert proven.waves.one_by_one is None


def test_a_wave_that_fails_though_its_batches_succeed_alone_is_told_once(proven: Kit) -> None:
    """Each such wave costs every batch a second run, and no batch tells of it."""
    strange = Failure(kind="suspect", message="a task of batches 1 to 3 ran with the order of batch 7")
    proven.jobs.raises = lambda txids: strange if len(txids) > 1 else None

    outcomes = [*proven.process(1, 2, 3), *proven.process(4, 5)]

    assert kinds(outcomes) == ["ok"] * 5
    assert len(proven.told) == 1
    assert "batches 1 to 3" in proven.told[0] and strange.message in proven.told[0]
    proven.jobs.raises = lambda txids: BAD if 6 in txids else None
    proven.process(6, 7)
    assert len(proven.told) == 1, "a batch that fails alone as well is told of itself"
    assert proven.waves.one_by_one is None, "what was proven stays so"


def test_a_proven_wave_that_fails_on_data_though_no_batch_does_is_told_and_waves_go_on(proven: Kit) -> None:
    proven.jobs.raises = lambda txids: BAD if len(txids) > 1 else None

    assert kinds(proven.process(1, 2)) == ["ok", "ok"]

    assert proven.waves.one_by_one is None
    assert len(proven.told) == 1


def test_jobs_that_refuse_waves_in_the_midst_of_one_are_told_once(proven: Kit) -> None:
    def raises(txids: list[int]) -> Failure | None:
        proven.jobs.one_by_one = "bolt x depends on other rows"
        return BAD if len(txids) > 1 else None

    proven.jobs.raises = raises

    outcomes = [*proven.process(1, 2), *proven.process(3, 4)]

    assert kinds(outcomes) == ["ok"] * 4
    assert proven.jobs.goes == [[1, 2], [1], [2], [3], [4]]
    (told,) = proven.told
    assert told.startswith("batches are processed one by one from now on: bolt x depends on other rows; ")


def test_what_ran_alone_is_told_before_the_next_of_its_wave_begins(proven: Kit) -> None:
    """Sixty batches that run one by one take long: the lowest commits meanwhile."""
    told: list[int] = []
    before: list[tuple[list[int], list[int]]] = []
    proven.jobs.before = lambda runs: before.append(([run.attempt.txid for run in runs], list(told)))
    proven.jobs.raises = lambda txids: BAD if len(txids) > 1 else None
    wave = [Assignment(attempt=TransactionAttempt(txid, 0), metadata={}) for txid in (1, 2, 3)]

    outcomes = proven.waves.process(wave, lambda outcome: told.append(outcome.attempt.txid))

    assert before == [([1, 2, 3], []), ([1], []), ([2], [1]), ([3], [1, 2])]
    assert told == [outcome.attempt.txid for outcome in outcomes] == [1, 2, 3]


def test_a_wave_that_succeeds_is_told_as_a_whole(proven: Kit) -> None:
    told: list[Outcome] = []
    wave = [Assignment(attempt=TransactionAttempt(txid, 0), metadata={}) for txid in (1, 2, 3)]

    outcomes = proven.waves.process(wave, told.append)

    assert told == outcomes
    assert [outcome.spans.keys() for outcome in outcomes if isinstance(outcome, Processed)] == [{"processing"}] * 3


def suspecting(kit: Kit, txid: int, goes: set[int]) -> Callable[[Sequence[Run]], None]:
    """A task of this batch's run signs for an order of nobody's, in goes of so many batches."""

    def before(runs: Sequence[Run]) -> None:
        for run in runs:
            if run.attempt.txid == txid and len(runs) in goes:
                with kit.reports.signatures.order(f"batch {txid}", [run.name]) as order:
                    kit.reports.signatures.mixed(order, 0)

    return before


@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_whose_tasks_had_another_order_is_suspected_whatever_came_of_it(proven: Kit, fails: bool) -> None:
    """Neither its rows nor its failure are its own: no data is at fault."""
    proven.jobs.before = suspecting(proven, 2, {1})
    proven.jobs.raises = lambda txids: BAD if len(txids) > 1 or (fails and txids == [2]) else None

    outcomes = proven.process(1, 2, 3)

    assert kinds(outcomes) == ["ok", "suspect", "ok"]
    assert isinstance(outcomes[1], Failed) and "no batch that is known" in outcomes[1].failure.message


@pytest.mark.parametrize("fails", [False, True])
def test_a_wave_in_which_one_had_another_order_counts_for_none(proven: Kit, fails: bool) -> None:
    """Whichever of its batches it was: the operator reads of the order, not of what came of it."""
    proven.jobs.before = suspecting(proven, 1 if fails else 2, {3})
    proven.jobs.raises = lambda txids: BAD if fails and len(txids) > 1 else None

    assert kinds(proven.process(1, 2, 3)) == ["ok"] * 3

    assert proven.jobs.goes == [[1, 2, 3], [1], [2], [3]]
    assert len(proven.told) == 1 and "no batch that is known" in proven.told[0]


def test_the_neighbours_of_a_bad_batch_share_smaller_jobs(proven: Kit) -> None:
    """W6: what succeeds in a smaller wave counts, what fails alone counts, and nothing else. In the order of the
    batches, so that the lowest can commit meanwhile.
    """
    told: list[int] = []
    wave = [Assignment(attempt=TransactionAttempt(txid, 0), metadata={}) for txid in range(1, 17)]
    proven.jobs.raises = lambda txids: BAD if 11 in txids else None

    outcomes = proven.waves.process(wave, lambda outcome: told.append(outcome.attempt.txid))

    assert proven.jobs.goes == [
        list(range(1, 17)),
        [1, 2, 3, 4, 5, 6, 7, 8],
        [9, 10, 11, 12, 13, 14, 15, 16],
        [9, 10, 11, 12],
        *([9], [10], [11], [12]),
        [13, 14, 15, 16],
    ]
    assert [outcome.attempt.txid for outcome in outcomes] == told == list(range(1, 17))
    assert kinds(outcomes) == ["ok"] * 10 + ["data"] + ["ok"] * 5
    assert proven.jobs.explained == [(11, BAD)] and not proven.told
    assert len(proven.reports) == 0


@pytest.mark.parametrize("kind", ["data", "infrastructure"])
def test_a_batch_that_its_verdict_names_is_run_alone_and_all_others_share(proven: Kit, kind: Any) -> None:
    def verdict(outcome: Processed, count: int) -> Outcome:
        failure = Failure(kind=kind, message="bad line")
        return Failed(attempt=outcome.attempt, failure=failure) if outcome.attempt.txid in (6, 7) else outcome

    proven.jobs.verdict = verdict

    outcomes = proven.process(*range(1, 17))

    assert proven.jobs.goes == [list(range(1, 17)), [1, 2, 3, 4, 5], [6], [7], list(range(8, 17))]
    assert kinds(outcomes) == ["ok"] * 5 + [kind] * 2 + ["ok"] * 9


def test_a_verdict_in_doubt_names_nobody(proven: Kit) -> None:
    """Whose rows came back is not certain then: each runs alone, as with any failure that may be of them all."""
    doubt = Failure(kind="suspect", message="two reports of one task")

    def verdict(outcome: Processed, count: int) -> Outcome:
        bad = {2: BAD, 3: doubt}.get(outcome.attempt.txid) if count > 1 else None
        return Failed(attempt=outcome.attempt, failure=bad) if bad is not None else outcome

    proven.jobs.verdict = verdict

    assert kinds(proven.process(*range(1, 9))) == ["ok"] * 8

    assert proven.jobs.goes == [list(range(1, 9)), *([txid] for txid in range(1, 9))]
    assert doubt.message in proven.told[0]


@pytest.mark.parametrize("kind", ["infrastructure", "suspect", "halt"])
def test_a_failure_that_may_be_of_them_all_is_met_by_each_alone(proven: Kit, kind: Any) -> None:
    proven.jobs.raises = lambda txids: Failure(kind=kind, message="away") if len(txids) > 1 else None

    proven.process(*range(1, 9))

    assert proven.jobs.goes == [list(range(1, 9)), *([txid] for txid in range(1, 9))]


@pytest.mark.parametrize(("bad", "jobs"), [({1}, 13), ({64}, 13), ({1, 33}, 23), ({17, 50}, 23)])
def test_one_or_two_bad_batches_of_a_large_wave_cost_few_jobs(proven: Kit, bad: set[int], jobs: int) -> None:
    """Where nothing names them. Each batch alone would be 64 jobs more."""
    proven.jobs.raises = lambda txids: BAD if bad & set(txids) else None

    outcomes = proven.process(*range(1, 65))

    assert {outcome.attempt.txid for outcome in outcomes if isinstance(outcome, Failed)} == bad
    assert len(proven.jobs.goes) == jobs


def test_many_bad_batches_of_a_wave_cost_few_jobs_more(proven: Kit) -> None:
    proven.jobs.raises = lambda txids: BAD

    assert kinds(proven.process(*range(1, 65))) == ["data"] * 64

    assert [go for go in proven.jobs.goes if len(go) == 1] == [[txid] for txid in range(1, 65)]
    assert len(proven.jobs.goes) == 1 + waves_module.SHARED_FAILURES_MAX + 64


def test_jobs_that_refuse_waves_while_a_wave_is_divided_get_one_attempt_at_a_time(proven: Kit) -> None:
    def raises(txids: list[int]) -> Failure | None:
        if len(txids) == 4:
            proven.jobs.one_by_one = "bolt x depends on other rows"
        return BAD if len(txids) > 1 else None

    proven.jobs.raises = raises

    assert kinds(proven.process(*range(1, 17))) == ["ok"] * 16

    assert [len(go) for go in proven.jobs.goes] == [16, 8, 4, *[1] * 16]
    assert len(proven.told) == 1


def test_who_is_cancelled_in_a_wave_leaves_the_others_sharing(proven: Kit) -> None:
    def before(runs: Sequence[Run]) -> None:
        if len(runs) == 10:
            proven.running.cancel(TransactionAttempt(5, 0))
        if runs[0].attempt.txid == 6 and len(runs) > 1:
            proven.running.cancel(TransactionAttempt(6, 0))

    proven.jobs.before = before

    outcomes = proven.process(*range(1, 11))

    assert proven.jobs.goes == [list(range(1, 11)), [1, 2, 3, 4], [6, 7, 8, 9, 10], [7, 8, 9, 10]]
    assert kinds(outcomes) == ["ok"] * 4 + ["infrastructure"] * 2 + ["ok"] * 4


def test_who_is_cancelled_while_its_part_waits_leaves_the_others_of_it_sharing(proven: Kit) -> None:
    def before(runs: Sequence[Run]) -> None:
        if len(runs) == 8:
            proven.running.cancel(TransactionAttempt(9, 0))

    proven.jobs.before = before
    proven.jobs.raises = lambda txids: BAD if len(txids) == 16 else None

    outcomes = proven.process(*range(1, 17))

    assert proven.jobs.goes == [list(range(1, 17)), list(range(1, 9)), list(range(10, 17))]
    assert kinds(outcomes) == ["ok"] * 8 + ["infrastructure"] + ["ok"] * 7


def test_runs_that_share_again_have_other_names_and_tags_and_their_progress_goes_on(proven: Kit) -> None:
    """K1: what zombies of the failed job report late is nobody's; and who waits is not taken for one that hangs."""
    names: list[list[str]] = []
    tags: list[set[str]] = []
    seen: list[int] = []
    open_runs: list[int] = []

    def before(runs: Sequence[Run]) -> None:
        names.append([run.name for run in runs])
        tags.append({run.tag for run in runs})
        late = Report(
            run=names[0][0], spout="s", part=0, read=9, rejects=(), failure=None, code_hash=b"", version="", host=""
        )
        seen.append(proven.running.progress(TransactionAttempt(8, 0)))
        proven.reports.receive([late, replace(late, run=runs[-1].name)])
        seen.append(proven.running.progress(TransactionAttempt(8, 0)))
        open_runs.append(len(proven.reports))
        if len(names) > 1:
            assert all(not proven.reports.so_far(run.name) for run in runs[:-1])

    proven.jobs.before = before
    proven.jobs.raises = lambda txids: BAD if len(txids) == 8 else None

    proven.process(*range(1, 9))

    assert [len(one) for one in names] == [8, 4, 4]
    assert len({name for one in names for name in one}) == 16
    assert [len(one) for one in tags] == [1, 1, 1] and len(set.union(*tags)) == 3
    assert seen == sorted(set(seen)), seen
    assert open_runs == [8, 8, 4], "reports of a part that succeeded are not kept"


def test_what_is_apart_by_construction_is_compared_with_nothing(kit: Kit) -> None:
    waves = Waves(kit.jobs, kit.running, kit.reports, judge, kit.told.append, proven=True)

    waves.process([Assignment(attempt=TransactionAttempt(txid, 0), metadata={}) for txid in (1, 2, 3)])

    assert kit.jobs.goes == [[1, 2, 3]]
    assert waves.proven and not kit.waves.proven
    kit.process(4, 5)
    assert kit.waves.proven


class Remembering(FileSpout):
    """A subclass may change what it inherits."""


class Passing(BasicBolt):
    outputs = ("line string",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


class Keeping(BatchCommitter):
    def commit(self, transaction: Any, rows: Any, collector: Any) -> None: ...


def topology_of(spout: Spout, *, bolt: Any = None, committer: Any = None, chosen: Any = None) -> Topology:
    builder = TopologyBuilder("t")
    builder.set_spout("lines", spout)
    if bolt is not None:
        fields: dict[str, Any] = {} if isinstance(bolt, BasicBolt) else {"fields": "line string"}
        builder.set_bolt("bolt", bolt, "lines", **fields)
    source = "lines" if bolt is None else "bolt"
    declarer = builder.set_committer_bolt("c", committer or CountCommitter("n", ["line"]))
    if chosen is None:
        declarer.shuffle_grouping(source)
    else:
        declarer.custom_grouping(source, chosen)
    return builder.build()


class Executing(Keeping):
    def execute(self, tup: Any) -> None: ...


class Finishing(Keeping):
    def finish_batch(self) -> None: ...


class Preparing(Keeping):
    def prepare(self, *arguments: Any) -> None: ...


class Chosen(CustomStreamGrouping):
    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return [task]


def test_only_topologies_without_any_code_of_a_user_over_rows_are_apart_by_construction() -> None:
    """What runs in the commit of a batch, which no wave shares, may be the user's."""
    lines = FileSpout(".", "line string")
    for apart in (
        topology_of(lines),
        topology_of(TextSpout(".")),
        topology_of(lines, bolt=lambda frame: frame),
        topology_of(lines, committer=Keeping()),
        downstream_of_ids(),
        topology_of(KafkaSpout("t", "line string", value="string")),
        topology_of(TableSpout("t", "line string")),
    ):
        assert is_apart_by_construction(apart)
        assert not is_apart_by_construction(apart, foreign="bolt bolt contains PythonUDF")
    for compared in (
        topology_of(Remembering(".", "line string")),
        topology_of(with_own_format()),
        topology_of(lines, bolt=Passing()),
        topology_of(lines, committer=Executing()),
        topology_of(lines, committer=Finishing()),
        topology_of(lines, committer=Preparing()),
        topology_of(lines, committer=Keeping(), chosen=Chosen()),
    ):
        assert not is_apart_by_construction(compared)


def with_own_format() -> FileSpout:
    """Files whose records are read by code of a user."""

    class OwnFormat:
        pass

    spout = FileSpout(".", "line string")
    spout.format = OwnFormat()  # type: ignore[assignment, attr-defined, unused-ignore]
    return spout


def downstream_of_ids() -> Topology:
    """A tuple bolt that runs in the commit."""
    builder = TopologyBuilder("t")
    builder.set_spout("lines", FileSpout(".", "line string"))
    builder.set_committer_bolt("new", NewIds("seen", "line", "line string")).shuffle_grouping("lines")
    builder.set_bolt("later", Passing()).shuffle_grouping("new")
    builder.set_committer_bolt("c", CountCommitter("n", ["line"])).shuffle_grouping("later")
    return builder.build()


def test_results_of_a_wave_with_a_bad_verdict_on_one_are_used_for_none(proven: Kit) -> None:
    def verdict(outcome: Processed, count: int) -> Outcome:
        return Failed(attempt=outcome.attempt, failure=BAD) if outcome.attempt.txid == 3 else outcome

    proven.jobs.verdict = verdict

    outcomes = proven.process(1, 2, 3)

    assert proven.jobs.goes == [[1, 2, 3], [1], [2], [3]]
    assert kinds(outcomes) == ["ok", "ok", "data"]


def test_an_attempt_alone_has_another_name_and_tag_than_in_its_wave(proven: Kit) -> None:
    """K1: what zombies of the wave's job report late is not this run's."""
    proven.jobs.names.clear()
    proven.jobs.tags.clear()
    proven.jobs.raises = lambda txids: BAD if len(txids) > 1 else None

    proven.process(1, 2)

    assert len(set(proven.jobs.names)) == 4
    (wave,), (first,), (second,) = proven.jobs.tags
    assert len({wave, first, second}) == 3
    late = Report(
        run=proven.jobs.names[0],
        spout="s",
        part=0,
        read=9,
        rejects=(),
        failure=None,
        code_hash=b"",
        version="",
        host="",
    )
    proven.reports.receive([late])
    assert len(proven.reports) == 0


def test_late_reports_of_a_wave_are_not_those_of_the_attempt_alone(proven: Kit) -> None:
    seen: list[Any] = []

    def before(runs: Sequence[Run]) -> None:
        if len(runs) == 1:
            late = Report(
                run=proven.jobs.names[-2 - runs[0].attempt.txid],
                spout="s",
                part=0,
                read=9,
                rejects=(),
                failure=None,
                code_hash=b"",
                version="",
                host="",
            )
            proven.reports.receive([late])
            seen.append(proven.reports.so_far(runs[0].name))

    proven.jobs.before = before
    proven.jobs.raises = lambda txids: BAD if len(txids) > 1 else None
    proven.process(1, 2)

    assert seen == [{}, {}]


def test_who_is_cancelled_in_a_wave_is_not_run_again_and_the_others_are(proven: Kit) -> None:
    def before(runs: Sequence[Run]) -> None:
        if len(runs) > 1:
            proven.running.cancel(TransactionAttempt(2, 0))

    proven.jobs.before = before

    outcomes = proven.process(1, 2, 3)

    assert proven.jobs.goes == [[1, 2, 3], [1], [3]]
    assert kinds(outcomes) == ["ok", "infrastructure", "ok"]
    assert isinstance(outcomes[1], Failed) and outcomes[1].failure.message == "cancelled"


def test_who_is_cancelled_while_it_waits_for_its_turn_is_not_run(proven: Kit) -> None:
    def before(runs: Sequence[Run]) -> None:
        if [run.attempt.txid for run in runs] == [1]:
            proven.running.cancel(TransactionAttempt(3, 0))

    proven.jobs.before = before
    proven.jobs.raises = lambda txids: BAD if len(txids) > 1 else None

    outcomes = proven.process(1, 2, 3)

    assert proven.jobs.goes == [[1, 2, 3], [1], [2]]
    assert kinds(outcomes) == ["ok", "ok", "infrastructure"]


def test_runs_are_forgotten_as_they_end(proven: Kit) -> None:
    """Their reports are not kept beside those of the batches that still wait, and an attempt may come again."""
    open_runs: list[int] = []

    def before(runs: Sequence[Run]) -> None:
        if [run.attempt.txid for run in runs] == [1]:
            proven.running.cancel(TransactionAttempt(4, 0))
        if len(runs) > 1:
            proven.running.cancel(TransactionAttempt(2, 0))
        open_runs.append(len(proven.reports))

    proven.jobs.before = before
    proven.process(1, 2, 3, 4, 5)

    assert proven.jobs.goes == [[1, 2, 3, 4, 5], [1], [3], [5]]
    assert open_runs == [5, 4, 3, 1]
    proven.jobs.before = lambda runs: None
    assert kinds(proven.process(6, 7)) == ["ok", "ok"]
    assert len(proven.reports) == 0
    assert kinds(proven.process(6, 7)) == ["ok", "ok"]


def test_a_failed_wave_is_judged_by_who_was_cancelled_in_it(proven: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job ended for that, and nobody else's data is looked for the cause."""
    judged: list[int] = []

    def judging(error: Exception, run: Run, reports: RunReports) -> Failure:
        judged.append(run.attempt.txid)
        return judge(error, run, reports)

    monkeypatch.setattr(proven.waves, "_judge", judging)
    proven.jobs.before = lambda runs: proven.running.cancel(TransactionAttempt(2, 0)) if len(runs) > 1 else None

    proven.process(1, 2, 3)

    assert judged == [2]


def test_who_is_cancelled_while_it_fails_is_not_explained(proven: Kit) -> None:
    """Nobody waits for it, and what explains it runs further jobs. Its doubts do not matter either."""
    suspect = suspecting(proven, 1, {1})

    def before(runs: Sequence[Run]) -> None:
        suspect(runs)
        proven.running.cancel(runs[0].attempt)

    proven.jobs.before = before

    assert kinds(proven.process(1)) == ["infrastructure"]
    assert proven.jobs.explained == []


def test_a_batch_that_could_not_be_split_is_not_explained(proven: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def split(assignment: Assignment, run: Run) -> BatchWork:
        raise TroubleError(BAD)

    monkeypatch.setattr(proven.jobs, "split", split)

    assert kinds(proven.process(1)) == ["data"]
    assert proven.jobs.explained == []


@pytest.mark.parametrize("where", ["results", "explain"])
def test_a_driver_that_is_full_is_no_failure_of_a_batch(
    proven: Kit, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """No batch is counted as failed for it; the process says so and ends."""

    def full(*_: Any) -> Any:
        raise MemoryError

    proven.jobs.raises = lambda txids: BAD
    monkeypatch.setattr(proven.jobs, where, full)

    with pytest.raises(DriverFull):
        proven.process(1)


def changed(outcome: Processed, count: int, **fields: Any) -> Outcome:
    return replace(outcome, **fields) if count > 1 and outcome.attempt.txid == 2 else outcome


REJECT = RejectedRow(path="a.csv", line=2, reason="", raw=b"", raw_bytes=0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"read": 2}, "read"),
        ({"rejected_rows": (REJECT,)}, "rejected rows"),
        ({"results": (replace(result(2), arrived=2),)}, "tuples at committer c"),
        ({"results": (replace(result(2), rows=pa.table({"n": [3]})),)}, "results of committer c"),
    ],
)
def test_any_difference_in_a_first_wave_turns_waves_off_for_good_and_is_told(
    kit: Kit, fields: dict[str, Any], words: str
) -> None:
    kit.jobs.verdict = lambda outcome, count: changed(outcome, count, **fields)

    outcomes = kit.process(1, 2, 3)
    kit.process(4, 5)

    assert kit.jobs.goes == [[1, 2], [1], [2], [3], [4], [5]]
    assert kit.waves.one_by_one == f"batch 2 has other {words} in a first wave than alone"
    assert len(kit.told) == 1 and words in kit.told[0]
    assert isinstance(outcomes[1], Processed) and outcomes[1].read == 1, "what it gave alone counts"


def test_a_first_wave_that_fails_on_data_though_no_batch_does_turns_waves_off(kit: Kit) -> None:
    kit.jobs.raises = lambda txids: BAD if len(txids) > 1 else None

    assert kinds(kit.process(1, 2)) == ["ok", "ok"]

    assert kit.waves.one_by_one == "a first wave failed although each of its batches succeeded alone: bad row"


def test_a_batch_that_fails_alone_as_in_a_first_wave_is_no_reason_against_waves(kit: Kit) -> None:
    kit.jobs.raises = lambda txids: BAD if 2 in txids else None

    assert kinds(kit.process(1, 2)) == ["ok", "data"]

    assert kit.waves.one_by_one is None and not kit.told


def test_what_is_kept_for_a_later_phase_is_compared_in_a_first_wave_too(kit: Kit) -> None:
    def verdict(outcome: Processed, count: int) -> Outcome:
        kept = (("words", "default", pa.table({"word": ["alone" if count == 1 else "together"]})),)
        return replace(outcome, results=tuple(replace(one, deferred=kept) for one in outcome.results))

    kit.jobs.verdict = verdict

    kit.process(1, 2)

    assert kit.waves.one_by_one == "batch 1 has other results of committer c in a first wave than alone"


def test_several_first_waves_at_once_that_differ_are_told_once(kit: Kit) -> None:
    """Each thread of the executor may be at its first wave."""
    kit.jobs.raises = lambda txids: BAD if len(txids) > 1 else None

    def before(runs: Sequence[Run]) -> None:
        if [run.attempt.txid for run in runs] == [1, 2]:
            kit.process(3, 4)

    kit.jobs.before = before

    kit.process(1, 2)

    assert kit.jobs.goes[:2] == [[1, 2], [3, 4]]
    assert len(kit.told) == 1


def test_a_batch_that_fails_alone_but_not_in_a_first_wave_turns_waves_off(kit: Kit) -> None:
    kit.jobs.raises = lambda txids: BAD if txids == [2] else None

    assert kinds(kit.process(1, 2)) == ["ok", "data"]

    assert kit.waves.one_by_one == "batch 2 failed alone, but not in a first wave"


@pytest.mark.parametrize("goes", [{(1, 2)}, {(2,)}, {(1, 2), (2,)}])
def test_trouble_that_passes_proves_nothing_either_way(kit: Kit, goes: set[tuple[int, ...]]) -> None:
    kit.jobs.raises = lambda txids: AWAY if tuple(txids) in goes else None
    kit.process(1, 2)
    kit.jobs.goes.clear()

    kit.process(3, 4)

    assert kit.waves.one_by_one is None and not kit.told
    assert kit.jobs.goes == [[3, 4], [3], [4]], "the next wave is compared in its place"


def test_every_attempt_of_a_wave_is_known_until_all_have_ended(proven: Kit) -> None:
    """An attempt that waits for its turn shows the progress of the others, which never goes back."""
    seen: list[int] = []

    def before(runs: Sequence[Run]) -> None:
        seen.append(proven.running.progress(TransactionAttempt(3, 0)))
        report = Report(
            run=runs[0].name, spout="s", part=0, read=1, rejects=(), failure=None, code_hash=b"", version="", host=""
        )
        proven.reports.receive([report])
        seen.append(proven.running.progress(TransactionAttempt(3, 0)))

    proven.jobs.before = before
    proven.jobs.raises = lambda txids: BAD if len(txids) > 1 else None

    proven.process(1, 2, 3)

    assert len(seen) == 8
    assert seen == sorted(set(seen)), seen
    assert proven.running.progress(TransactionAttempt(3, 0)) == 0


def test_a_closed_executor_runs_nothing(proven: Kit) -> None:
    proven.running.close()

    assert kinds(proven.process(1, 2)) == ["infrastructure"] * 2


def test_trouble_while_a_failure_is_explained_leaves_the_failure(proven: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(run: Run, work: BatchWork, failure: Failure, error: Exception | None) -> Outcome:
        raise OSError("no space")

    monkeypatch.setattr(proven.jobs, "explain", explain)
    proven.jobs.raises = lambda txids: BAD

    (outcome,) = proven.process(1)

    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.failure.message) == ("data", "bad row; not explained: no space")


COUNTED = Counted(
    name="c",
    schema=pa.schema([("name", pa.string()), ("n", pa.int64())]),
    key_count=1,
    by_run=True,
    partitions=2,
)
SECOND = 1 << 33
"""Spark's number of the first row of the second partition."""


def counted_rows(
    *rows: tuple[int, str | None, int, int | None, int | None, int | None, int | None],
) -> list[pa.RecordBatch]:
    """Run, key, rows of the group, its first and last row number in each of two partitions, and its last one in any."""
    columns = zip(*[(*row, max(number for number in row[3:] if number is not None)) for row in rows], strict=True)
    names = ["$run", "_k0", "_n", "first0", "last0", "first1", "last1", "last"]
    types = [pa.int32(), pa.string(), *[pa.int64()] * 6]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    batches: list[pa.RecordBatch] = pa.table(arrays, names).to_batches(2)
    return batches


def test_rows_of_a_wave_are_split_by_run_each_with_its_own_total() -> None:
    """`arrived` of a txid comes from what the partitions numbered, never from adding up its groups; a run without rows
    has an empty result.
    """
    batches = counted_rows(
        (2, "b", 1, 4, 4, None, None),
        (0, "b", 5, 0, 2, SECOND, SECOND + 3),
        (2, None, 9, 5, 11, None, None),
        (0, "a", 2, 1, 1, None, None),
    )

    found = results_of(COUNTED, batches, 3)

    assert [outcome.arrived for outcome in found] == [7, 0, 8]
    assert [outcome.rows.to_pylist() for outcome in found] == [
        [{"name": "a", "n": 2}, {"name": "b", "n": 5}],
        [],
        [{"name": "b", "n": 1}, {"name": None, "n": 9}],
    ]
    assert all(outcome.rows.schema.equals(COUNTED.schema) for outcome in found)
    assert [outcome.row_count for outcome in results_of(COUNTED, [], 2)] == [0, 0]


@pytest.mark.parametrize(
    ("lasts", "arrived"),
    [
        (((4, None), (2, None)), 5),
        (((4, SECOND), (2, SECOND + 6)), 12),
        (((None, SECOND + 1), (None, SECOND)), 2),
        (((2, None), (4, None)), 5),
    ],
    ids=["one partition", "both", "the second alone", "in any order"],
)
def test_of_a_run_by_itself_partitions_number_from_0(lasts: Any, arrived: int) -> None:
    """So a row that is lost before its group counts it is missed even where it was the first one."""
    alone = replace(COUNTED, by_run=False)
    groups = [("ab"[at], 1, *numbers, max(filter(None, numbers))) for at, numbers in enumerate(lasts)]
    columns = zip(*groups, strict=True)
    types = [pa.string(), *[pa.int64()] * 4]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]

    (found,) = results_of(alone, pa.table(arrays, ["_k0", "_n", "last0", "last1", "last"]).to_batches(), 1)

    assert (found.arrived, found.row_count) == (arrived, 2)


def test_rows_of_a_run_that_is_not_in_the_wave_are_never_dropped() -> None:
    with pytest.raises(Exception, match="a run that is not in the wave"):
        results_of(COUNTED, counted_rows((2, "a", 1, 0, 0, None, None)), 2)


def test_a_partition_that_was_not_planned_is_named() -> None:
    """Where Spark runs another plan than the one that was asked for its partitions: as a number of rows it would be the
    wrong one.
    """
    rows = counted_rows((0, "a", 1, 0, 0, None, None))
    last = pa.array([7 * SECOND], pa.int64())
    disturbed = [batch.set_column(batch.num_columns - 1, "last", last) for batch in rows]

    with pytest.raises(Exception, match="rows came in 8 partitions where Spark's plan has 2"):
        results_of(COUNTED, disturbed, 1)


def test_source_tasks_of_a_wave_emit_each_part_of_each_run_once() -> None:
    """Together one task does it all; else each does one part. A spout that is idle in a batch has none."""

    def work(txid: int, **parts: int) -> BatchWork:
        attempt = TransactionAttempt(txid, 0)
        return BatchWork(
            assignment=Assignment(attempt=attempt, metadata={name: {} for name in parts}),
            parts={name: [{"at": at} for at in range(parts.get(name, 0))] for name in ("s", "t")},
        )

    import json

    order = json.loads(
        emitter_order(["a", "b", "c"], [work(1, s=2), work(2, t=1), work(3, s=1)], together=False, needed={})
    )
    signer = Signer(reports=None)  # type: ignore[arg-type]
    emitters = [TaskEmitter(name=name, spout=None, code_hash=b"", reports=None, signer=signer) for name in ("s", "t")]  # type: ignore[arg-type]

    assert [emitter._parts(order) for emitter in emitters] == [[(0, 0), (0, 1), (2, 0)], [(1, 0)]]
    assert [run["run"] for run in order["runs"]] == ["a", "b", "c"]


def test_a_nan_is_no_difference_between_two_results() -> None:
    """A first wave is compared with its batches alone: rows that hold a NaN are equal to themselves."""
    nan = float("nan")
    table = pa.table({"word": ["a", "b", "c"], "share": pa.array([nan, 0.5, None])})

    assert same_rows(table, pa.table({"word": ["a", "b", "c"], "share": pa.array([nan, 0.5, None])}))
    for shares in ([nan, nan, None], [nan, 0.5, nan], [None, 0.5, None], [nan, 0.25, None], [0.0, 0.5, None]):
        assert not same_rows(table, pa.table({"word": ["a", "b", "c"], "share": pa.array(shares, pa.float64())}))
    assert not same_rows(table, table.slice(1))
    assert not same_rows(table, table.rename_columns(["word", "part"]))
    assert not same_rows(table, table.set_column(0, "word", pa.array(["a", "b", "x"])))
    assert not same_rows(table, table.set_column(0, "word", pa.array(["a", "b", None])))


def test_a_report_that_comes_twice_is_one_and_one_that_differs_is_kept_beside_it() -> None:
    """K4: a task that Spark runs again reports again; what it says is kept by key and never added up. Reports of other
    runs are dropped (K1).
    """
    reports = Reports()
    reports.open("run")
    first = Report(
        run="run", spout="source", part=0, read=1, rejects=(), failure=None, code_hash=b"", version="", host=""
    )

    reports.receive([first])
    reports.receive([replace(first, host="another")])
    reports.receive([replace(first, run="an earlier run")])
    assert reports.so_far("run") == {("source", 0): [first]}

    other = replace(first, read=2)
    reports.receive([other])
    assert reports.take("run") == {("source", 0): [first, other]}
    assert len(reports) == 0
