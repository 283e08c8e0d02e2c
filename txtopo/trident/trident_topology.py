"""`TridentTopology`: declares streams, and compiles them to the same Topology that TopologyBuilder makes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from txtopo.core.fields import Field, Fields
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.topology.builder import TopologyBuilder, file_of
from txtopo.topology.check_component import check_spout, check_tasks
from txtopo.topology.components import Acking, Guarantee, Spout, Topology
from txtopo.trident.checks import Names, checked_name, declared, known
from txtopo.trident.compiler import StreamCompiler
from txtopo.trident.nodes import MergeNode, SpoutNode, StreamPlan, StreamStep, caller
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

    def merge(self, *streams: TridentStream) -> TridentStream:
        """Return the tuples of all these streams of one batch; their fields must be equal, also in their types and
        their order.

        Raises TopologyError if they are not, or if a stream belongs to another topology.
        """
        at = caller()
        if len(streams) < 2 or not all(isinstance(stream, TridentStream) for stream in streams):
            raise TopologyTypeError(f"merge at {at} needs two streams or more")
        nodes = [stream._node for stream in streams]
        if any(stream._plan is not self._plan for stream in streams):
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
        self._plan.add(merged)
        return TridentStream(self._plan, merged)

    def build(self, *, module_file: str | None = None) -> Topology:
        """Return the topology, frozen; as TopologyBuilder.build does.

        Raises TopologyError for a stream that nothing keeps, and with the first mistake in its connections.
        """
        compiler = StreamCompiler(self._plan, acking=self._acking, guarantee=self._guarantee, config=self._config)
        return compiler.build(module_file or file_of(sys._getframe(1).f_code.co_filename))
