"""How an audit reads the stored description of a topology: where rows come from, and what bolts may have done to them."""  # noqa: E501

from __future__ import annotations

from typing import Any

import pytest

from txtopo.reports.stored_description import committers_of, quoted

COUNT = {
    "kind": "count",
    "table": "public.t",
    "keys": ["k"],
    "count": "n",
    "sums": {"b": "b", "aa": "aa"},
    "contributions": True,
}


def described(source: str, **bolts: tuple[list[str], str]) -> dict[str, Any]:
    return {
        "spouts": {"s": {}},
        "bolts": {name: {"inputs": inputs, "rows": rows} for name, (inputs, rows) in bolts.items()},
        "committers": {"c": {**COUNT, "input": source}},
    }


@pytest.mark.parametrize(
    ("description", "way"),
    [
        (described("s"), ("s", "direct")),
        (described("a", a=(["s"], "same")), ("s", "same")),
        (described("b", a=(["s"], "same"), b=(["a"], "fewer")), ("s", "fewer")),
        (described("b", a=(["s"], "fewer"), b=(["a"], "same")), ("s", "fewer")),
        (described("b", a=(["s"], "any"), b=(["a"], "same")), ("s", "any")),
        (described("b", a=(["s"], "same"), b=(["a"], "any")), ("s", "any")),
        (described("b", a=(["s"], "same"), b=(["a", "s"], "same")), (None, "any")),
    ],
)
def test_the_row_equation_follows_the_declared_bolts(description: dict[str, Any], way: tuple[str | None, str]) -> None:
    """Promise: `rows="same"` carries the equation, `fewer` bounds it, anything else is unverified by design."""
    committer = committers_of(description)["c"]

    assert (committer.spout, committer.way) == way


def test_sums_stand_in_the_order_of_the_table() -> None:
    """Stored objects have no order, and rows are hashed in that of their columns."""
    committer = committers_of(described("s"))["c"].ordered(["txid", "reverses", "k", "n", "aa", "b"])

    assert committer.columns == ("k", "n", "aa", "b")


@pytest.mark.parametrize(
    "broken", [{}, {"spouts": {}, "bolts": {}, "committers": {"c": {"kind": "odd"}}}, {"committers": {"c": {**COUNT}}}]
)
def test_a_description_that_says_something_else_is_an_error(broken: dict[str, Any]) -> None:
    """Promise: what is not understood is never taken for right."""
    with pytest.raises(ValueError):
        committers_of(broken)


def test_names_are_quoted() -> None:
    """P15."""
    assert quoted('a"b%c') == '"a""b%%c"'
