"""`CountCommitter` refuses what it cannot count exactly, when the topology is built."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from txtopo.committers.count_committer import CountCommitter
from txtopo.committers.postgres.apply_counts import array_literal
from txtopo.core.fields import parse_fields
from txtopo.errors import TopologyError

FIELDS = parse_fields("carrier string, origin string, distance int, price decimal(10,2), weight double, seats bigint")


def test_sums_keep_their_names_or_get_new_ones() -> None:
    """A list of sums keeps the names, a mapping gives new ones."""
    same = CountCommitter("t", ["carrier"], sums=["distance"])
    other = CountCommitter("s.t", ["carrier"], count="n", sums={"distance": "distance_sum"})

    assert same.aggregation().aggregates == (("sum", "distance", "distance"),)
    assert (other.aggregation().count, other.aggregation().aggregates) == ("n", (("sum", "distance", "distance_sum"),))
    assert (same.table, other.table, other.contribution_table) == ("public.t", "s.t", "s.t_contribution")
    assert other.required_fields() == ("carrier", "distance")


def test_committer_can_be_pickled() -> None:
    """It travels to the executors."""
    committer = CountCommitter("t", ["carrier"], sums=["distance"])

    assert pickle.loads(pickle.dumps(committer)).describe() == committer.describe()


@pytest.mark.parametrize(
    ("table", "keys", "more", "message"),
    [
        ("t", [], {}, "at least one key"),
        ("t", ["carrier", "carrier"], {}, "carrier is named twice"),
        ("t", ["distance"], {"sums": ["distance"]}, "distance is named twice"),
        ("t", ["carrier"], {"count": "carrier"}, "carrier is named twice"),
        ("t", ["txid"], {}, "keeps itself"),
        ("t", ["a" * 64], {}, "1 to 63 bytes"),
        ("t", "carrier", {}, "lists of field names"),
        ("t", [f"k{n}" for n in range(31)], {}, "at most 30"),
        ("Flights", ["carrier"], {}, "is not a table name"),
        ("a.b.c", ["carrier"], {}, "is not a table name"),
        ('t"; drop table x', ["carrier"], {}, "is not a table name"),
        ("", ["carrier"], {}, "is not a table name"),
        ("txtopo.t", ["carrier"], {}, "not for tables"),
        ("t" * 51, ["carrier"], {}, "longer than 50"),
    ],
)
def test_wrong_declaration_is_refused(table: str, keys: Any, more: dict[str, Any], message: str) -> None:
    """P15: names are validated; each mistake has its own sentence."""
    with pytest.raises(TopologyError, match=message):
        CountCommitter(table, keys, **more)


def test_table_name_may_be_longer_without_contributions() -> None:
    """Only the contribution table's name needs room behind it."""
    assert CountCommitter("t" * 63, ["carrier"], contributions=False).name == "t" * 63


@pytest.mark.parametrize(
    ("keys", "sums", "message"),
    [
        (["weight"], [], "key weight is a double"),
        (["carrier"], ["weight"], "weight is a double.*declare it decimal"),
        (["carrier"], ["origin"], "origin is a string, and only integers and decimals"),
        (["nothing"], [], "no field nothing"),
        (["carrier"], ["nothing"], "no field nothing"),
    ],
)
def test_fields_that_cannot_be_counted_exactly_are_refused(keys: list[str], sums: list[str], message: str) -> None:
    """Sums of floats depend on the order in which they are added."""
    with pytest.raises(TopologyError, match=message):
        CountCommitter("t", keys, sums=sums).check_fields(FIELDS)


def test_exact_fields_are_taken() -> None:
    """Integers and decimals are summed."""
    CountCommitter("t", ["carrier"], sums=["distance", "price", "seats"]).check_fields(FIELDS)


def test_array_literal_quotes_what_postgres_would_read() -> None:
    """A value can be no syntax, NULL as a word included."""
    assert (
        array_literal([None, "NULL", 'a"b\\c', "{,}", "", True, -5, b"\x00\xff"])
        == r'{NULL,"NULL","a\"b\\c","{,}","",t,-5,"\\x00ff"}'
    )
