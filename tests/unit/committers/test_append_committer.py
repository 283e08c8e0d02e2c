"""`AppendCommitter`: what is refused when the topology is built, and what a topology without servers stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from txtopo import AppendCommitter, CountCommitter, FileSpout, NewIds, TopologyBuilder
from txtopo.cli.explain import explain_text
from txtopo.cli.explaining import WavesExplained, explained
from txtopo.config import Settings
from txtopo.errors import TopologyError
from txtopo.testing import TopologyHarness
from txtopo.topology.components import Topology

FIELDS = "who string, pages int, ratio double"


def visits(folder: Path, fields: str = FIELDS, table: str = "visits") -> Topology:
    """Rows as they are read, and a count beside them."""
    builder = TopologyBuilder("site")
    builder.set_spout("files", FileSpout(folder, fields, settled_s=0))
    builder.set_committer_bolt("visits", AppendCommitter(table)).shuffle_grouping("files")
    builder.set_committer_bolt("people", CountCommitter("people", ["who"])).fields_grouping("files", ["who"])
    return builder.build()


def test_each_row_is_stored_with_its_batch_and_number(tmp_path: Path) -> None:
    """Equal rows each have a number of their own; NULL and NaN are values."""
    (tmp_path / "1.csv").write_text("who,pages,ratio\nb,2,0.5\na,1,nan\na,1,nan\n,,\n")
    (tmp_path / "2.csv").write_text("who,pages,ratio\nc,3,-0.0\n")
    with TopologyHarness(visits(tmp_path)) as harness:
        harness.run()
        stored, people = harness.table("visits"), harness.table("people")

    assert {key: repr(row) for key, row in stored.items()} == {
        (1, 0, 1): "('a', 1, nan)",
        (1, 0, 2): "('a', 1, nan)",
        (1, 0, 3): "('b', 2, 0.5)",
        (1, 0, 4): "(None, None, None)",
        (2, 0, 1): "('c', 3, -0.0)",
    }
    assert people == {("a",): (2,), ("b",): (1,), (None,): (1,), ("c",): (1,)}


def only_two(_: str, parameters: Any) -> list[tuple[int]]:
    """What a server answers that has the other id already."""
    return [(one,) for one in parameters[0] if one == 2]


def test_rows_that_a_committer_passes_on_are_stored(tmp_path: Path) -> None:
    """It may stand downstream of `NewIds`: its rows are made in the commit of the batch."""
    (tmp_path / "1.csv").write_text("id,text\n1,a\n2,b\n")
    builder = TopologyBuilder("messages")
    builder.set_spout("files", FileSpout(tmp_path, "id bigint, text string", settled_s=0))
    builder.set_committer_bolt("new", NewIds("seen", "id", "id bigint, text string")).fields_grouping("files", ["id"])
    builder.set_committer_bolt("kept", AppendCommitter("kept")).shuffle_grouping("new")
    with TopologyHarness(builder.build()) as harness:
        harness.stores.postgres.answers = only_two
        harness.run()
        assert harness.table("kept") == {(1, 0, 1): (2, "b")}


@pytest.mark.parametrize(
    ("fields", "table", "why"),
    [
        ("txid bigint", "visits", "txid is a column that txtopo or Postgres keeps itself"),
        ("n int", "visits", "n is a column that txtopo or Postgres keeps itself"),
        ("xmin int", "visits", "xmin is a column that txtopo or Postgres keeps itself"),
        (FIELDS, "Visits", "'Visits' is not a table name"),
        (FIELDS, "txtopo.visits", "schema txtopo is not for tables of topologies"),
        (FIELDS, "v" * 64, "is longer than 63 characters"),
        (FIELDS, "people", "have one target table, 'public.people'"),
    ],
)
def test_what_has_no_place_in_its_table_is_refused(tmp_path: Path, fields: str, table: str, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        visits(tmp_path, fields if "who" in fields else f"who string, {fields}", table)


def test_streams_with_different_fields_are_refused(tmp_path: Path) -> None:
    """A table has one list of columns."""
    builder = TopologyBuilder("site")
    builder.set_spout("files", FileSpout(tmp_path, FIELDS))
    builder.set_spout("others", FileSpout(tmp_path / "others", "who string"))
    both = builder.set_committer_bolt("visits", AppendCommitter("visits"))
    both.shuffle_grouping("files").shuffle_grouping("others")
    with pytest.raises(TopologyError, match="reads streams with different fields"):
        builder.build()


def test_explain_shows_the_table_that_it_would_make(tmp_path: Path) -> None:
    shown = explained(visits(tmp_path), Settings(), WavesExplained.refused(None))
    [ddl] = [one["ddl"] for one in shown["committers"] if one["name"] == "visits"]
    columns = '"txid" bigint not null, "attempt" bigint not null, "n" bigint, "who" text, "pages" integer, '
    unique = '"ratio" double precision, unique nulls not distinct ("txid", "n")'
    assert list(ddl) == [f'create table "public"."visits" ({columns}{unique})']


def test_explain_says_what_can_be_done_with_committed_batches(tmp_path: Path) -> None:
    """And why the rest cannot."""
    shown = explain_text(explained(visits(tmp_path), Settings(), WavesExplained.refused(None)))
    assert shown.splitlines()[-4:] == [
        "  visits: recompute, backfill",
        "    no audit by key: its rows are compared with what was committed, by batch",
        "    no trace: column txid of public.visits says the batch of a row",
        "  people: recompute, audit by key, trace, backfill",
    ]
