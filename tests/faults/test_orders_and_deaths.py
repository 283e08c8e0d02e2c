"""Kill -9 of leaders and commands in the middle of operators' orders, on real stores: an order is carried out once, or
stands, and what is said of it is true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kit.drivers import World
from tests.kit.site import FILES, Site

pytestmark = pytest.mark.attack
BAD: dict[str, Any] = {"DRIVER_BAD": "2", "TXTOPO_ATTEMPTS_MAX": "1"}


@pytest.fixture
def site(world: World) -> Site:
    return Site(world)


def halted(site: Site) -> None:
    assert "no hour" in site.drive(code=1, **BAD)


def quarantined(site: Site) -> None:
    site.drive(**BAD, TXTOPO_ON_POISON="quarantine_batch")
    assert site.states()[1] == (2, "quarantined", None)


def corrected(site: Site) -> None:
    site.drive()
    for txid in (1, 3):
        file = site.world.folder / f"order_{txid:04}.csv"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:11]))


def added(site: Site) -> None:
    """Everything is counted, then a committer is added."""
    site.drive()
    site.added.touch()
    site.drive()


def filled_whole(site: Site) -> bool:
    """Each order is in both tables, and each batch in the new one once."""
    [(there, again)] = site.world.query(
        "select (select sum(rows) from shop_totals), (select count(distinct backfills) from txtopo.ledger)"
    )
    return site.is_whole() and there == sum(rows for rows, _, _ in site.world.totals().values()) and again == FILES


def skipped_whole(site: Site) -> bool:
    (site.world.folder / "order_0002.csv").unlink()
    return site.is_whole()


def at(*points: str) -> tuple[Mapping[str, str], ...]:
    return tuple({"TXTOPO_FAILPOINTS": point} for point in points)


def by(*moments: str) -> tuple[Mapping[str, str], ...]:
    return tuple({"DRIVER_DIES": moment} for moment in moments)


APPLIED = [(txid, "applied", None) for txid in range(1, FILES + 1)]


@dataclass(frozen=True)
class Case:
    """An order, and where one leader after the other dies while it is carried out."""

    before: Callable[[Site], None]
    order: tuple[str, ...]
    deaths: tuple[Mapping[str, str], ...]
    states: list[tuple[Any, ...]]
    actions: list[tuple[Any, ...]]
    again: str
    """What the same command says once it is done. Empty: given again it means to do it again."""
    whole: Callable[[Site], bool] = Site.is_whole


TAKING_UP = at("elected=exit@1", "fence_claimed=exit@1", "epoch_written=exit@1")
REDOING = at("before_metadata=exit@1", "metadata_written=exit@1", "attempt_begun=exit@1", "mirrored=exit@1")
ANSWERING = by("before answer_order", "after answer_order")
CASES = {
    "retry": Case(
        halted,
        ("retry", "orders"),
        (
            *TAKING_UP,
            *at("attempt_begun=exit@1", "mirror_open=exit@1", "before_commit=exit@1", "committed=exit@1"),
            *ANSWERING,
        ),
        APPLIED,
        [("retry", None)],
        "Nothing to retry",
    ),
    "skip": Case(
        halted,
        ("skip", "orders", "2", "--reason", "damaged"),
        (
            *TAKING_UP,
            *at("before_mirror=exit@1", "fence_locked=exit@1", "before_commit=exit@1", "committed=exit@1"),
            *ANSWERING,
        ),
        [APPLIED[0], (2, "quarantined", None), *APPLIED[2:]],
        [("skip", 2)],
        "is quarantined already",
        skipped_whole,
    ),
    "redrive": Case(
        quarantined,
        ("redrive", "orders", "2"),
        (*TAKING_UP, *REDOING, *at("before_commit=exit@1", "committed=exit@1"), *ANSWERING),
        [APPLIED[0], (2, "quarantined", None), *APPLIED[2:], (5, "applied", 2)],
        [("redrive", 5)],
        "batch 2 was redone as batch 5",
    ),
    "recompute": Case(
        corrected,
        ("replay", "orders", "1,3", "--recompute", "--execute", "--reason", "corrected"),
        (*TAKING_UP, *REDOING, *at("applied=exit@1", "committed=exit@1", "committed=exit@1"), *ANSWERING),
        [*APPLIED, (5, "applied", 1), (6, "applied", 3)],
        [("recompute", 5), ("recompute", 6)],
        "",
    ),
    "backfill": Case(
        added,
        ("backfill", "orders", "by_shop"),
        (*TAKING_UP, *REDOING, *at("applied=exit@1", "committed=exit@1", "committed=exit@1"), *ANSWERING),
        [*APPLIED, *((FILES + txid, "applied", None) for txid in range(1, FILES + 1))],
        [("backfill", FILES + txid) for txid in range(1, FILES + 1)],
        "has counted every batch",
        filled_whole,
    ),
    "replan": Case(
        halted,
        ("replan", "orders", "--reason", "another schema"),
        (
            *at("elected=exit@1", "fence_claimed=exit@1"),
            *by("before note_progress", "after note_progress", "before drop_plans", "after drop_plans"),
            *ANSWERING,
        ),
        APPLIED,
        [("replan", None)],
        "",
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_an_order_is_carried_out_once_though_leader_after_leader_is_killed_in_it(site: Site, kind: str) -> None:
    """Between taking the order up and answering it, and between its steps; after each death it is open or done, never
    half, and `status` ends at once.
    """
    case = CASES[kind]
    case.before(site)
    assert "is recorded" in site.run(*case.order, "--no-run", code=0)
    name = site.orders()[0][0]
    for death in case.deaths:
        said = site.drive(code=-9, **death)
        is_answered = death == {"DRIVER_DIES": "after answer_order"}
        assert site.orders() == [(name, "done" if is_answered else "open")], (death, said)
        if case.again and not is_answered:
            site.run(*case.order, "--no-run", code=0)
            assert site.orders() == [(name, "open")], "given again it is the same order"

    site.drive()

    assert site.orders() == [(name, "done")]
    assert site.states() == case.states
    assert site.actions() == case.actions
    assert case.whole(site)
    if case.again:
        assert case.again in site.run(*case.order, code=0)
        assert site.orders() == [(name, "done")]


@pytest.mark.parametrize("kind", CASES)
def test_a_command_that_is_killed_while_it_leads_leaves_an_order_that_the_next_one_ends(site: Site, kind: str) -> None:
    """Without a living leader the command leads itself: killed before its work, behind it, and behind the answer; given
    again it follows the same order.
    """
    case = CASES[kind]
    case.before(site)
    for death in (*at("epoch_written=exit@1"), *by("before answer_order")):
        site.run(*case.order, code=-9, **death)
        assert [state for _, state in site.orders()] == ["open"]
        site.world.execute("update txtopo.topology set heartbeat_at = heartbeat_at - interval '1 hour'")

    if case.again:
        site.run(*case.order, code=0)
    site.drive()

    assert [state for _, state in site.orders()] == ["done"]
    assert site.actions() == case.actions
    assert site.states() == case.states
    assert case.whole(site)
