"""The common base of all spouts that a user writes: declared fields, settings, and errors reported as those of the
spout.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

from txtopo.core.fields import Fields, parse_fields
from txtopo.core.plan import Metadata
from txtopo.core.values import cause_of
from txtopo.errors import BatchDataError, StoreUnavailable, TopologyError, TxtopoError, raise_if_full
from txtopo.topology.components import Input, Spout
from txtopo.topology.tuple_bolts import FailedException
from txtopo.topology.user_exceptions import is_of_code, said, user_line


class UserSpout(Spout):
    """Base of the spouts with Storm's names. Declare `outputs`, or set `self.fields` (text or Fields) in `__init__`."""

    outputs: ClassVar[Sequence[str]] = ()
    """Fields of the tuples that it emits: `["word string", "n bigint"]`."""
    config: ClassVar[Mapping[str, Any]] = {}
    """Settings of this spout; in the driver they override those of the topology."""
    described_as: ClassVar[str] = "spout"

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        if isinstance(cls.__dict__.get("outputs"), str):
            raise TopologyError(
                f"{cls.__name__}.outputs is text; write a list: outputs = [{cls.__dict__['outputs']!r}]"
            )
        if not isinstance(cls.outputs, Sequence) or not all(isinstance(one, str) for one in cls.outputs):
            raise TopologyError(
                f"{cls.__name__}.outputs = {cls.outputs!r} is not a list of fields: outputs = ['word string', 'n "
                f"bigint']"
            )
        if "outputs" in cls.__dict__:
            cls.fields = parse_fields(", ".join(cls.outputs))
        elif "fields" in cls.__dict__:
            cls.fields = parse_fields(cls.__dict__["fields"])

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, parse_fields(value) if name == "fields" else value)

    if not TYPE_CHECKING:  # It would take any arguments and any attribute of a spout for right.

        def __new__(cls, *arguments: object, **keywords: object) -> Self:
            if cls.__init__ is object.__init__ and (arguments or keywords):
                raise TypeError(f"{cls.__name__}() takes no arguments")  # Python's words, where it has no `__new__`.
            made = super().__new__(cls)
            made._check_methods()
            return made

        def __getattr__(self, name: str) -> Any:
            if name == "fields":
                raise TopologyError(
                    f"{type(self).__name__} declares no fields: write outputs = ['word string', 'n bigint']"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _check_methods(self) -> None:
        """Raise TopologyError if the user's class lacks a method that it must have. Called before `__init__`."""

    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        return ()

    def describe(self) -> Mapping[str, Any]:
        """Return a description for the code hash and `show`; the code is covered by the hash of its module."""
        return {"kind": self.described_as, "type": type(self).__qualname__, "fields": _ddl(self)}


def must_have(spout: UserSpout, base: type, choices: Sequence[str]) -> None:
    """Raise TopologyError if the user's class does not define one of these methods."""
    if all(getattr(type(spout), name, None) is getattr(base, name, None) for name in choices):
        raise TopologyError(f"{type(spout).__name__} must have a method {' or '.join(choices)}")


def wants_settled_calls(spout: UserSpout) -> None:
    """Set `wants_settled` of a spout that has a method `settled`, so that it is notified of the final state of its
    batches. One that returns a separate coordinator half sets it itself.

    Raises TopologyError if `settled` cannot be called with its arguments.
    """
    if getattr(spout, "settled", None) is not None:
        problem = _settled_problem(spout)
        if problem is not None:
            raise TopologyError(problem)
        spout.wants_settled = True


def check_settled_method(component: str, spout: UserSpout, coordinator: object) -> None:
    """Raise BatchDataError if a coordinator half cannot be notified of the final state of batches, or never would be.
    Called before the first commit.
    """
    has = getattr(coordinator, "settled", None) is not None
    problem = _settled_problem(coordinator) if has else None
    if spout.wants_settled and not has:
        problem = (
            f"{type(spout).__name__} has wants_settled = True, but {type(coordinator).__name__}, "
            f"which get_coordinator returned, has no method settled"
        )
    elif has and not spout.wants_settled:
        problem = (
            f"{type(coordinator).__name__}, which get_coordinator returned, has a method settled: write "
            f"wants_settled = True in {type(spout).__name__}, or it is never called"
        )
    if problem is not None:
        raise BatchDataError(problem, component=component)


def _settled_problem(told: object) -> str | None:
    settled: Any = getattr(told, "settled", None)
    wanted = f"{type(told).__name__}.settled must be a method settled(self, txid, metadata, state)"
    if not callable(settled):
        return wanted
    try:
        inspect.signature(settled).bind(1, {}, "applied")
    except TypeError as error:
        return f"{wanted}: {error}"
    except ValueError:
        pass  # built in: nothing is known of its arguments
    return None


@contextmanager
def errors_of(component: str, what: str) -> Iterator[None]:
    """Convert errors of the user's coordinator half to those of the port.

    FailedException is a failure that may pass, as in Storm: nothing is stored and the spout is asked again later.
    OSError is raised unchanged. Anything else is a mistake in the spout: BatchDataError with the user's own line, so
    that the topology halts and names it.
    """
    try:
        yield
    except FailedException as error:
        raise OSError(f"{component}: {what} failed: {said(error) or type(error).__name__}") from error
    except BatchDataError as error:
        raise BatchDataError(
            str(error),
            component=component,
            position=error.position,
            detail=error.detail,
            cause=error.cause if error.fault is None else None,
            fault=error.fault,
        ) from error
    except (OSError, StoreUnavailable, TxtopoError):
        raise
    except BaseException as error:
        if not is_of_code(error):
            raise
        raise_if_full(error)
        where = user_line(error)
        message = f"{where + ': ' if where else ''}{type(error).__name__} in {what}: {said(error)}".rstrip(": ")
        detail = "".join(traceback.format_exception(error))
        cause = cause_of(component, type(error).__name__, where)
        raise BatchDataError(message, component=component, detail=detail, cause=cause) from error


def _ddl(spout: Spout) -> str:
    fields: Fields = spout.fields
    return fields.ddl
