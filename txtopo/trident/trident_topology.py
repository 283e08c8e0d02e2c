"""`TridentTopology`: declares streams, and compiles them to the same Topology that TopologyBuilder makes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from txtopo.core.fields import Field, Fields
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.topology.builder import TopologyBuilder, file_of
from txtopo.topology.check_component import check_spout, check_tasks
from txtopo.topology.components import Acking, Guarantee, Spout, Topology
from txtopo.topology.queries import StreamQuery
from txtopo.trident.answering import QueryEnd, Questions
from txtopo.trident.checks import Names, checked_name, declared, known
from txtopo.trident.compiler import StreamCompiler
from txtopo.trident.nodes import (
    ANSWER,
    CommitterNode,
    MergeNode,
    QueryNode,
    SpoutNode,
    StreamPlan,
    StreamStep,
    caller,
    check_together,
    query_end,
)
from txtopo.trident.static_states import StaticRows, StaticState, static_state
from txtopo.trident.stream import TridentStream


class TridentTopology:
    """Declares a topology as streams with steps (Trident's TridentTopology). The arguments are those of
    TopologyBuilder.

    >>> from txtopo import CountCommitter, FileSpout
    >>> topology = TridentTopology("words")
    >>> words = topology.new_stream("lines", FileSpout("texts", "line string")).flat_map(str.split, "word string")
    >>> _ = words.persist("word_counts", CountCommitter("word_counts", ["word"], count="n"))
    >>> [bolt.name for bolt in topology.build().bolts]
    ['lines_1']

    Raises TopologyError for an invalid name or an unknown value.
    """

    def __init__(
        self,
        name: str,
        *,
        acking: Acking = "batch",
        guarantee: Guarantee = "exactly_once",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        TopologyBuilder(name, acking=acking, guarantee=guarantee, config=config)
        self._plan = StreamPlan(name)
        self._queries: list[StreamPlan] = []
        self._acking = acking
        self._guarantee = guarantee
        self._config = {} if config is None else dict(config)

    def new_stream(self, name: str, spout: Spout, *, parallelism_hint: int | None = None) -> TridentStream:
        """Return the tuples of a spout, a component of this name. `parallelism_hint` is the number of tasks over which
        the parts of a batch are spread; None: one for each part.

        Raises TopologyError for an invalid or used name, TopologyTypeError if `spout` is not a spout.
        """
        step = StreamStep(stream=str(name), number=0, label="new_stream", at=caller())
        self._plan.check_new(step.who, checked_name(step.who, name))
        tasks = check_tasks(step.who, parallelism_hint)
        checked = check_spout(name, spout)
        node = SpoutNode(step=step, fields=checked.fields, base=name, spout=checked, tasks=tasks)
        self._plan.add(node)
        return TridentStream(self._plan, node)

    def new_static_state(self, name: str, rows: StaticRows, *, key: Names, fields: str) -> StaticState:
        """Return a table that does not change while a driver runs, to join streams with: it is read now, once. Its
        content is part of the code hash, so with other content a driver is another release of the application.

        Raises TopologyError if the rows cannot be read, do not fit `fields`, or are too many.
        """
        step = StreamStep(stream=str(name), number=0, label="new_static_state", at=caller())
        who = f"static state {name!r} at {step.at}"
        checked_name(who, name)
        found = declared(who, fields)
        return static_state(who, name, rows, known(who, found, key), found)

    def new_query(self, name: str, fields: str) -> TridentStream:
        """Return the questions of a query, as a stream (Trident's newDRPCStream): `topology.query(name, …)` asks it,
        from outside of batches, and answers with the tuples at its end. `fields` declares the values of a question. It
        reads states and static states, and changes nothing.

        Raises TopologyError for an invalid or used name, or for fields that cannot be parsed.
        """
        step = StreamStep(stream=str(name), number=0, label="new_query", at=caller())
        who = f"query {name!r} at {step.at}"
        checked_name(who, name)
        if any(plan.query == name for plan in self._queries):
            raise TopologyError(f"{who}: there is a query {name!r} already")
        plan = StreamPlan(self._plan.topology, query=name, main=self._plan)
        found = declared(who, fields)
        node = SpoutNode(step=step, fields=found, base=name, spout=Questions(found), tasks=None)
        plan.add(node)
        self._queries.append(plan)
        return TridentStream(plan, node)

    def merge(self, *streams: TridentStream) -> TridentStream:
        """Return the tuples of all these streams of one batch; their fields must be equal, also in their types and
        their order.

        Raises TopologyError if they are not, or if a stream belongs to another topology.
        """
        at = caller()
        if len(streams) < 2 or not all(isinstance(stream, TridentStream) for stream in streams):
            raise TopologyTypeError(f"merge at {at} needs two streams or more")
        nodes = [stream._node for stream in streams]
        plan = streams[0]._plan
        for stream in streams:
            check_together(f"merge at {at}", plan, stream._plan)
        if self._plan not in (plan, plan.main):
            raise TopologyError(f"merge at {at}: a stream of another topology")
        step = StreamStep(
            stream="+".join(dict.fromkeys(node.step.stream for node in nodes)), number=0, label="merge", at=at
        )
        first = nodes[0]
        for node in nodes[1:]:
            if [(one.name, one.type) for one in node.fields.items] != [
                (one.name, one.type) for one in first.fields.items
            ]:
                raise TopologyError(
                    f"{step.who}: merge needs equal fields; {first.step.stream!r} has {first.fields.ddl}, and "
                    f"{node.step.stream!r} has {node.fields.ddl}: project or map one of them"
                )
        fields = Fields(
            tuple(
                Field(one.name, one.type, any(node.fields.items[at].nullable for node in nodes))
                for at, one in enumerate(first.fields.items)
            )
        )
        turn = next((node.turn for node in nodes if node.turn is not None), None)
        merged = MergeNode(step=step, fields=fields, parents=tuple(nodes), turn=turn, base="merge")
        plan.add(merged)
        return TridentStream(plan, merged)

    def build(self, *, module_file: str | None = None) -> Topology:
        """Return the topology, frozen; as TopologyBuilder.build does.

        Raises TopologyError for a stream that nothing keeps, and with the first mistake in its connections.
        """
        file = module_file or file_of(sys._getframe(1).f_code.co_filename)
        queries = {plan.query: self._query(plan) for plan in self._queries if plan.query is not None}
        if queries and not self._plan.nodes:
            return Topology(
                name=self._plan.topology, spouts=(), bolts=(), committers=(), module_file=file, queries=queries
            )
        compiler = StreamCompiler(self._plan, acking=self._acking, guarantee=self._guarantee, config=self._config)
        return replace(compiler.build(file), queries=queries)

    def _query(self, plan: StreamPlan) -> StreamQuery:
        """Return a query, compiled to a topology of its own."""
        end = query_end(plan)
        sink = CommitterNode(
            step=end.step, fields=Fields(()), parents=(end,), base=ANSWER, name=ANSWER, committer=QueryEnd()
        )
        whole = StreamPlan(plan.topology, query=plan.query, main=plan.main, nodes=[*plan.nodes, sink])
        compiler = StreamCompiler(whole, acking="batch", guarantee="exactly_once", config={})
        asked = (node.query.question.state.table for node in plan.nodes if isinstance(node, QueryNode))
        return StreamQuery(
            name=plan.query or "",
            fields=plan.nodes[0].fields,
            topology=compiler.build(None),
            answer=ANSWER,
            tables=tuple(dict.fromkeys(asked)),
        )
