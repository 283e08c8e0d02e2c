"""What a committer may change after it has counted: a table that would hold two things is refused, with both in words."""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from txtopo.committers.aggregate_committer import AggregateCommitter
from txtopo.committers.count_committer import CountCommitter
from txtopo.committers.replace_committer import ReplaceCommitter
from txtopo.committers.upsert_committer import UpsertCommitter
from txtopo.driver.changed_committers import changed
from txtopo.topology.committer_bolt import CommitterBolt


def described(bolt: CommitterBolt) -> Mapping[str, Any]:
    """What is stored of it."""
    return json.loads(json.dumps(bolt.describe()))  # type: ignore[no-any-return]


def totals(keys: list[str] | None = None, **more: Any) -> AggregateCommitter:
    return AggregateCommitter("t", keys or ["shop", "article"], **{"sums": {"price": "total"}, **more})


@pytest.mark.parametrize(
    ("before", "now", "what"),
    [
        (totals(), totals(["shop"]), "keys shop instead of article, shop"),
        (totals(), totals(["shop", "day"]), "keys day, shop instead of article, shop"),
        (totals(), totals(count="rows"), "number of rows rows instead of count"),
        (
            totals(),
            totals(sums={"price": "total", "pieces": "pieces"}),
            "numbers pieces (sum), total (sum) instead of total (sum)",
        ),
        (totals(), totals(sums={}), "numbers none instead of total (sum)"),
        (totals(), totals(sums={}, maxs={"price": "total"}), "numbers total (max) instead of total (sum)"),
        (totals(sums={}), totals(sums={}, averages=["price"]), "numbers price_count (count), price_sum (sum)"),
        (totals(window="1 hour", time="at"), totals(window="1 day", time="at"), "windows "),
        (totals(), totals(window="1 hour", time="at"), "windows "),
        (totals(), totals(distinct={"user": "users"}), "distinct values of user as users, which it did not count"),
        (totals(), totals(contributions=False), "contributions False instead of True"),
        (totals(), UpsertCommitter("t", ["shop"]), "kind upsert instead of aggregate"),
        (CountCommitter("t", ["shop"]), CountCommitter("t", ["day"]), "keys day instead of shop"),
        (UpsertCommitter("t", ["id"]), UpsertCommitter("t", ["id"], version="at"), "version at instead of none"),
        (
            UpsertCommitter("t", ["id"], version=["a", "b"]),
            UpsertCommitter("t", ["id"], version=["b", "a"]),
            "version b, a instead of a, b",
        ),
        (UpsertCommitter("t", ["id"]), UpsertCommitter("t", ["id"], deleted="gone"), "deleted gone instead of none"),
        (ReplaceCommitter("t", partition="day"), ReplaceCommitter("t", partition="shop"), "keys shop instead of day"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_its_tables_cannot_follow_is_named(before: CommitterBolt, now: CommitterBolt, what: str) -> None:
    assert changed(described(before), described(now))[0].startswith(what)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (totals(), totals()),
        (totals(), totals(["article", "shop"])),
        (totals(sums={"price": "total"}), totals(sums={"amount": "total"})),
        (totals(sums={"a": "x", "b": "y"}), totals(sums={"b": "y", "a": "x"})),
        (totals(distinct={"user": "users"}), totals()),
        (
            totals(window="1 hour", slide="10 minutes", time="at"),
            totals(window="2 hours", slide="10 minutes", time="sold"),
        ),
        (CountCommitter("t", ["shop"], sums=["price"]), AggregateCommitter("t", ["shop"], sums=["price"])),
    ],
    ids=["nothing", "order of keys", "renamed field", "order of sums", "fewer distinct", "wider view", "same tables"],
)
def test_what_its_tables_do_not_notice_is_allowed(before: CommitterBolt, now: CommitterBolt) -> None:
    assert changed(described(before), described(now)) == []


def test_a_description_of_the_first_release_is_compared_too() -> None:
    """It has no entry of what came later."""
    old = {"kind": "count", "table": "public.t", "keys": ["shop"], "count": "count", "sums": {}, "contributions": True}
    assert changed(old, described(CountCommitter("t", ["shop"]))) == []
    assert changed(old, described(CountCommitter("t", ["shop"], sums=["price"]))) == [
        "numbers price (sum) instead of none"
    ]
