"""Checks of a single component before it is connected: its type, its parameters, its number of tasks, its settings."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from txtopo.config import storms_names
from txtopo.core.fields import Fields
from txtopo.core.plan import canonical
from txtopo.core.storm_settings import TICK_SECONDS, problem_with
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.topology.committer_bolt import CommitterBolt
from txtopo.topology.components import Spout
from txtopo.topology.guarantees import EFFECTS, SPOUT_KINDS
from txtopo.topology.spark_types import FrameFunction, RowsPromise
from txtopo.topology.tuple_bolts import ArrowBolt, BasicBolt, BatchBolt, RichBolt, TupleBolt

ROWS: tuple[RowsPromise, ...] = get_args(RowsPromise)
TASKS_MAX = 4096
"""Maximum number of tasks of one component: every task reports to every downstream task."""
COUNTING_GROUPINGS = ("fields", "shuffle", "none", "local_or_shuffle", "local_first", "load_aware", "global")
"""Groupings that a counting committer accepts; global only if it receives tuples."""
CALLED = ("prepare", "execute", "process_batch", "finish_batch", "commit", "cleanup")
"""Methods of a user's bolts whose return value is ignored, or is a number."""
CALLED_OF_SPOUTS = (
    "open",
    "next_tuple",
    "ack",
    "fail",
    "ack_value",
    "fail_value",
    "close",
    "is_ready",
    "initialize_transaction",
    "number_of_partitions",
    "next_range",
    "get_coordinator",
    "get_emitter",
)
"""The same methods of a spout. A method that emits a batch may be a generator."""
REFUSED_GROUPINGS = {
    "global": "its rows are counted in parallel and meet at the commit, so one task for all would only be slower; use "
    "shuffle_grouping",
    "all": "every task would get every row and count it again; use shuffle_grouping",
    "direct": "the emitter would choose the task, and the counts are the same in every task; use fields_grouping or "
    "shuffle_grouping",
    "partial_key": "two tasks would count each key, and both meet at the commit anyway; use fields_grouping",
    "custom": "a custom grouping may drop a row or deliver it twice, and the counts would be wrong; use "
    "fields_grouping or shuffle_grouping",
}


def check_spout(name: str, spout: object) -> Spout:
    """Return the spout. Raises TopologyError if it is not a spout or declares no fields."""
    if not isinstance(spout, Spout):
        hint = "; use an instance, not the class" if isinstance(spout, type) else ""
        raise TopologyTypeError(f"spout {name!r}: {_kind(spout)} is not a Spout such as FileSpout{hint}")
    fields = getattr(spout, "fields", None)
    if not isinstance(fields, Fields) or not fields.items:
        raise TopologyError(
            f"spout {name!r}: {type(spout).__name__} has no output: its `fields` must declare at least one field"
        )
    if spout.kind not in SPOUT_KINDS:
        raise TopologyError(f"spout {name!r}: kind={spout.kind!r} is none of {', '.join(SPOUT_KINDS)}")
    check_config(f"spout {name!r}", getattr(spout, "config", {}))
    check_code_runs(f"spout {name!r}", spout, CALLED_OF_SPOUTS)
    if hasattr(spout, "get_emitter"):
        check_copied(f"spout {name!r}", spout, "where it is first needed")
    return spout


def check_committer(name: str, bolt: object) -> CommitterBolt:
    """Return the committer bolt. Raises TopologyError if it is something else."""
    if isinstance(bolt, TupleBolt):
        raise TopologyTypeError(f"committer bolt {name!r}: a tuple bolt is set with set_bolt")
    if not isinstance(bolt, CommitterBolt):
        hint = "; a function is set with set_bolt" if callable(bolt) else ""
        if isinstance(bolt, type):
            hint = "; use an instance, not the class"
        raise TopologyTypeError(
            f"committer bolt {name!r}: {_kind(bolt)} is not a CommitterBolt such as CountCommitter{hint}"
        )
    if bolt.effects not in EFFECTS:
        raise TopologyError(f"committer bolt {name!r}: effects={bolt.effects!r} is none of {', '.join(EFFECTS)}")
    if not bolt.committer_kind:
        raise TopologyTypeError(
            f"committer bolt {name!r}: {type(bolt).__name__} subclasses CommitterBolt directly; it must derive from "
            f"BatchCommitter"
        )
    bolt.check_component(f"committer bolt {name!r}")
    return bolt


def check_tuple_bolt(name: str, bolt: TupleBolt) -> TupleBolt:
    """Return the tuple bolt. Raises TopologyError if it derives from none of the four kinds of tuple bolt."""
    if not isinstance(bolt, BasicBolt | RichBolt | BatchBolt | ArrowBolt):
        raise TopologyTypeError(
            f"bolt {name!r}: {type(bolt).__name__} subclasses TupleBolt directly; it must derive from BasicBolt, "
            f"RichBolt, BatchBolt or ArrowBolt"
        )
    check_config(f"bolt {name!r}", bolt.config)
    if isinstance(bolt, BasicBolt) and hasattr(bolt, "finish_batch"):
        raise TopologyTypeError(
            f"bolt {name!r}: {type(bolt).__name__} has a finish_batch, which is never called on a BasicBolt: derive "
            f"it from BatchBolt"
        )
    check_code_runs(f"bolt {name!r}", bolt)
    check_copied(f"bolt {name!r}", bolt)
    return bolt


def check_code_runs(who: str, component: object, called: Sequence[str] = CALLED) -> None:
    """Raise TopologyTypeError for a generator or coroutine: calling it runs none of its code, so every tuple would be
    lost silently.
    """
    for name in called:
        method = getattr(component, name, None)
        if inspect.isgeneratorfunction(method):
            what = "a generator, since it has a `yield`"
        elif inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            what = "a coroutine, which nobody awaits"
        else:
            continue
        raise TopologyTypeError(
            f"{who}: {type(component).__name__}.{name} is {what}: its code would never run; write a plain function "
            f"that emits with the collector"
        )


def check_copied(who: str, bolt: object, made_in: str = "in `prepare`") -> None:
    """Raise TopologyTypeError for a template that cannot be copied, such as one with a lock, an open file or a
    connection: each task gets a copy (in Storm, a bolt is serializable).
    """
    error = _copy_error(bolt)
    if error is None:
        return
    guilty = next((f"{name}: " for name, value in vars(bolt).items() if _copy_error(value) is not None), "")
    raise TopologyTypeError(
        f"{who}: {type(bolt).__name__} cannot be copied into tasks: {guilty}{error}; make such a thing {made_in}, "
        f"not in `__init__`"
    ) from error


def _copy_error(value: object) -> Exception | None:
    try:
        copy.deepcopy(value)
    except Exception as error:
        return error
    return None


def check_function(name: str, function: object, rows: str) -> FrameFunction:
    """Return the function of a DataFrame bolt. Raises TopologyError if it cannot be one."""
    if isinstance(function, CommitterBolt):
        raise TopologyTypeError(f"bolt {name!r}: a committer bolt is set with set_committer_bolt")
    if isinstance(function, Spout):
        raise TopologyTypeError(f"bolt {name!r}: a spout is set with set_spout")
    if isinstance(function, type) and issubclass(function, TupleBolt):
        raise TopologyTypeError(
            f"bolt {name!r}: {_kind(function)} is not a bolt; use an instance: set_bolt({name!r}, "
            f"{function.__name__}(…))"
        )
    if not callable(function) or isinstance(function, type):
        raise TopologyTypeError(
            f"bolt {name!r}: {_kind(function)} is neither a function from DataFrame to DataFrame nor a tuple bolt"
        )
    if rows not in ROWS:
        raise TopologyError(f"bolt {name!r}: rows={rows!r} is none of {', '.join(map(repr, ROWS))}")
    return function


def check_parameters(name: str, function: Callable[..., Any], inputs: Sequence[str]) -> None:
    """Check the parameters of a DataFrame function: a single input is its first argument; several inputs are keyword
    arguments, named after the components.
    """
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


def check_tasks(who: str, hint: object) -> int | None:
    """Check a `parallelism_hint`: a number of tasks from 1, or None."""
    if hint is None:
        return None
    if not isinstance(hint, int) or isinstance(hint, bool):
        raise TopologyTypeError(f"{who}: parallelism_hint={hint!r} is not a whole number of tasks")
    if not 1 <= hint <= TASKS_MAX:
        raise TopologyError(f"{who}: parallelism_hint={hint} is not possible: from 1 to {TASKS_MAX} tasks")
    return hint


def check_config(who: str, config: object) -> Mapping[str, Any]:
    """Check settings: a mapping of names to JSON values, because they are part of the code hash."""
    if not isinstance(config, Mapping):
        raise TopologyTypeError(f"{who}: config={config!r} is not a mapping of names to values")
    for key, value in config.items():
        if not isinstance(key, str):
            raise TopologyTypeError(f"{who}: {key!r} is not the name of a setting: names are text")
        try:
            canonical(value)
        except (TypeError, ValueError) as error:
            raise TopologyTypeError(
                f"{who}: setting {key!r} has {_kind(value)}, which is not a JSON value: {error}"
            ) from error
        if value is not None and (problem := problem_with(key, storms_names())) is not None:
            raise TopologyError(f"{who}: setting {key} {problem}")
    return dict(config)


def check_ticks(configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise TopologyError if settings ask for tick tuples: a batch has no clock, so a bolt that waits for ticks would
    never emit. `configs` maps each owner to its settings.
    """
    for who, config in configs.items():
        if config.get(TICK_SECONDS):
            raise TopologyError(
                f"{who}: {TICK_SECONDS} = {config[TICK_SECONDS]!r}, but a batch has no clock and no tick tuple would "
                f"ever come: emit in finish_batch "
                "(BatchBolt, RichBolt, BatchingBolt), and make a window of time a key of the records' own time; "
                "FeederTopology has a clock, with FeederSpouts alone"
            )


def check_grouping(name: str, grouping: str) -> None:
    """Raise TopologyError if a counting committer cannot have this grouping."""
    if grouping not in COUNTING_GROUPINGS:
        refuse_grouping(name, grouping)


def refuse_grouping(name: str, grouping: str) -> None:
    """Raise the TopologyError that says why a counting committer does not accept a grouping."""
    raise TopologyError(f"committer bolt {name!r} takes no {grouping}_grouping: {REFUSED_GROUPINGS[grouping]}")


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
