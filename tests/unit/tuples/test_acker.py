"""Storm's acker, message by message: any order, exactly one answer, timeouts on a clock that tests move, fixed memory a
root.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txtopo.tuples.acker import Acker, AckerAnswer, Metronome, Pending, RotatingMap, TreeVerdict, acker_of
from txtopo.tuples.acking import Fold

ROOT, TASK = 77, 3
Send = Callable[[Acker], TreeVerdict | None]


def init(value: int) -> Send:
    return lambda acker: acker.init(ROOT, value, TASK)


def ack(value: int) -> Send:
    return lambda acker: acker.ack(ROOT, value)


def fail() -> Send:
    return lambda acker: acker.fail(ROOT)


def reset() -> Send:
    return lambda acker: acker.reset(ROOT)


def answers(*messages: Send, acker: Acker | None = None) -> list[tuple[AckerAnswer, int, int]]:
    """What the acker said to those messages."""
    told = acker or Acker()
    said = [verdict for send in messages if (verdict := send(told)) is not None]
    return [(verdict.answer, verdict.root, verdict.task) for verdict in said]


ACKED, FAILED, RESET = (AckerAnswer.ACK, ROOT, TASK), (AckerAnswer.FAIL, ROOT, TASK), (AckerAnswer.RESET, ROOT, TASK)


@pytest.mark.parametrize(
    "messages",
    [(ack(5), init(5)), (init(5 ^ 9), ack(9), ack(5)), (ack(9), ack(5), init(5 ^ 9)), (ack(5), init(5 ^ 9), ack(9))],
)
def test_a_complete_tree_is_acked_exactly_once(messages: tuple[Send, ...]) -> None:
    """AK-06: ACK before or after INIT: the ack is sent to the spout's task exactly once."""
    assert answers(*messages) == [ACKED]


def test_a_spout_tuple_that_nobody_reads_is_acked_by_init() -> None:
    """AK-08 (ii): no subscriber: INIT with value 0 is complete at once."""
    assert answers(init(0)) == [ACKED]


@pytest.mark.parametrize(
    ("messages", "when"), [((init(5), fail()), 1), ((fail(), init(5)), 1), ((fail(), ack(9), init(5)), 2)]
)
def test_a_failed_tree_is_failed_as_soon_as_its_task_is_known(messages: tuple[Send, ...], when: int) -> None:
    """STORM.md 5: FAIL before INIT waits for it."""
    acker = Acker()

    assert answers(*messages[:when], acker=acker) == []
    assert answers(*messages[when:], acker=acker) == [FAILED]


def test_zero_wins_over_failed() -> None:
    """STORM.md 5: `val == 0` is looked at first."""
    assert answers(fail(), ack(5), init(5)) == [ACKED]


def test_a_reset_is_passed_on_only_to_a_task_that_is_known_and_waits() -> None:
    """STORM.md 5: RESET before INIT makes a record and says nothing; after a verdict it makes an orphan."""
    assert answers(reset(), init(5), reset(), reset(), ack(5), reset()) == [RESET, RESET, ACKED]


def test_what_comes_after_the_answer_ages_out_without_a_word() -> None:
    """STORM.md 5: messages after removal create an orphan record that just ages out."""
    acker = Acker(timeout_s=10)
    answers(init(5), fail(), ack(5), fail(), reset(), acker=acker)

    acker.advance(29)
    before = acker.roots
    acker.advance(30)
    assert (before, acker.roots) == ((ROOT,), ())


def test_a_record_that_is_touched_by_fail_or_reset_is_as_new_and_by_ack_is_not() -> None:
    """Storm's Acker puts into the newest bucket on FAIL and RESET only."""
    acker = Acker(timeout_s=10)
    for root in (1, 2, 3):
        acker.ack(root, 5)
    acker.advance(20)
    acker.ack(1, 6)
    acker.fail(2)
    acker.reset(3)
    acker.advance(30)

    assert acker.roots == (2, 3)


def test_nothing_ages_where_timeouts_are_off() -> None:
    """AK-04: `topology.enable.message.timeouts: false`."""
    acker, pending = Acker(timeout_s=10, timeouts=False), Pending[str](timeout_s=10, timeouts=False)
    acker.ack(ROOT, 5)
    pending.add(ROOT, "a")

    acker.advance(1_000)

    assert acker.roots == (ROOT,)
    assert pending.advance(1_000) == []
    assert pending.take(ROOT) == "a"


def test_the_seconds_of_a_verdict_are_those_since_the_first_message() -> None:
    """Storm's acker sends the time since its record was made."""
    acker = Acker(timeout_s=30)
    acker.ack(ROOT, 5)
    acker.advance(12.5)

    assert acker.init(ROOT, 5, TASK) == TreeVerdict(AckerAnswer.ACK, ROOT, TASK, 12.5)


@pytest.mark.parametrize(("added_at", "fails_at"), [(0.0, 20.0), (1.0, 20.0), (9.5, 20.0), (10.0, 30.0), (10.5, 30.0)])
def test_a_spout_tuple_fails_after_one_to_two_timeouts(added_at: float, fails_at: float) -> None:
    """STORM.md 5: RotatingMap of two buckets: expires after T..2T."""
    pending = Pending[str](timeout_s=10)
    pending.advance(added_at)
    pending.add(1, "a")

    assert pending.advance(fails_at - 0.5) == []
    assert pending.advance(fails_at) == ["a"]


def test_an_answer_after_the_timeout_is_ignored() -> None:
    """STORM.md 5: a later ack is ignored; so is a later reset."""
    pending = Pending[str](timeout_s=10)
    pending.add(1, "a")

    assert pending.advance(20) == ["a"]
    pending.reset(1)
    assert (pending.take(1), len(pending)) == (None, 0)


def test_a_reset_begins_the_time_anew() -> None:
    """AK-05: a reset tuple lives on while others of its age fail."""
    pending = Pending[str](timeout_s=10)
    pending.add(1, "a")
    pending.add(2, "b")
    pending.advance(18)
    pending.reset(1)

    assert pending.advance(20) == ["b"]
    assert pending.advance(29.5) == []
    assert pending.advance(30) == ["a"]


def test_several_timeouts_at_once_fail_the_oldest_first() -> None:
    """However far the clock is moved, nothing is lost."""
    pending = Pending[str](timeout_s=10)
    pending.add(1, "a")
    pending.advance(10)
    pending.add(2, "b")

    assert pending.advance(100) == ["a", "b"]


def test_a_rotating_map_holds_a_key_once() -> None:
    """A put takes the key out of older buckets, a look does not make it newer."""
    held = RotatingMap[str](2)
    held.put(1, "a")
    held.rotate()
    held.put(1, "b")
    held.put(2, "c")

    assert (len(held), held.get(1), held.rotate()) == (2, "b", {})
    assert held.get(2) == "c"
    assert held.rotate() == {1: "b", 2: "c"}
    assert (held.get(1), held.remove(1)) == (None, None)


def test_a_metronome_counts_ticks_and_not_calls() -> None:
    """Ticks do not depend on how time is cut."""
    fine, coarse = Metronome(0.3), Metronome(0.3)

    assert sum(fine.advance(step * 0.25) for step in range(13)) == coarse.advance(3.0) == 10
    assert fine.advance(1.0) == 0  # the clock never goes back
    assert fine.now == 3.0
    with pytest.raises(ValueError, match="more than 0"):
        Metronome(0)


def test_roots_go_to_ackers_as_in_storm() -> None:
    """STORM.md 5: floorMod(31 + hash(root), ackers), hash = low 32 bits XOR high 32 bits, in Java's int."""
    assert [acker_of(root, 4) for root in (0, 1, -1, 1 << 32, (1 << 31) - 1, 1 << 31)] == [3, 0, 3, 0, 2, 3]


# ----------------------------------------------------------------------------------------------------------------------


class FoldedAcker:
    """Takes an acker's messages into the fold of the batch runtime, which knows neither order nor time."""

    def __init__(self) -> None:
        self.fold = Fold()

    def init(self, root: int, value: int, _: int) -> None:
        self.ack(root, value)

    def ack(self, root: int, value: int) -> None:
        self.fold.add(np.array([root]), np.array([value]))

    def fail(self, root: int) -> None:
        self.fold.fail(np.array([root]))


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Send], list[Send]]:
    """Messages of a whole tree, each edge a bit of its own: (all acked, the same with one tuple failed in place of its
    ack).
    """
    children: list[list[int]] = [[]]
    for edge in range(1, draw(st.integers(1, 12)) + 1):
        # An edge may have several parents: a tuple anchored on several tuples of one tree, on the same one twice
        # included.
        for parent in draw(st.lists(st.integers(0, edge - 1), min_size=1, max_size=3)):
            children[parent].append(edge)
        children.append([])
    # Storm draws a new id for each anchor of an emit and gives the tuple their XOR.
    bit = iter(range(1, 1_000))
    ids, values = [0] * len(children), [0] * len(children)
    for parent, below in enumerate(children):
        for child in below:
            edge_id = 1 << next(bit)
            ids[child] ^= edge_id
            values[parent] ^= edge_id
    acks = [ack(ids[edge] ^ values[edge]) for edge in range(1, len(children))]
    lost = draw(st.integers(0, len(acks) - 1))
    good = [init(values[0]), *acks]
    bad = [init(values[0]), *acks[:lost], fail(), *acks[lost + 1 :]]
    return draw(st.permutations(good)), draw(st.permutations(bad))


@given(trees())
def test_any_order_of_the_same_messages_gives_the_same_verdict(tree: tuple[list[Send], list[Send]]) -> None:
    """Promise: a root that is acked is acked once, with its last message; one that failed is failed once."""
    good, bad = tree
    acker = Acker()

    assert answers(*good[:-1], acker=acker) == []
    assert answers(good[-1], acker=acker) == [ACKED]
    assert acker.roots == ()
    assert answers(*bad) == [FAILED]


@given(trees())
def test_the_fold_of_a_batch_says_what_an_acker_says(tree: tuple[list[Send], list[Send]]) -> None:
    """Promise: the vectorised folding of batches agrees with Storm's acker on trees that are complete, incomplete and
    failed.
    """
    good, bad = tree

    for messages, complete, failed in ((good, True, False), (good[:-1], False, False), (bad, False, True)):
        folded = FoldedAcker()
        for send in messages:
            send(folded)  # type: ignore[arg-type]
        roots, values, fails = folded.fold.folded()
        assert roots.tolist() == [ROOT]
        assert (not values.any() and not fails.any(), bool(fails.any())) == (complete, failed)
        assert (ACKED in answers(*messages), FAILED in answers(*messages)) == (complete, failed)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["init", "ack", "fail", "reset", "tick"]), st.integers(0, 3)))
)
def test_no_message_is_ever_out_of_place(messages: list[tuple[int, str, int]]) -> None:
    """Promise: INIT, ACK, FAIL, RESET in any order, of any roots, repeated: an answer is only for a root that INIT
    named, and ends its record.
    """
    acker, now = Acker(timeout_s=1), 0.0
    known: set[int] = set()
    for root, what, value in messages:
        if what == "tick":
            now += 1
            acker.advance(now)
            known &= set(acker.roots)
            continue
        if what == "init":
            verdict = acker.init(root, value, root)
        elif what == "ack":
            verdict = acker.ack(root, value)
        else:
            verdict = acker.fail(root) if what == "fail" else acker.reset(root)
        known |= {root} if what == "init" else set()
        if verdict is not None:
            assert (verdict.root, verdict.task) == (root, root)
            assert root in known
            assert (root in acker.roots) is (verdict.answer is AckerAnswer.RESET)
            known -= set() if verdict.answer is AckerAnswer.RESET else {root}


def test_a_root_takes_the_same_memory_however_large_its_tree_is() -> None:
    """Promise: fixed memory a root."""
    acker = Acker()
    acker.init(ROOT, 1, TASK)
    record = acker._records.get(ROOT)

    for edge in range(2, 5_000):
        acker.ack(ROOT, edge << 1)

    assert acker._records.get(ROOT) is record
    assert len(acker._records) == 1
    assert not hasattr(record, "__dict__")
    assert sum(sys.getsizeof(getattr(record, name)) for name in ("failed", "started", "task", "value")) < 200
