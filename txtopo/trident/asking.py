"""A step that asks a state: what is checked when it is declared."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from txtopo.core.fields import Fields
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.trident.checks import Names, appended, check_copied, declared, known
from txtopo.trident.nodes import CommitterNode, PlanNode, QueryNode, StreamPlan, StreamStep
from txtopo.trident.state_query import QueryFunction, Question, StateQuery

if TYPE_CHECKING:
    from txtopo.trident.stream import TridentStream


def asking(
    stream: TridentStream,
    step: StreamStep,
    state: CommitterNode,
    plan: StreamPlan,
    function: QueryFunction,
    fields: str,
    of: Names,
) -> QueryNode:
    """Return the node of a step that asks a state of this plan. Raises TopologyError if it cannot be asked, or not
    here.
    """
    own = stream._plan
    if not isinstance(function, QueryFunction):
        hint = "; use an instance, not the class" if isinstance(function, type) else ""
        raise TopologyTypeError(f"{step.who}: {function!r} is not a query function such as MapGet(){hint}")
    if plan is not own and own.main is not plan:
        raise TopologyError(f"{step.who}: state {state.name!r} belongs to another topology")
    if state.table is None:
        raise TopologyError(
            f"{step.who}: {state.name!r} cannot be asked: only counts, sums, minima and maxima of counting committers "
            f"can"
        )
    if own.query is None:
        _check_circle(step, stream._node, state, own)
    names = known(step.who, stream.fields, of)
    made = declared(step.who, fields)
    check_copied(step.who, function)
    asks = Fields(tuple(field for name in names if (field := stream.fields.get(name)) is not None))
    copied = copy.deepcopy(function)
    copied.check(step.who, state.table, asks, made)
    after = appended(step.who, "state_query", stream.fields, made)
    question = Question(
        place=step.place,
        state=state.table,
        function=copied,
        names=names,
        positions=tuple(map(stream.fields.names.index, names)),
        before=stream.fields,
        made=made,
        after=after,
    )
    reads = () if own.query is not None else (state.name,)
    node = stream._node
    return QueryNode(
        step=step,
        fields=after,
        parents=(node,),
        turn=f"a query of {state.name}",
        base=node.base,
        state=state,
        query=StateQuery(question, reads),
    )


def _check_circle(step: StreamStep, asks: PlanNode, state: CommitterNode, plan: StreamPlan) -> None:
    """Raise TopologyError if what asks follows from a change of the state in the same batch: it is asked before."""
    queries: dict[PlanNode, list[PlanNode]] = {}
    for node in plan.nodes:
        if isinstance(node, QueryNode):
            queries.setdefault(node.state, []).append(node)
    seen: set[PlanNode] = set()
    waiting: list[tuple[PlanNode, tuple[str, ...]]] = [(asks, ())]
    while waiting:
        node, way = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, CommitterNode):
            way = (node.name, *way)
        if node is state:
            if len(way) == 1:
                raise TopologyError(
                    f"{step.who}: it is downstream of new values of {state.name}, and a query reads the state as the "
                    f"batch before has left it: use the value in the tuple"
                )
            raise TopologyError(
                f"{step.who}: states that are asked for each other in a circle: {' -> '.join(way)} -> {state.name} "
                f"(each is read before it changes)"
            )
        waiting += [(one, way) for one in (*node.parents, *queries.get(node, ()))]
