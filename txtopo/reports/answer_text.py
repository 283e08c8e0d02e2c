"""The answer of a query as text and as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from txtopo.reports.as_json import document, plain
from txtopo.reports.formatting import NOTHING, table
from txtopo.topology.queries import QueryAnswer

_LEFT = (str, bytes)


def answer_text(answer: QueryAnswer) -> str:
    """Return the rows as a table, then which batch they have seen."""
    lines = []
    if answer.rows:
        names = list(answer.rows[0])
        left = [name for name in names if any(isinstance(row[name], _LEFT) for row in answer.rows)]
        lines.append(table(names, [[_shown(row[name]) for name in names] for row in answer.rows], left=left))
    else:
        lines.append("no rows")
    if answer.txid is not None:
        lines.append(f"as of batch {answer.txid}")
    return "\n".join(lines)


def answer_json(topology: str, query: str, answer: QueryAnswer) -> str:
    """Return schema `txtopo.answer/1`; decimals and floats are text, so that no digit is lost."""
    rows = [{name: _json(value) for name, value in row.items()} for row in answer.rows]
    return document(
        "txtopo.answer/1",
        {"topology": topology, "query": query, "rows": rows, "txid": answer.txid, "epoch": answer.epoch},
    )


def _shown(value: Any) -> str:
    return NOTHING if value is None else str(value)


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime) and value.tzinfo is not None:
        return plain(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)
