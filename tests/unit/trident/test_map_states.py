"""The three kinds of map state in Storm's timing: its own cases, and where they give a wrong value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from txtopo.trident.map_states import (
    MapState,
    NonTransactionalMap,
    OpaqueMap,
    StateError,
    StateRecord,
    TransactionalMap,
    opaque_value,
)


class DictStore:
    def __init__(self, **records: Any) -> None:
        self.records: dict[Any, Any] = dict(records)

    def multi_get(self, keys: Sequence[Any]) -> Sequence[Any]:
        return [self.records.get(key) for key in keys]

    def multi_put(self, records: Mapping[Any, Any]) -> None:
        self.records.update(records)


def adding(n: int) -> Any:
    return lambda value: (value or 0) + n


def add(state: MapState, n: int, key: str = "a") -> Any:
    return state.multi_update([key], [adding(n)])[0]


def get(state: MapState, key: str = "a") -> Any:
    return state.multi_get([key])[0]


def test_st_01_an_opaque_value() -> None:
    record = StateRecord(8, "v1", "v0")
    assert [opaque_value(record, txid) for txid in (None, 100, 9, 8)] == ["v1", "v1", "v1", "v0"]
    with pytest.raises(StateError, match="of batch 8, and batch 7"):
        opaque_value(record, 7)
    for txid, previous in ((8, "v0"), (9, "v1")):
        store = DictStore(a=record)
        state = OpaqueMap(store)
        state.begin_commit(txid)
        state.multi_put(["a"], ["v2"])
        assert store.records["a"] == StateRecord(txid, "v2", previous)


def test_st_02_an_opaque_map() -> None:
    state = OpaqueMap(DictStore())
    state.begin_commit(1)
    assert [get(state), add(state, 1), get(state), add(state, 2), get(state)] == [None, 1, 1, 3, 3]
    state.commit(1)
    state.begin_commit(1)
    assert [get(state), add(state, 2)] == [None, 2]
    state.commit(1)
    state.begin_commit(2)
    assert [get(state), add(state, 3), add(state, 1)] == [2, 5, 6]


def test_st_03_a_transactional_map() -> None:
    state = TransactionalMap(DictStore())
    state.begin_commit(1)
    assert [get(state), add(state, 1), add(state, 2)] == [None, 1, 3]
    state.begin_commit(1)
    assert [get(state), add(state, 1), add(state, 2)] == [3, 3, 3]
    state.begin_commit(2)
    assert [get(state), add(state, 3), add(state, 1)] == [3, 6, 7]


def test_st_04_removed_keys() -> None:
    state = OpaqueMap(DictStore())
    state.begin_commit(1)
    state.multi_put(["a", "b"], [1, 2])
    state.begin_commit(2)
    state.multi_remove(["a"])
    assert [get(state, "a"), get(state, "b")] == [None, 2]
    state.begin_commit(2)
    assert [get(state, "a"), get(state, "b")] == [1, 2]
    state.multi_remove(["a"])
    state.begin_commit(3)
    assert [get(state, "a"), get(state, "b")] == [None, 2]


def test_st_05_a_transactional_batch_that_is_repeated() -> None:
    store = DictStore(man=StateRecord(1, 3), dog=StateRecord(3, 4), apple=StateRecord(2, 10))
    state = TransactionalMap(store)
    state.begin_commit(3)
    state.multi_update(["man", "dog"], [adding(2), adding(1)])
    assert store.records == {"man": StateRecord(3, 5), "dog": StateRecord(3, 4), "apple": StateRecord(2, 10)}


def test_st_06_an_opaque_batch_that_is_cut_again() -> None:
    for txid, expected in ((3, StateRecord(3, 6, 4)), (2, StateRecord(2, 3, 1))):
        store = DictStore(a=StateRecord(2, 4, 1))
        state = OpaqueMap(store)
        state.begin_commit(txid)
        add(state, 2)
        assert store.records["a"] == expected


@pytest.mark.parametrize("kind", [NonTransactionalMap, TransactionalMap, OpaqueMap])
def test_st_09_equal_keys_in_one_call_all_count(kind: type[MapState]) -> None:
    state = kind(DictStore())
    state.begin_commit(1)
    assert state.multi_update(["a", "a"], [adding(1), adding(1)]) == [1, 2]
    assert get(state) == 2


@pytest.mark.parametrize(
    ("kind", "same_tuples", "other_tuples"),
    [(NonTransactionalMap, 16, 15), (TransactionalMap, 13, 13), (OpaqueMap, 13, 12)],
)
def test_st_10_a_written_attempt_that_fails(kind: type[MapState], same_tuples: int, other_tuples: int) -> None:
    for repeated, expected in ((3, same_tuples), (2, other_tuples)):
        state = kind(DictStore())
        state.begin_commit(4)
        add(state, 10)
        state.begin_commit(5)
        add(state, 3)
        state.begin_commit(5)
        add(state, repeated)
        state.begin_commit(6)
        assert get(state) == expected


@pytest.mark.parametrize("kind", [TransactionalMap, OpaqueMap])
def test_a_quarantined_batch_that_was_written_has_an_effect_in_storms_timing(kind: type[MapState]) -> None:
    """Why a store outside is to be written after COMMIT: batch 5 has no effect in the ledger, and one in the store."""
    state = kind(DictStore())
    state.begin_commit(4)
    add(state, 10)
    state.begin_commit(5)
    add(state, 3)
    state.begin_commit(6)  # 5 is quarantined; the same tuples come again as batch 6
    add(state, 3)
    state.begin_commit(7)
    assert get(state) == 16


@pytest.mark.parametrize(("kind", "wrong"), [(TransactionalMap, 3), (OpaqueMap, 3)])
def test_a_mended_bolt_without_the_key_leaves_the_old_value_in_storms_timing(kind: type[MapState], wrong: int) -> None:
    """The second attempt of batch 5 does not have the key any more, so nothing takes its first value back."""
    state = kind(DictStore())
    state.begin_commit(5)
    add(state, 3)
    state.begin_commit(5)
    add(state, 1, "b")
    state.begin_commit(6)
    assert get(state) == wrong


def test_an_update_outside_of_a_batch_is_refused() -> None:
    state = OpaqueMap(DictStore())
    with pytest.raises(StateError, match="call begin_commit first"):
        add(state, 1)


def test_what_a_failed_attempt_read_is_not_seen_by_the_next_one() -> None:
    store = DictStore(a=StateRecord(1, 1))
    state = TransactionalMap(store)
    state.begin_commit(2)
    assert get(state) == 1
    store.records["a"] = StateRecord(1, 7)
    state.begin_commit(2)
    assert get(state) == 7
