"""What spouts of each kind give with committers of each kind: every cell of the table, and what stands in for what."""

from __future__ import annotations

import itertools

import pytest

from txtopo.topology.components import Guarantee, SpoutKind
from txtopo.topology.guarantees import EFFECTS, GUARANTEES, SPOUT_KINDS, Effects, acceptable, given, is_enough, why

CELLS: list[tuple[SpoutKind, Effects, Guarantee]] = [
    ("transactional", "transaction", "exactly_once"),
    ("opaque", "transaction", "exactly_once"),
    ("at_least_once", "transaction", "at_least_once"),
    ("at_most_once", "transaction", "at_most_once"),
    ("transactional", "outside", "at_least_once"),
    ("opaque", "outside", "at_least_once"),
    ("at_least_once", "outside", "at_least_once"),
    ("at_most_once", "outside", "none"),
]


@pytest.mark.parametrize(("kind", "effects", "guarantee"), CELLS)
def test_each_pair_gives_what_its_weaker_half_gives(kind: SpoutKind, effects: Effects, guarantee: Guarantee) -> None:
    """A source that loses and effects that repeat give nothing at all; all others give what their weaker half gives."""
    assert given(kind, effects) == guarantee


def test_every_pair_is_in_the_table() -> None:
    assert {(kind, effects) for kind, effects, _ in CELLS} == set(itertools.product(SPOUT_KINDS, EFFECTS))


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("wanted", GUARANTEES)
def test_losing_and_repeating_do_not_stand_in_for_each_other(guarantee: Guarantee, wanted: Guarantee) -> None:
    """Exactly once satisfies all, nothing satisfies only itself, and the two in between satisfy no one but themselves
    and nothing.
    """
    expected = guarantee == "exactly_once" or wanted in (guarantee, "none")

    assert is_enough(guarantee, wanted) is expected


@pytest.mark.parametrize("wanted", GUARANTEES)
@pytest.mark.parametrize(("kind", "effects", "guarantee"), CELLS)
def test_what_the_error_tells_to_write_is_then_accepted(
    kind: SpoutKind, effects: Effects, guarantee: Guarantee, wanted: Guarantee
) -> None:
    """And whatever satisfied the topology before still does."""
    advice = acceptable(kind, effects, wanted)

    assert is_enough(guarantee, advice)
    assert is_enough(wanted, advice)


@pytest.mark.parametrize(("kind", "effects", "guarantee"), CELLS)
def test_every_weak_half_is_explained(kind: SpoutKind, effects: Effects, guarantee: Guarantee) -> None:
    told = why("events", kind, "mails", effects)

    assert ("'events'" in told) is (kind in ("at_least_once", "at_most_once"))
    assert ("'mails'" in told) is (effects == "outside")
    assert bool(told) is (guarantee != "exactly_once")
