"""Queries of a topology: what is asked from outside of batches, and its answer. This room does not know the stores, so
the package registers here what asks.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import Fields
from txtopo.errors import ConfigurationError, TopologyError, unreachable

if TYPE_CHECKING:
    from txtopo.topology.components import Topology

    Asker = Callable[[Topology, str, Sequence[Sequence[Any]], str | None], "QueryAnswer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamQuery:
    """A query, compiled to a topology whose spout emits the questions."""

    name: str
    fields: Fields
    """Of a question."""
    topology: Topology
    answer: str
    """The committer that gets the rows of the answer."""
    tables: Sequence[str]
    """Tables that it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """The answer of a query."""

    rows: Sequence[Mapping[str, Any]]
    """Field -> value, in the order of all fields, NULL last."""
    txid: int | None
    """The last batch that it has seen: all batches up to this one are in it, and none of the later ones. None: the
    query reads no table.
    """
    epoch: int | None
    """The epoch of that state of the ledger."""


_askers: list[Asker] = []


def ask_with(asker: Asker) -> None:
    """Register the function that asks queries."""
    _askers[:] = [asker]


def ask(topology: Topology, name: str, questions: Sequence[Sequence[Any]], dsn: str | None) -> QueryAnswer:
    """Ask a query of a topology."""
    return _askers[0](topology, name, questions, dsn) if _askers else unreachable("nobody has said who asks queries")


def check_has_batches(topology: Topology) -> None:
    """Raise TopologyError for a topology that has only queries: it has no batches, so it is not run."""
    if not topology.spouts:
        raise TopologyError(
            f"topology {topology.name} has only queries ({', '.join(topology.queries)}): there is nothing to run; "
            f"`txtopo query` asks them"
        )


def find_query(topology: Topology, name: str) -> StreamQuery:
    """Return a query by its name. Raises ConfigurationError if there is none."""
    if name in topology.queries:
        return topology.queries[name]
    near = difflib.get_close_matches(name, topology.queries, n=1)
    hint = f": did you mean {near[0]}?" if near else f"; there is {', '.join(topology.queries) or 'none'}"
    raise ConfigurationError(f"topology {topology.name} has no query {name!r}{hint}")
