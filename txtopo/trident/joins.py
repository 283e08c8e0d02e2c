"""Joining two streams of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from txtopo.core.fields import FLOAT_KINDS, Field, Fields
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.trident.checks import Names, known
from txtopo.trident.join_links import How, JoinLink, SideLink, layout
from txtopo.trident.nodes import LinkNode, MergeNode, PlanNode, RegroupNode, StreamStep, check_together
from txtopo.trident.static_states import LookupLink, StaticState

if TYPE_CHECKING:
    from txtopo.trident.stream import TridentStream


def joined(
    left: TridentStream,
    right: TridentStream,
    step: StreamStep,
    on: Names | None,
    left_on: Names | None,
    right_on: Names | None,
    how: How,
) -> PlanNode:
    """Return the node of a join: each side gets one layout, both are merged and sent by key, one task joins."""
    check_together(step.who, left._plan, right._plan)
    if how not in get_args(How):
        raise TopologyError(f"{step.who}: how={how!r} is none of {', '.join(get_args(How))}")
    if (on is None) == (left_on is None and right_on is None) or (left_on is None) != (right_on is None):
        raise TopologyTypeError(f"{step.who}: a join needs on=, or left_on= and right_on=")
    names = known(step.who, left.fields, on if left_on is None else left_on)  # type: ignore[arg-type]
    others = known(step.who, right.fields, on if right_on is None else right_on)  # type: ignore[arg-type]
    keys = _keys(step, left.fields, right.fields, names, others)
    lefts = [field for field in left.fields.items if field.name not in names]
    rights = [field for field in right.fields.items if field.name not in others]
    after = _after(step, keys, lefts, rights, how)
    both = layout(keys, lefts, rights)
    name = f"{left._node.step.stream}+{right._node.step.stream}"
    inner = StreamStep(stream=name, number=1, label=step.label, at=step.at)
    turn = left._node.turn or right._node.turn
    sides = [
        _sided(stream, inner, side, wanted, both)
        for stream, side, wanted in (
            (left, 0, [*names, *(one.name for one in lefts), *[None] * len(rights)]),
            (right, 1, [*others, *[None] * len(lefts), *(one.name for one in rights)]),
        )
    ]
    merged = MergeNode(step=inner, fields=both, parents=tuple(sides), turn=turn, base="join")
    by_key = tuple(f"$k{at}" for at in range(len(keys)))
    moved = RegroupNode(
        step=inner, fields=both, parents=(merged,), turn=turn, base="join", grouping="fields", names=by_key
    )
    link = JoinLink(place=inner.place, fields=after, before=both, keys=len(keys), left=len(lefts), how=how)
    last = LinkNode(step=inner, fields=after, parents=(moved,), turn=turn, base="join", link=link)
    for node in (*sides, merged, moved):
        left._plan.add(node)
    return last


def enriched(
    stream: TridentStream,
    step: StreamStep,
    state: StaticState,
    on: Names | None,
    left_on: Names | None,
    right_on: Names | None,
    how: How,
) -> LookupLink:
    """Return the link that joins a stream with a static state, by the key of the state."""
    if how not in ("inner", "left"):
        raise TopologyError(f"{step.who}: how={how!r}: a join with a static state is inner or left")
    if (on is None) == (left_on is None):
        raise TopologyTypeError(f"{step.who}: a join needs on=, or left_on=")
    names = known(step.who, stream.fields, on if left_on is None else left_on)  # type: ignore[arg-type]
    wanted = state.keys if right_on is None else known(step.who, state.fields, right_on)
    if wanted != state.keys or (on is not None and names != state.keys):
        raise TopologyError(
            f"{step.who}: the key of static state {state.name!r} is {', '.join(state.keys)}: name the fields of the "
            f"stream with left_on="
        )
    keys = _keys(step, stream.fields, state.fields, names, wanted)
    others = [field for field in state.fields.items if field.name not in wanted]
    lefts = [field for field in stream.fields.items if field.name not in names]
    _after(step, keys, lefts, others, how)
    added = [replace(field, nullable=field.nullable or how == "left") for field in others]
    return LookupLink(
        place=step.place,
        fields=Fields((*stream.fields.items, *added)),
        name=state.name,
        digest=state.table.digest,
        keys=tuple(map(stream.fields.names.index, names)),
        others=tuple(state.fields.names.index(field.name) for field in others),
        is_left=how == "left",
        table=state.table,
    )


def _sided(stream: TridentStream, step: StreamStep, side: int, wanted: Sequence[str | None], both: Fields) -> PlanNode:
    names = stream.fields.names
    positions = tuple(None if name is None else names.index(name) for name in wanted)
    link = SideLink(place=step.place, fields=both, side=side, positions=positions)
    node = stream._node
    return LinkNode(step=step, fields=both, parents=(node,), turn=node.turn, base=node.base, link=link)


def _keys(
    step: StreamStep, left: Fields, right: Fields, names: Sequence[str], others: Sequence[str]
) -> Sequence[Field]:
    if len(names) != len(others):
        raise TopologyError(f"{step.who}: {len(names)} keys on the left, {len(others)} on the right")
    found = []
    for name, other in zip(names, others, strict=True):
        one, two = (
            next(field for field in of.items if field.name == key) for of, key in ((left, name), (right, other))
        )
        if one.type != two.type:
            raise TopologyError(
                f"{step.who}: {name} is a {one.type}, and {other} a {two.type}: keys need equal types; convert one "
                f"with .map"
            )
        if one.type.kind in FLOAT_KINDS:
            raise TopologyError(f"{step.who}: {name} is a {one.type}; equal-looking floats differ: declare it decimal")
        found.append(one)
    return found


def _after(step: StreamStep, keys: Sequence[Field], left: Sequence[Field], right: Sequence[Field], how: How) -> Fields:
    fields = [
        *(replace(one, nullable=how != "inner") for one in keys),
        *(replace(one, nullable=one.nullable or how in ("right", "full")) for one in left),
        *(replace(one, nullable=one.nullable or how in ("left", "full")) for one in right),
    ]
    names = [one.name for one in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TopologyError(
            f"{step.who}: both sides have {', '.join(twice)}: project or map one of them before the join"
        )
    return Fields(tuple(fields))
