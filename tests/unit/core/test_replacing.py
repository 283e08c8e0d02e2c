"""`replace` returns what `dataclasses.replace` does."""

from __future__ import annotations

import dataclasses

import pytest

from tests.kit.machines import Hand
from txtopo.core.replacing import replace
from txtopo.core.state import Batch, Rules, State


def test_a_copy_has_other_values_in_the_fields_that_are_given() -> None:
    """Equal to that of the library; the value it was made from stays as it was."""
    state = Hand().state

    changed = replace(state, last_txid=7, committing=True)

    assert changed == dataclasses.replace(state, last_txid=7, committing=True) != state
    assert (state.last_txid, state.committing) == (0, False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        changed.last_txid = 8  # type: ignore[misc]


def test_values_with_slots_are_copied_too() -> None:
    """By the library."""
    assert replace(Rules(), workers=9) == Rules(workers=9)


def test_a_name_that_is_no_field_is_refused() -> None:
    """As by the library: a slip would be a field that nobody reads."""
    with pytest.raises(TypeError, match="State has no field comitting"):
        replace(Hand().state, comitting=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [State, Batch])
def test_what_is_copied_without_its_init_needs_none(kind: type) -> None:
    """No `__post_init__`, no field that `__init__` does not take, and no slots, with which the copy would be slow."""
    assert not hasattr(kind, "__post_init__")
    assert all(one.init for one in dataclasses.fields(kind))
    assert not hasattr(kind, "__slots__")
