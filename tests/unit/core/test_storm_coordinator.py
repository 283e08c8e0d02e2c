"""Storm's coordinators, case by case, once with immutable metadata and once with an opaque spout."""

from __future__ import annotations

import pytest

from tests.kit.storm import Storm
from txtopo.core.events import End, StopWanted

both = pytest.mark.parametrize("opaque", [False, True], ids=["immutable", "opaque"])


def co_01(opaque: bool) -> Storm:
    """M=10, four active."""
    storm = Storm(10, active=4, opaque=opaque)
    assert storm.next_tuple() == ["batch 1:0 10", "batch 2:0 10", "batch 3:0 10", "batch 4:0 10"]
    return storm


def co_03(opaque: bool) -> Storm:
    storm = co_01(opaque)
    storm.fail(2)
    return storm


def co_05(opaque: bool) -> Storm:
    storm = co_03(opaque)
    assert storm.ack(1) == ["commit 1:0"]
    assert storm.ack(2) == []
    storm.meta = 12
    assert storm.ack_commit(1) == ["commit 2:1", "batch 5:0 12"]
    return storm


def co_06(opaque: bool) -> Storm:
    storm = co_05(opaque)
    storm.meta = None
    assert storm.ack_commit(2) == []
    return storm


def co_08(opaque: bool) -> Storm:
    storm = co_06(opaque)
    storm.meta = 12
    assert storm.next_tuple() == ["batch 6:0 12"]
    return storm


def co_09(opaque: bool) -> tuple[Storm, list[str]]:
    storm = co_08(opaque)
    assert [*storm.ack(3), *storm.ack(4)] == [f"commit 3:{int(opaque)}"]
    return storm, storm.fail_commit(3)


@both
def test_the_first_look_emits_as_many_batches_as_may_be_active(opaque: bool) -> None:
    """CO-01: batches 1 to 4 in order, no commit."""
    assert co_01(opaque).active == ["1:0", "2:0", "3:0", "4:0"]


@both
def test_a_full_window_emits_nothing(opaque: bool) -> None:
    """CO-02."""
    assert co_01(opaque).next_tuple() == []


def test_a_failed_immutable_batch_alone_is_emitted_again() -> None:
    """CO-03, immutable: the failed txid alone gets a new attempt, with its stored metadata."""
    storm = co_01(False)
    storm.meta = 11

    assert storm.fail(2) == ["batch 2:1 10"]
    assert storm.active == ["1:0", "2:1", "3:0", "4:0"]


def test_a_failed_opaque_batch_takes_all_later_ones_with_it() -> None:
    """CO-03, opaque: batches 2 to 4 with new attempts, and cut anew; 1 is not emitted again."""
    storm = co_01(True)
    storm.meta = 11

    assert storm.fail(2) == ["batch 2:1 11", "batch 3:1 11", "batch 4:1 11"]
    assert storm.active == ["1:0", "2:1", "3:1", "4:1"]


@both
def test_a_commit_that_is_done_frees_a_place_and_starts_the_next(opaque: bool) -> None:
    """CO-05: commit(2) and batch (5,12)."""
    co_05(opaque)


@both
def test_nothing_is_emitted_while_the_source_is_not_ready(opaque: bool) -> None:
    """CO-06: nothing: 3 is still in processing, 6 is not ready."""
    co_06(opaque)


@both
def test_a_source_that_is_ready_again_goes_on(opaque: bool) -> None:
    """CO-08: batch (6,12)."""
    co_08(opaque)


def test_a_failed_commit_of_an_immutable_batch_leaves_finished_work_alone() -> None:
    """CO-09, immutable: batch 3 alone, with its metadata; the finished processing of 4 stays."""
    storm, emitted = co_09(False)

    assert emitted == ["batch 3:1 10"]
    assert storm.ack(3) == ["commit 3:1"]
    assert storm.ack_commit(3) == ["commit 4:0", "batch 7:0 12"]


def test_a_failed_commit_of_an_opaque_batch_discards_what_is_finished_behind_it() -> None:
    """CO-09, opaque: batches 3 to 6 again. 3 is pinned by its mirror and keeps its metadata; the others are cut anew."""  # noqa: E501
    _, emitted = co_09(True)

    assert sorted(emitted) == ["batch 3:2 10", "batch 4:2 12", "batch 5:1 12", "batch 6:1 12"]


def test_after_the_failure_commits_go_on_in_order() -> None:
    """CO-10: commit(3); nothing; nothing; commit(4) and batch (7,12)."""
    storm, _ = co_09(True)

    assert [storm.ack(3), storm.ack(4), storm.next_tuple(), storm.ack_commit(3)] == [
        ["commit 3:2"],
        [],
        [],
        ["commit 4:2", "batch 7:0 12"],
    ]


@both
def test_the_store_keeps_the_counter_and_the_metadata_of_what_is_not_committed(opaque: bool) -> None:
    """CO-11: currtx and meta; of our store currtx is the highest committed txid, and at least ten committed ones keep
    their metadata (R8).
    """
    for run, last, top in ((co_05, 1, 5), (co_06, 2, 5), (lambda kind: co_09(kind)[0], 2, 6)):
        storm = run(opaque)
        store = storm.store
        assert store.mark == last
        assert set(store.attempts) == set(range(last + 1, top + 1))
        assert set(store.cuts if opaque else store.plans) == set(range(1, top + 1))

    assert co_01(opaque).committed_txids[0] == 0  # Storm's null
    assert co_05(opaque).committed_txids[-1] == 1
    assert co_08(opaque).committed_txids[-1] == 2


@both
def test_after_the_whole_run_the_store_is_at_the_third_batch(opaque: bool) -> None:
    """CO-10, CO-11: after CO-10 currtx is 4 (here the mark of what is committed is 3) and metadata is there up to 7;
    attempts of 4 to 7 alone.
    """
    storm, _ = co_09(opaque)
    storm.ack(3)
    if opaque:
        storm.ack(4)
    assert storm.ack_commit(3)[-1] == "batch 7:0 12"

    store = storm.store
    assert store.mark == 3
    assert set(store.attempts) == {4, 5, 6, 7}
    assert set(store.cuts if opaque else store.plans) == set(range(1, 8))
    assert storm.active[-1] == "7:0"


@both
def test_a_stale_failure_has_no_effect(opaque: bool) -> None:
    """CO-13: active {1,2',3',4'}; Storm drops the newer attempt."""
    storm = co_03(opaque)
    before = storm.active

    assert storm.fail(2, 0) == []

    assert storm.active == before
    assert storm.ack(2, 0) == []
    assert storm.hand.state.batches[2].processed is None


@both
def test_one_active_batch_means_one_at_a_time(opaque: bool) -> None:
    """CO-15: batch (1,10); commit(1); batch (2,10)."""
    storm = Storm(10, active=1, opaque=opaque)

    assert [storm.next_tuple(), storm.ack(1), storm.ack_commit(1)] == [
        ["batch 1:0 10"],
        ["commit 1:0"],
        ["batch 2:0 10"],
    ]


def mc_01(opaque: bool) -> Storm:
    storm = Storm("m", active=3, opaque=opaque)
    assert storm.next_tuple() == ["batch 1:0 m", "batch 2:0 m", "batch 3:0 m"]
    assert storm.store.attempts == {1: 0, 2: 0, 3: 0}
    return storm


@both
def test_attempt_ids_of_the_whole_window_are_persisted(opaque: bool) -> None:
    """MC-01: currattempts {1:0,2:0,3:0}."""
    mc_01(opaque)


@both
def test_a_commit_is_followed_by_the_next_batch_and_the_counter(opaque: bool) -> None:
    """MC-02: commit 1:0; then batch 4:0, currtx moves on, currattempts {2:0,3:0,4:0}."""
    storm = mc_01(opaque)

    assert storm.ack(1) == ["commit 1:0"]
    assert storm.ack_commit(1) == ["batch 4:0 m"]

    assert (storm.store.mark, storm.store.attempts) == (1, {2: 0, 3: 0, 4: 0})


@pytest.mark.parametrize(
    ("opaque", "emitted", "attempts"),
    [
        (False, ["batch 2:1 m"], {2: 1, 3: 0, 4: 0}),
        (True, ["batch 2:1 m", "batch 3:1 m", "batch 4:1 m"], {2: 1, 3: 1, 4: 1}),
    ],
    ids=["immutable", "opaque"],
)
def test_attempts_count_up_by_txid(opaque: bool, emitted: list[str], attempts: dict[int, int]) -> None:
    """MC-03: batch 2:1, 3:1, 4:1; with immutable metadata 2:1 alone."""
    storm = mc_01(opaque)
    storm.ack(1)
    storm.ack_commit(1)

    assert storm.fail(2) == emitted

    assert storm.store.attempts == attempts


@both
def test_a_topology_that_is_stopped_commits_what_runs_and_starts_nothing(opaque: bool) -> None:
    """MC-05, STORM-794: deactivated with a full window, it commits 1 and 2 and emits nothing; the next activation goes
    on with 3:0 and 4:0.
    """
    storm = Storm("m", active=2, opaque=opaque)
    storm.next_tuple()
    storm.hand.tell(StopWanted(at_once=False, reason="deactivated"))

    emitted = [storm.ack(1), storm.ack_commit(1), storm.ack(2), storm.ack_commit(2)]

    assert emitted == [["commit 1:0"], [], ["commit 2:0"], []]
    assert [end.kind for end in storm.hand.everything if isinstance(end, End)] == ["stopped"]
    assert sorted({*storm.store.plans, *storm.store.cuts}) == [1, 2], "nor does it plan anything more"
    again = Storm("m", active=2, opaque=opaque, last_txid=2)
    assert again.next_tuple() == ["batch 3:0 m", "batch 4:0 m"]
