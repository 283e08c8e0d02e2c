"""Rotating state behaves as Storm's does: one value a txid, made once, dropped when it is old (STORM.md 1.5)."""

from __future__ import annotations

from typing import Any

import pytest

from txtopo.errors import BatchDataError
from txtopo.spouts.rotating_state import (
    MemoryStateStore,
    NodeThereError,
    OutOfOrderError,
    RotatingState,
    RotatingTransactionalState,
)


class Init:
    """Gives `value`, and remembers what it was asked."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.calls: list[tuple[int, Any]] = []

    def __call__(self, txid: int, previous: Any) -> Any:
        self.calls.append((txid, previous))
        return self.value


def strict() -> tuple[MemoryStateStore, RotatingTransactionalState, Init]:
    """Values of 1, 2 and 3 in strict order."""
    store, init = MemoryStateStore(), Init(10)
    state = RotatingTransactionalState(store, strict_order=True)
    state.get_state(1, init)
    state.get_state(2, init)
    init.value = 20
    state.get_state(3, init)
    return store, state, init


def loose() -> tuple[MemoryStateStore, RotatingState, Init]:
    """RS-04's state."""
    store, init = MemoryStateStore(), Init(20)
    state = RotatingState(store)
    for txid in (10, 20, 12, 19, 12, 21):
        state.get_state(txid, init)
    return store, state, init


def test_a_value_is_made_once_and_stays() -> None:
    """RS-01: strict; init returns 10, later 20: 10, 10, 20, 10."""
    _, state, init = strict()

    assert [state.get_state(txid, init) for txid in (1, 2, 3, 1)] == [10, 10, 20, 10]
    assert init.calls == [(1, None), (2, 10), (3, 10)]


def test_strict_order_leaves_no_gap_and_cleanup_keeps_the_txid_named() -> None:
    """RS-02: get(5) is an error; get(4) gives 20, four children stored; cleanup before 3 leaves 3 and 4."""
    store, state, init = strict()

    with pytest.raises(OutOfOrderError, match="txid 4 has no value"):
        state.get_state(5, init)
    assert state.get_state(4, init) == 20
    assert sorted(store.nodes) == [1, 2, 3, 4]
    state.cleanup_before(3)

    assert sorted(store.nodes) == [3, 4]
    assert state.txids == (3, 4)


def test_strict_order_puts_nothing_before_what_is_there() -> None:
    _, state, init = strict()
    state.cleanup_before(3)

    with pytest.raises(OutOfOrderError, match="txid 3 has a value already"):
        state.get_state(1, init)


def test_without_strict_order_a_txid_in_between_is_null() -> None:
    """RS-04: get 10, 20, 12, 19, 12, 21 gives 20, 20, null, null, null, 20; init ran 3 times."""
    init = Init(20)
    state = RotatingState(MemoryStateStore())

    assert [state.get_state(txid, init) for txid in (10, 20, 12, 19, 12, 21)] == [20, 20, None, None, None, 20]
    assert [txid for txid, _ in init.calls] == [10, 20, 21]


def test_a_stored_null_is_a_value() -> None:
    """RS-06: reopened on the same store: the same map; get(12) is still null without calling init."""
    store, before, _ = loose()
    init = Init(99)
    again = RotatingState(store)

    assert again.txids == before.txids == (10, 12, 19, 20, 21)
    assert again.has_cache(12)
    assert again.get_state(12, init) is None
    assert init.calls == []


def test_races_on_idempotent_paths_are_no_errors() -> None:
    """RS-07, STORM-1114: override, remove, remove what is not there; another client deletes a node that is cleaned up."""
    store, init = MemoryStateStore(), Init(20)
    state = RotatingState(store)
    state.get_state(10, init)
    state.get_state(20, init)

    state.override_state(20, "c")
    state.remove_state(10)
    state.remove_state(99)
    assert (state.get_last_state(), state.txids, store.nodes) == ("c", (20,), {20: b'"c"'})

    store.delete(20)
    state.cleanup_before(30)
    assert state.txids == ()


def test_a_node_that_appears_while_it_is_created_is_set() -> None:
    """RS-07: creating a node that appears concurrently is no error."""
    store = MemoryStateStore()
    state = RotatingState(store)
    store.create(5, b'"another client"')
    with pytest.raises(NodeThereError):
        store.create(5, b"")

    assert state.get_state(5, Init("mine")) == "mine"
    assert store.nodes == {5: b'"mine"'}


def test_a_node_that_is_deleted_while_it_is_set_is_created_again() -> None:
    """The race the other way round."""

    class Hasty(MemoryStateStore):
        def create(self, txid: int, data: bytes) -> None:
            if self.nodes == {5: b"1"}:
                self.nodes.clear()
                raise NodeThereError(txid)
            super().create(txid, data)

    store = Hasty()
    state = RotatingState(store)
    state.override_state(5, 1)
    state.override_state(5, 2)

    assert store.nodes == {5: b"2"}


def test_previous_and_last_values_and_what_was_made_only_now() -> None:
    _, state, init = strict()

    assert (state.get_previous_state(3), state.get_previous_state(1), state.get_last_state()) == (10, None, 20)
    assert state.get_state_or_create(4, init) is None
    assert state.get_state_or_create(4, init) == 20


def test_what_json_would_change_is_refused() -> None:
    """STORM-2675: nothing is stored as its text and read back as null."""
    store = MemoryStateStore()

    with pytest.raises(BatchDataError, match="of type object"):
        RotatingState(store).override_state(1, {"offset": object()})

    assert store.nodes == {}
