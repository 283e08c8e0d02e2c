"""Joins with a static state: matches, several rows a key, NULL, content in the code hash, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.row_batches import RowBatches
from txtopo.errors import TopologyError
from txtopo.testing import TopologyHarness
from txtopo.topology.components import Topology
from txtopo.topology.describe import describe_topology
from txtopo.trident import Count, CsvRows, PostgresMapState, PythonRows, TridentStream, TridentTopology

COUNTRIES = [("de", "Europe"), ("tr", "Asia"), ("tr", "Europe"), (None, "Nowhere")]
ORDERS = [(1, "de"), (2, "tr"), (3, "xx"), (4, None)]


def enriched(how: Any, countries: Any = COUNTRIES) -> Topology:
    topology = TridentTopology("orders")
    state = topology.new_static_state("countries", PythonRows(countries), key="code", fields="code string, land string")
    orders = topology.new_stream("orders", RowBatches("id int, country string", [ORDERS[::2], ORDERS[1::2]]))
    joined = orders.join(state, left_on="country", how=how).name("joined").shuffle()
    joined.group_by("land").persistent_aggregate(PostgresMapState("lands"), Count(), "n bigint")
    return topology.build()


@pytest.mark.parametrize(
    ("how", "lands"),
    [
        ("inner", {("Europe",): (2,), ("Asia",): (1,)}),
        ("left", {("Europe",): (2,), ("Asia",): (1,), (None,): (2,)}),
    ],
)
def test_tuples_are_joined_with_the_rows_of_their_key(how: str, lands: Any) -> None:
    with TopologyHarness(enriched(how)) as harness:
        harness.run()
        assert harness.table("lands") == lands


def test_the_content_is_part_of_the_code_hash_and_its_order_is_not() -> None:
    first = describe_topology(enriched("left"))
    assert describe_topology(enriched("left", lambda: COUNTRIES[::-1])) == first
    assert describe_topology(enriched("left", COUNTRIES[1:])) != first


def test_rows_of_a_csv_file(tmp_path: Path) -> None:
    file = tmp_path / "countries.csv"
    file.write_text("code,people,land\nde,83000000,Europe\nva,,\n", encoding="utf-8")
    topology = TridentTopology("orders")
    state = topology.new_static_state("c", CsvRows(file), key="code", fields="land string, code string, people bigint")
    assert state.table.batch.to_pydict() == {"land": ["Europe", None], "code": ["de", "va"], "people": [83000000, None]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("code,people\nde,many\n", ":2: people: 'many' is no bigint"),
        ("code\nde\n", "there is no column 'people'"),
        ("code,people\nde\n", ":2: the row has not as many values as columns"),
        ("code,people\nde,1,2\n", ":2: the row has not as many values as columns"),
        (None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "countries.csv"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(TopologyError) as told:
        TridentTopology("t").new_static_state("c", CsvRows(file), key="code", fields="code string, people bigint")
    assert words in str(told.value)
    assert str(told.value).startswith("static state 'c' at test_static_states.py:")


@pytest.mark.parametrize(
    ("join", "words"),
    [
        (lambda s, c: s.join(c, on="country"), "the key of static state 'c' is code: name the fields of the stream"),
        (lambda s, c: s.join(c, left_on="country", how="right"), "a join with a static state is inner or left"),
        (lambda s, c: s.join(c, left_on="id"), "id is a int, and code a string"),
        (lambda s, c: s.join(c), "a join needs on=, or left_on="),
        (lambda s, c: s.map(lambda i, c: (c, c), "a string, land string").join(c, left_on="a"), "both sides have land"),
    ],
)
def test_joins_that_are_refused(join: Any, words: str) -> None:
    topology = TridentTopology("orders")
    state = topology.new_static_state("c", PythonRows(COUNTRIES), key="code", fields="code string, land string")
    orders: TridentStream = topology.new_stream("orders", RowBatches("id int, country string", [[]]))
    with pytest.raises(TopologyError) as told:
        join(orders, state)
    assert words in str(told.value)
    assert "stream 'orders', step " in str(told.value)


def test_rows_that_do_not_fit_are_refused() -> None:
    for rows, words in (([("de", 1)], "land: 1 (int) is no string"), ([("de",)], "it declares 2 fields"), (7, "")):
        with pytest.raises(TopologyError) as told:
            TridentTopology("t").new_static_state("c", PythonRows(rows), key="code", fields="code string, land string")  # type: ignore[arg-type]
        assert words in str(told.value)
