"""Checks of what a step is given: names of fields, functions, names of what lasts. Each raises TopologyError in words
that name the step.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial
from types import CellType, SimpleNamespace
from typing import Any

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.limits import NAME_PATTERN
from txtopo.errors import TopologyError, TopologyTypeError
from txtopo.topology.describe import digest_of
from txtopo.topology.user_exceptions import note_component

Names = str | Sequence[str]


def known(who: str, fields: Fields, names: Names) -> tuple[str, ...]:
    """Return names of fields as a tuple. Raises TopologyError for one that is not there, or is named twice."""
    asked = (names,) if isinstance(names, str) else tuple(names)
    for name in asked:
        if not isinstance(name, str):
            raise TopologyTypeError(f"{who}: {name!r} is not the name of a field")
        if fields.get(name) is None:
            near = difflib.get_close_matches(name, fields.names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TopologyError(f"{who}: there is no field {name!r}; there are {', '.join(fields.names)}{hint}")
        if asked.count(name) > 1:
            raise TopologyError(f"{who}: the field {name!r} is named twice")
    if not asked:
        raise TopologyError(f"{who}: at least one field is to be named; there are {', '.join(fields.names)}")
    return asked


def declared(who: str, fields: str | Fields) -> Fields:
    """Return the declared fields of a step."""
    try:
        return parse_fields(fields)
    except TopologyError as error:
        raise TopologyError(f"{who}: {error}") from error


def appended(who: str, verb: str, before: Fields, made: Fields) -> Fields:
    """Return the fields of a stream after a step that appends some."""
    for name in made.names:
        if before.get(name) is not None:
            raise TopologyError(
                f"{who}: {verb} appends {name!r}, which the stream has: name it otherwise, or write "
                f".{'flat_map' if verb.startswith('flat') else 'map'} to replace"
            )
    return Fields((*before.items, *made.items))


def checked_name(who: str, name: object) -> str:
    """Return the name of something that lasts, or of a component."""
    # P15: names become parts of tables, znodes and logs.
    if not isinstance(name, str) or re.fullmatch(NAME_PATTERN, name) is None:
        raise TopologyError(
            f"{who}: the name {name!r} is not allowed: it must start with a lowercase letter, then have at most 40 "
            f"lowercase letters, digits or underscores"
        )
    return name


def label_of(function: object) -> str:
    """Return the name of a function as a step shows it."""
    if isinstance(function, partial):
        return label_of(function.func)
    return getattr(function, "__name__", None) or type(function).__name__


def check_function(who: str, function: object, names: Sequence[str], *, may_yield: bool) -> None:
    """Check that a function can be called with values of these fields, runs when it is called, and can be copied."""
    if isinstance(function, type) and not _makes_values(function):
        raise TopologyTypeError(f"{who}: {function.__name__} is a class; use an instance, {function.__name__}(…)")
    if not callable(function):
        raise TopologyTypeError(f"{who}: {function!r} is not a function")
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise TopologyTypeError(f"{who}: {label_of(function)} is a coroutine, which nobody awaits")
    if inspect.isgeneratorfunction(called) and not may_yield:
        raise TopologyTypeError(
            f"{who}: {label_of(function)} is a generator, since it has a `yield`: its code would never run; return a "
            f"value, or write .flat_each or .flat_map"
        )
    _check_parameters(who, function, names)
    check_copied(who, function)
    note_component(getattr(function, "__module__", None) or "builtins")


def check_copied(who: str, value: object) -> None:
    """Check that a template can be copied into tasks."""
    try:
        copy.deepcopy(value)
    except Exception as error:
        raise TopologyTypeError(f"{who}: {label_of(value)} cannot be copied into tasks: {error}") from error


def arguments_of(function: object) -> str:
    """Return a digest of what a function was made with: arguments of a partial, values that a closure holds, defaults,
    attributes of an object.
    """
    found: dict[str, object] = {"attributes": digest_of(function)}
    if isinstance(function, partial):
        found |= {"function": arguments_of(function.func), "args": function.args, "keywords": function.keywords}
    cells = getattr(function, "__closure__", None) or ()
    found["closure"] = [_held(cell) for cell in cells]
    found["defaults"] = getattr(function, "__defaults__", None)
    return digest_of(SimpleNamespace(**found))


def _held(cell: CellType) -> object:
    """Return what a cell of a closure holds; None for a name that its function assigns later."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _makes_values(function: type) -> bool:
    """True for classes such as `int` and `str`, which convert a value."""
    return function.__module__ in ("builtins", "decimal", "datetime")


def _check_parameters(who: str, function: Callable[..., Any], names: Sequence[str]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # The first batch says it.
    try:
        signature.bind(*names)
    except TypeError as error:
        takes = len(signature.parameters)
        given = ", ".join(map(repr, names))
        raise TopologyError(
            f"{who}: {label_of(function)} takes {takes} value{'' if takes == 1 else 's'}, of=({given}) gives "
            f"{len(names)}"
        ) from error
