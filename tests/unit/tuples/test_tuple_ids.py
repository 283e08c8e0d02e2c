"""What stands behind acking by tuple, by itself: the ids of tuples, the records of their roots, and what tasks tell the
ackers.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txtopo.tuples import acking
from txtopo.tuples.acking import FOLD_ROWS, Fold, fold
from txtopo.tuples.graph import PLACE_BITS
from txtopo.tuples.hashing import mix_int
from txtopo.tuples.roots import Roots


def test_ids_never_repeat_in_a_topology() -> None:
    """Ids come of the way and the place on it: different ways and places, different ids, the same in each run."""
    bases = [mix_int(1, 0, 2), mix_int(1, 0, 3), mix_int(2, 0, 3)]
    ways = [acking.ids(base, 0, 10_000) for base in bases]

    assert len(np.unique(np.concatenate(ways))) == 30_000
    assert acking.ids(bases[0], 9_000, 10).tolist() == ways[0][9_000:9_010].tolist()


@given(
    first=st.integers(0, 2**40),
    counts=st.lists(st.integers(0, 4), max_size=20),
    lists=st.lists(st.lists(st.integers(0, 9), max_size=3, unique=True), min_size=20, max_size=20),
)
def test_a_run_of_tuples_is_worth_the_ids_of_all_of_them(first: int, counts: list[int], lists: list[list[int]]) -> None:
    """The marks at the ends of a run are the XOR of its ids, so both ends of a way agree however they cut what goes
    over it.
    """
    by_row = [found for found, count in zip(lists, counts, strict=False) for _ in range(count)]
    at_once, apart = Fold(), Fold()

    at_once.add_tuples(7, first, Roots.of_rows(by_row))
    for at, (value, roots) in enumerate(zip(acking.ids(7, first, len(by_row)).tolist(), by_row, strict=True)):
        apart.add(np.array(roots, dtype=np.int64), np.full(len(roots), value))
        assert value == acking.ids(7, first + at, 1)[0]

    assert [part.tolist() for part in at_once.folded()] == [part.tolist() for part in apart.folded()]


def test_no_set_of_lost_tuples_goes_unnoticed() -> None:
    """Ids of neighbours share a mark, and yet no set of them is 0: of 16 tuples all 65,535 are tried."""
    ids = acking.ids(mix_int(1, 0, 2), 1_000, 16)
    sums = np.zeros(1, dtype=np.int64)
    for value in ids:
        sums = np.concatenate([sums, sums ^ value])

    assert len(np.unique(sums)) == 2**16


def test_folding_is_xor_by_root_whatever_the_order_and_the_pieces() -> None:
    """ACKs come in any order; one record a root, 0 where everything was acked."""
    rng = np.random.default_rng(5)
    roots = rng.integers(0, 500, 3 * FOLD_ROWS)
    values = rng.integers(-(2**62), 2**62, len(roots))
    wanted: dict[int, int] = {}
    for root, value in zip(roots.tolist(), values.tolist(), strict=True):
        wanted[root] = wanted.get(root, 0) ^ value

    pieces = Fold()
    for at in range(0, len(roots), 70_001):
        pieces.add(roots[at : at + 70_001], values[at : at + 70_001])
    pieces.fail(np.array([3, 3, 999]))
    found, folded, failed = pieces.folded()

    assert dict(zip(found.tolist(), folded.tolist(), strict=True)) == {**wanted, 999: 0}
    assert found[failed].tolist() == [3, 999]
    assert [list(part) for part in fold(np.array([2, 1, 2]), np.array([5, 7, 5]))] == [[1, 2], [7, 0]]


PARTS = st.integers(0, 3).map(lambda part: part << PLACE_BITS)
ADDITIONS = st.lists(
    st.one_of(
        st.builds(
            lambda part, low, rows: list(range(part + low, part + low + rows)),
            PARTS,
            st.integers(0, 9),
            st.integers(1, 40),
        ),
        st.builds(
            lambda part, places: sorted(part + place for place in places),
            PARTS,
            st.sets(st.integers(0, 60), min_size=1),
        ),
        st.lists(st.builds(lambda part, place: part + place, PARTS, st.integers(0, 2**39)), min_size=1, max_size=9),
        st.lists(st.builds(lambda part, place: part + place, PARTS, st.integers(0, 9)), min_size=1, max_size=9).map(
            sorted
        ),
    ),
    min_size=1,
    max_size=8,
)


@given(ADDITIONS, st.integers(1, 64), st.sets(st.integers(0, 12)))
def test_records_are_the_same_whether_they_are_sorted_or_have_a_place(
    additions: list[list[int]], piece_rows: int, failed: set[int]
) -> None:
    """Runs without gaps, with gaps, over several parts, in no order and with repetitions, in any mixture."""
    folded, wanted = Fold(), dict.fromkeys(failed, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acking, "PIECE_ROWS_MIN", piece_rows)
        patch.setattr(acking, "FOLD_ROWS", 30)
        for number, roots in enumerate(additions):
            values = [mix_int(number, place) >> 1 for place in range(len(roots))]
            folded.add(np.array(roots), np.array(values))
            for root, value in zip(roots, values, strict=True):
                wanted[root] = wanted.get(root, 0) ^ value
        folded.fail(np.array(sorted(failed), dtype=np.int64))
        roots_found, values_found, has_failed = folded.folded()

    assert list(zip(roots_found.tolist(), values_found.tolist(), strict=True)) == sorted(wanted.items())
    assert set(roots_found[has_failed].tolist()) == failed


def test_tuples_of_whole_parts_are_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting is most of what acking costs: it is for roots with large gaps between them."""
    folded, roots = (
        Fold(),
        np.concatenate([np.arange(part << PLACE_BITS, (part << PLACE_BITS) + 1000) for part in (4, 7)]),
    )
    values = np.arange(2000) + 1

    def refused(*_: object) -> None:
        raise AssertionError("sorted")

    with monkeypatch.context() as patch:
        patch.setattr(acking, "fold", refused)
        folded.add(roots, values)
        folded.add(roots[500:1500:2], values[500:1500:2])
        folded.add(roots[500:1500], values[500:1500])
        found, left, _ = folded.folded()
    assert np.array_equal(found, roots)
    assert not left[501:1500:2].any()
    assert np.array_equal(left[500:1500:2], values[500:1500:2])

    sparse = Fold()
    for gap in (0, 1 << 20):
        sparse.add(np.array([5, 6 + gap]), np.array([1, 2]))
    assert [part.tolist() for part in sparse.folded()[:2]] == [[5, 6, 6 + (1 << 20)], [0, 2, 2]]


def test_a_fold_keeps_no_message_in_memory() -> None:
    """Its roots may be a view of a message, with all tuples of it."""
    message = np.arange(1_000_000)
    folded = Fold()
    folded.add(message[10:20], np.ones(10, dtype=np.int64))

    roots, _, _ = folded.folded()
    assert roots.base is None


def test_only_some_roots_are_named_and_all_are_counted() -> None:
    """Fixed memory: of a million incomplete roots an acker names a hundred."""
    everything = Fold()
    everything.add(np.arange(1000), np.ones(1000, dtype=np.int64))
    everything.fail(np.arange(300))

    result, end = acking.outcome_messages(everything, 0, 9, 0, 1000)
    outcome = acking.outcome_of([result.body], [end.body])

    assert (outcome.roots, outcome.failed, outcome.incomplete) == (1000, 300, 700)
    assert outcome.failed_roots == tuple(range(100))
    assert outcome.incomplete_roots == tuple(range(300, 400))


def test_ackers_share_the_roots() -> None:
    """Each root has one acker task, by its number; every task tells every acker, also where it has nothing to tell."""
    gathered = Fold()
    roots = np.concatenate([np.arange(20_000), np.arange(50_000, 50_003)])
    gathered.add(roots, roots * 3)
    gathered.fail(np.array([7, 50_001]))

    messages = acking.to_ackers(gathered, (5, 6, 7), 0, 1)
    told = [acking.told(message.body) for message in messages if message.body is not None]

    assert [message.target for message in messages] == [5, 6, 7]
    assert [message.rows for message in messages] == [len(found) for found, _, _ in told]
    assert all(len(found) > 3_000 for found, _, _ in told)
    assert sorted(np.concatenate([found for found, _, _ in told]).tolist()) == roots.tolist()
    assert all((values == found * 3).all() for found, values, _ in told)
    assert sorted(np.concatenate([failed for _, _, failed in told]).tolist()) == [7, 50_001]


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("part", [0, 1, 7])
def test_ackers_have_equal_shares_also_of_one_small_part(part: int, count: int) -> None:
    """`topology.acker.executors` is of use to a batch of a few thousand tuples."""
    gathered = Fold()
    gathered.add((part << PLACE_BITS) + np.arange(6_000), np.ones(6_000, dtype=np.int64))

    shares = [message.rows for message in acking.to_ackers(gathered, range(1, count + 1), 0, 1)]

    assert max(shares) - min(shares) <= 2**acking.ACKER_BITS


def test_roots_that_follow_each_other_are_told_in_little_more_than_their_values() -> None:
    """What a task tells of a million tuples is 8 bytes for each."""
    gathered = Fold()
    gathered.add(np.arange(10_000), np.ones(10_000, dtype=np.int64))

    (message,) = acking.to_ackers(gathered, (5,), 0, 1)

    assert message.body is not None
    assert message.body.nbytes < 10_000 * 8 + 200


def test_an_acker_that_has_nothing_to_hear_is_told_so() -> None:
    """It waits for a message of every task."""
    told = [acking.told(message.body) for message in acking.to_ackers(Fold(), (5, 6), 0, 1) if message.body is not None]

    assert [[len(part) for part in parts] for parts in told] == [[0, 0, 0], [0, 0, 0]]
    assert [message.rows for message in acking.to_ackers(Fold(), (5, 6), 0, 1)] == [0, 0]
