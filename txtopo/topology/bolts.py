"""What can be wrong with a single component before it is connected: its type, its parameters, its groupings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from txtopo.errors import TopologyError
from txtopo.topology.components import CommitterBolt, Spout

ROWS = ("same", "fewer", "any")
COMMITTER_GROUPINGS = ("fields", "shuffle", "none", "local_or_shuffle")
REFUSED_GROUPINGS = {
    "global": "its rows are counted in parallel and meet at the commit, so one task for all would only be slower; use shuffle_grouping",
    "all": "every task would get every row and count it again; use shuffle_grouping",
    "direct": "no bolt in front of it can name a task; use fields_grouping or shuffle_grouping",
    "partial_key": "it is not supported for committer bolts; use fields_grouping",
    "custom": "it is not supported for committer bolts; use fields_grouping or shuffle_grouping",
}


def check_spout(name: str, spout: object) -> Spout:
    """The spout, or TopologyError where it is something else."""
    if isinstance(spout, Spout):
        return spout
    hint = "; use an instance, not the class" if isinstance(spout, type) else ""
    raise TopologyError(f"spout {name!r}: {_kind(spout)} is no Spout such as FileSpout{hint}")


def check_committer(name: str, bolt: object) -> CommitterBolt:
    """The committer bolt, or TopologyError where it is something else."""
    if isinstance(bolt, CommitterBolt):
        return bolt
    hint = "; a function is set with set_bolt" if callable(bolt) and not isinstance(bolt, type) else ""
    raise TopologyError(f"committer bolt {name!r}: {_kind(bolt)} is no CommitterBolt such as CountCommitter{hint}")


def check_function(name: str, function: object, rows: str) -> Callable[..., Any]:
    """The function of a DataFrame bolt, or TopologyError where it cannot be one."""
    if isinstance(function, CommitterBolt):
        raise TopologyError(f"bolt {name!r}: a committer bolt is set with set_committer_bolt")
    if isinstance(function, Spout):
        raise TopologyError(f"bolt {name!r}: a spout is set with set_spout")
    if not callable(function) or isinstance(function, type):
        raise TopologyError(f"bolt {name!r}: {_kind(function)} is no function from DataFrame to DataFrame")
    if rows not in ROWS:
        raise TopologyError(f"bolt {name!r}: rows={rows!r} is none of {', '.join(map(repr, ROWS))}")
    return function


def check_parameters(name: str, function: Callable[..., Any], inputs: Sequence[str]) -> None:
    """A bolt of one input gets it as its first argument, one of several inputs gets each by keyword, named as the component."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        if len(inputs) == 1:
            signature.bind(object())
        else:
            signature.bind(**dict.fromkeys(inputs, object()))
    except TypeError as error:
        wanted = "one DataFrame" if len(inputs) == 1 else f"its inputs by keyword ({', '.join(inputs)})"
        raise TopologyError(
            f"bolt {name!r}: its function takes {signature}, but is called with {wanted}: {error}"
        ) from error


def check_grouping(name: str, grouping: str) -> None:
    """Raise TopologyError where a committer bolt cannot have that grouping."""
    if grouping not in COMMITTER_GROUPINGS:
        raise TopologyError(f"committer bolt {name!r} takes no {grouping}_grouping: {REFUSED_GROUPINGS[grouping]}")


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
