"""`txtopo query`: a query without tables, values by the types of their fields, text and JSON."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from txtopo.cli import main
from txtopo.cli.query import typed
from txtopo.core.fields import parse_fields
from txtopo.errors import ConfigurationError
from txtopo.reports.answer_text import answer_json, answer_text
from txtopo.topology.queries import QueryAnswer

APP = '''"""A query alone."""
from txtopo.trident import TridentTopology

streams = TridentTopology("split")
streams.new_query("split", "text string, n int").flat_map(
    lambda text, n: [(word, n * 2) for word in text.split()], "word string, n int"
)
topology = streams.build()
'''


def test_a_query_without_tables_needs_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = tmp_path / "split_app.py"
    app.write_text(APP)
    assert main(["query", str(app), "split", "b a", "21"]) == 0
    assert capsys.readouterr().out == "word   n\na     42\nb     42\n"
    assert main(["query", str(app), "split", "", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": "txtopo.answer/1",
        "topology": "split",
        "query": "split",
        "rows": [],
        "txid": None,
        "epoch": None,
    }
    assert main(["query", str(app), "split", "a", "x"]) == 2
    assert "query split: n: 'x' is no int" in capsys.readouterr().err


def test_values_are_of_the_types_of_their_fields() -> None:
    fields = parse_fields("a string, b decimal(10,2), c date, d boolean")
    assert typed("q", fields, ("1", "2.5", "2026-01-31", "true")) == ("1", Decimal("2.50"), date(2026, 1, 31), True)
    with pytest.raises(ConfigurationError, match=r"query q is asked with .* and got 1 values"):
        typed("q", fields, ("1",))


def test_an_answer_as_text_and_json_loses_nothing() -> None:
    rows = [{"a": None, "b": Decimal("1.50"), "c": b"\x00\xff", "d": date(2026, 1, 31), "e": float("nan"), "f": True}]
    answer = QueryAnswer(rows=rows, txid=7, epoch=2)
    assert answer_text(answer).splitlines()[-1] == "as of batch 7"
    assert answer_text(QueryAnswer(rows=[], txid=None, epoch=None)) == "no rows"
    found = json.loads(answer_json("t", "q", answer))
    assert found["rows"] == [{"a": None, "b": "1.50", "c": "00ff", "d": "2026-01-31", "e": "nan", "f": True}]
    assert (found["txid"], found["epoch"]) == (7, 2)
