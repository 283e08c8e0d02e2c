"""Aggregators: the three kinds that a user derives from, and the built-in ones. Exact types only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, Generic, TypeVar

from txtopo.core.fields import FLOAT_KINDS, INTEGER_KINDS, Field, Fields
from txtopo.core.values import TransactionAttempt
from txtopo.errors import TopologyError

T = TypeVar("T")
_EXACT = Context(prec=200)
"""Sums of as many decimals as a batch can have are exact in it."""


class AnyAggregator(ABC):  # noqa: B024 - each kind has methods of its own
    """What the three kinds have in common: the fields whose values they get."""

    def __init__(self, *of: str) -> None:
        self.of = of
        """Names of the fields; empty: no values."""

    def check(self, who: str, before: Fields, made: Fields) -> None:  # noqa: B027 - most take any
        """Raise TopologyError if it cannot make fields of these types. It is a copy for one step, and may note them."""


class CombinerAggregator(AnyAggregator, Generic[T]):
    """Combines values in any order and nesting (Trident's CombinerAggregator): `combine` must be associative and
    commutative, with `zero` as its neutral element. It runs in the tasks that make the tuples, and again where their
    values meet.
    """

    @abstractmethod
    def init(self, *values: Any) -> T:
        """Return the value of one tuple."""

    @abstractmethod
    def combine(self, one: T, other: T) -> T:
        """Return the value of both together. It may change `one`."""

    @abstractmethod
    def zero(self) -> T:
        """Return a new value of nothing."""

    def finish(self, value: T) -> Any:
        """Return the row that continues. By default the value is the row; if not, all tuples of a group are sent to one
        task.
        """
        return value


class ReducerAggregator(AnyAggregator, Generic[T]):
    """Takes one tuple after the other (Trident's ReducerAggregator): all tuples of a group are sent to one task."""

    @abstractmethod
    def init(self) -> T:
        """Return a new value of nothing."""

    @abstractmethod
    def reduce(self, current: T, *values: Any) -> T:
        """Return the value with one tuple more."""


class Aggregator(AnyAggregator, Generic[T]):
    """Takes one tuple after the other and makes any number of rows (Trident's Aggregator)."""

    @abstractmethod
    def init(self, batch: TransactionAttempt) -> T:
        """Return the state for a group that has no tuples yet."""

    @abstractmethod
    def aggregate(self, state: T, *values: Any) -> T | None:
        """Take one tuple. Returns the new state; None: `state`, which it may have changed."""

    @abstractmethod
    def complete(self, state: T) -> Iterable[Any]:
        """Return the rows of the group."""


class Count(CombinerAggregator[int]):
    """Number of tuples; with a field, of its values that are not NULL. A bigint."""

    def __init__(self, field: str | None = None) -> None:
        super().__init__(*([] if field is None else [field]))

    def init(self, *values: Any) -> int:
        return int(None not in values)

    def combine(self, one: int, other: int) -> int:
        return one + other

    def zero(self) -> int:
        return 0

    def check(self, who: str, before: Fields, made: Fields) -> None:
        _check_kind(who, self, made, INTEGER_KINDS)


class Sum(CombinerAggregator[Any]):
    """Sum of integers or decimals; NULL adds nothing, the sum of nothing is 0."""

    def __init__(self, field: str) -> None:
        super().__init__(field)

    def init(self, *values: Any) -> Any:
        return 0 if values[0] is None else values[0]

    def combine(self, one: Any, other: Any) -> Any:
        exact = isinstance(one, Decimal) or isinstance(other, Decimal)
        return _EXACT.add(Decimal(one), Decimal(other)) if exact else one + other

    def zero(self) -> Any:
        return 0

    def check(self, who: str, before: Fields, made: Fields) -> None:
        of = _check_exact(who, self, before)
        _check_kind(who, self, made, {"decimal"} if of.type.kind == "decimal" else {"decimal", *INTEGER_KINDS})
        _check_scale(who, self, of, made.items[0])


class _Extreme(CombinerAggregator[Any]):
    def __init__(self, field: str) -> None:
        super().__init__(field)

    def init(self, *values: Any) -> Any:
        return values[0]

    def zero(self) -> Any:
        return None

    def check(self, who: str, before: Fields, made: Fields) -> None:
        of = _input(before, self)
        if of.type.kind in FLOAT_KINDS:
            raise TopologyError(f"{who}: {_shown(self)} of a {of.type}: declare it decimal, or round it before")
        _check_kind(who, self, made, {of.type.kind})
        _check_scale(who, self, of, made.items[0])


class Min(_Extreme):
    """Smallest value; NULL if there is none. Texts are compared by their UTF-8 bytes."""

    def combine(self, one: Any, other: Any) -> Any:
        return other if one is None else one if other is None else min(one, other)


class Max(_Extreme):
    """Largest value; NULL if there is none. Texts are compared by their UTF-8 bytes."""

    def combine(self, one: Any, other: Any) -> Any:
        return other if one is None else one if other is None else max(one, other)


class Mean(CombinerAggregator[tuple[Fraction, int]]):
    """Mean of integers or decimals, rounded once, half to even, to the scale of its field; NULL if there is none."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.scale = 0

    def init(self, *values: Any) -> tuple[Fraction, int]:
        return self.zero() if values[0] is None else (Fraction(values[0]), 1)

    def combine(self, one: tuple[Fraction, int], other: tuple[Fraction, int]) -> tuple[Fraction, int]:
        return one[0] + other[0], one[1] + other[1]

    def zero(self) -> tuple[Fraction, int]:
        return Fraction(0), 0

    def finish(self, value: tuple[Fraction, int]) -> Decimal | None:
        total, count = value
        if not count:
            return None
        units = round(total / count * 10**self.scale)
        return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -self.scale))

    def check(self, who: str, before: Fields, made: Fields) -> None:
        _check_exact(who, self, before)
        _check_kind(who, self, made, {"decimal"})
        self.scale = made.items[0].type.scale or 0


class CountDistinct(CombinerAggregator[set[Any]]):
    """Number of different values that are not NULL, exactly. A bigint."""

    def __init__(self, field: str) -> None:
        super().__init__(field)

    def init(self, *values: Any) -> set[Any]:
        return set(values) - {None}

    def combine(self, one: set[Any], other: set[Any]) -> set[Any]:
        one |= other
        return one

    def zero(self) -> set[Any]:
        return set()

    def finish(self, value: set[Any]) -> int:
        return len(value)

    def check(self, who: str, before: Fields, made: Fields) -> None:
        of = _input(before, self)
        if of.type.kind in FLOAT_KINDS:
            raise TopologyError(
                f"{who}: {_shown(self)} of a {of.type}: equal-looking floats differ: declare it decimal"
            )
        _check_kind(who, self, made, INTEGER_KINDS)


def can_be_partial(aggregator: AnyAggregator) -> bool:
    """Return True if tasks may combine their tuples before they are sent, because a combined value is a row."""
    return isinstance(aggregator, CombinerAggregator) and type(aggregator).finish is CombinerAggregator.finish


def _input(before: Fields, aggregator: AnyAggregator) -> Field:
    return next(field for field in before.items if field.name == aggregator.of[0])


def _shown(aggregator: AnyAggregator) -> str:
    return f"{type(aggregator).__name__}({', '.join(map(repr, aggregator.of))})"


def _check_exact(who: str, aggregator: AnyAggregator, before: Fields) -> Field:
    of = _input(before, aggregator)
    if not of.type.is_exact_number:
        advice = "; sums of floats depend on their order: declare it decimal" if of.type.kind in FLOAT_KINDS else ""
        raise TopologyError(
            f"{who}: {_shown(aggregator)} adds a {of.type}, and only integers and decimals are added{advice}"
        )
    return of


def _check_kind(who: str, aggregator: AnyAggregator, made: Fields, kinds: Iterable[str]) -> None:
    if len(made.items) != 1 or made.items[0].type.kind not in kinds:
        raise TopologyError(
            f"{who}: {_shown(aggregator)} makes one field of type {' or '.join(sorted(kinds))}, not {made.ddl}"
        )


def _check_scale(who: str, aggregator: AnyAggregator, of: Field, made: Field) -> None:
    if made.type.kind == "decimal" and (made.type.scale or 0) < (of.type.scale or 0):
        raise TopologyError(
            f"{who}: {_shown(aggregator)} has {of.type.scale} decimal places, and {made.name} is a {made.type}"
        )
