"""The coordinator halves of all spouts of a topology: together they make the metadata of a batch, and together they are
notified of its final state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from txtopo.core import limits
from txtopo.core.plan import Metadata
from txtopo.errors import BatchDataError
from txtopo.topology.components import (
    Input,
    LaggingCoordinator,
    OpaqueCoordinator,
    PacedCoordinator,
    SettledListener,
    SpoutComponent,
    SpoutContext,
    SpoutCoordinator,
)
from txtopo.topology.user_exceptions import is_of_code, said

IDLE_KEY = "$idle"
"""A spout without input in a batch has the entry {IDLE_KEY: its last metadata, or null} in the plan, so that its
position is never lost.
"""
Settled = Literal["applied", "quarantined"]


class NoInputError(Exception):
    """The source of a spout does not exist."""


def _most(waiting: Mapping[str, int]) -> Mapping[str, Any]:
    """Return the sum, and the partitions where most waits: a heartbeat has room for some."""
    order = sorted((name for name, number in waiting.items() if number > 0), key=lambda name: (-waiting[name], name))
    return {
        "records": sum(waiting[name] for name in order),
        "lagging": len(order),
        "partitions": {name: waiting[name] for name in order[: limits.LAGGING_NAMED_MAX]},
    }


def is_idle(metadata: Any) -> bool:
    """True if a spout with this entry in a plan has no input in the batch."""
    return isinstance(metadata, Mapping) and IDLE_KEY in metadata


def last_of(entry: Metadata | None) -> Metadata | None:
    """Return the last metadata of a spout from its entry in the previous plan; None if it never had input in a
    batch.
    """
    if entry is None or not is_idle(entry):
        return entry
    return cast("Metadata | None", entry[IDLE_KEY])


@dataclass(kw_only=True)
class Sources:
    """The coordinator halves, used from one thread. `whole` resolves references to metadata in `plan_part`."""

    spouts: Sequence[SpoutComponent]
    whole: Callable[[Metadata], Metadata]
    context: Callable[[str], SpoutContext]
    """The context with which a spout is opened, at the txid where planning continues."""
    _opened: dict[str, SpoutCoordinator] = field(default_factory=dict)
    _pending: dict[str, Metadata] = field(default_factory=dict)
    """Metadata that spouts have returned for the next batch. It is kept if another spout or a store fails, because no
    spout returns it again.
    """

    _replanned: dict[str, list[Metadata]] = field(default_factory=dict)
    """Metadata of batches that are planned again, oldest first. It is used before anything new."""

    _to_reopen: set[str] = field(default_factory=set)
    """Opaque spouts that must be opened again, because their last input is planned again."""

    @property
    def want_settled(self) -> bool:
        """True if a spout wants to be notified of the final state of its batches."""
        return any(item.spout.wants_settled for item in self.spouts)

    def open(self) -> None:
        """Open every spout. If one fails, `close` closes those that are open. A spout whose source is unavailable is
        opened when it is first asked.
        """
        for item in self.spouts:
            with suppress(OSError):
                self._source(item.name)

    def next_batch(
        self,
        txid: int,
        before: Mapping[str, Metadata],
        again: Mapping[str, Metadata] | None = None,
        *,
        given_up: bool = False,
    ) -> Mapping[str, Metadata] | None:
        """Return the metadata of the next batch by spout, or None if no spout is ready. `before` is the metadata of the
        previous plan.

        `again` is the metadata of a discarded plan of this txid. Then there is always a batch, and opaque spouts are
        not asked whether they are ready. With `given_up`, an opaque spout whose source fails is skipped.

        Called again after an error, it continues where it stopped. Call `mark_planned` when the batch is certain to be
        planned. Raises NoInputError, OSError and BatchDataError.
        """
        for item in self.spouts:
            if item.name in self._pending:
                continue
            if given := self._replanned.get(item.name):
                self._pending[item.name] = given.pop(0)
            elif again is not None and item.name in again and item.spout.kind == "opaque":
                try:
                    self._pending[item.name] = self._again(item.name, txid, before, again[item.name])
                except OSError:
                    if not given_up:
                        raise
            elif self._is_ready(item.name):
                self._pending[item.name] = self._source(item.name).initialize_transaction(
                    txid, self._previous(item.name, before)
                )
        if not self._pending and again is None:
            return None
        if not self._pending and not given_up:
            name = next(item.name for item in self.spouts if item.spout.kind == "opaque")
            self._pending[name] = self._again(name, txid, before, None)
        # A spout that the topology no longer has keeps its entry too: it may be added again.
        names = list(self._names) + [
            name for name in before if name not in self._names and last_of(before[name]) is not None
        ]
        return {
            name: self._pending[name] if name in self._pending else {IDLE_KEY: last_of(before.get(name))}
            for name in names
        }

    def _again(self, name: str, txid: int, before: Mapping[str, Metadata], discarded: Metadata | None) -> Metadata:
        source = cast(OpaqueCoordinator, self._source(name))
        return source.initialize_again(txid, self._previous(name, before), discarded)

    def _previous(self, name: str, before: Mapping[str, Metadata]) -> Metadata | None:
        previous = last_of(before.get(name))
        return None if previous is None else self.whole(previous)

    def mark_planned(self) -> None:
        """The metadata returned by `next_batch` is now part of a plan."""
        self._pending.clear()

    def plan_again(self, plans: Sequence[Mapping[str, Metadata]]) -> None:
        """Note batches that will be planned again. An opaque spout is asked again. Other spouts return the input of a
        batch only once, so it is used again.
        """
        for item in self.spouts:
            if item.spout.kind == "opaque":
                self._pending.pop(item.name, None)
                self._to_reopen |= {item.name} & self._opened.keys()
                continue
            given = [plan[item.name] for plan in plans if item.name in plan and not is_idle(plan[item.name])]
            last = [self._pending.pop(item.name)] if item.name in self._pending else []
            self._replanned[item.name] = [*given, *last, *self._replanned.get(item.name, [])]

    def redo(self, metadata: Mapping[str, Metadata]) -> dict[str, Metadata]:
        """Return metadata for the same inputs as they are now, for each spout that has an entry. The position of the
        sources does not change. Raises BatchDataError if the topology no longer has one of the spouts.
        """
        for name in metadata:
            if name not in self._names:
                raise BatchDataError(f"the topology no longer has spout {name}", component=name)
        return {name: self._source(name).initialize_redo(value) for name, value in metadata.items()}

    def inputs(self, metadata: Mapping[str, Metadata]) -> dict[str, Sequence[Input]]:
        """Return what a batch consumes, by spout."""
        return {item.name: item.spout.inputs(metadata[item.name]) for item in self.spouts if item.name in metadata}

    def are_exhausted(self) -> bool:
        """True if, in a `once` run, no spout will have more input."""
        return (
            not self._pending
            and not any(self._replanned.values())
            and all(self._source(name).is_exhausted() for name in self._names)
        )

    def ready_in_s(self) -> float:
        """Return after how many seconds a spout may be ready, as far as one knows; infinity if none does."""
        paced = (source for source in self._opened.values() if hasattr(source, "ready_in_s"))
        return min((cast(PacedCoordinator, source).ready_in_s() for source in paced), default=math.inf)

    def lag(self) -> Mapping[str, Any]:
        """Return for each spout that knows it how many records wait: `records`, and the `partitions` with most of
        them.
        """
        lagging = {name: source for name, source in self._opened.items() if callable(getattr(source, "lag", None))}
        found = {name: cast(LaggingCoordinator, source).lag() for name, source in lagging.items()}
        return {name: _most(waiting) for name, waiting in found.items() if waiting}

    def settled(self, txid: int, metadata: Mapping[str, Metadata], state: Settled) -> None:
        """Notify the spouts with `wants_settled` that have input in the batch."""
        for item in self.spouts:
            if item.spout.wants_settled and item.name in metadata:
                listener = cast(SettledListener, self._source(item.name))
                listener.settled(txid, metadata[item.name], state)

    def close(self) -> None:
        """Close every spout, even if some raise; then raise the first error."""
        errors: list[Exception] = []
        for name, source in self._opened.items():
            try:
                source.close()
            except BaseException as error:
                if not is_of_code(error):
                    raise
                words = f"{name}: {type(error).__name__} in close: {said(error)}"
                # A `sys.exit()` here would give a halted run exit code 0.
                errors.append(error if isinstance(error, Exception) else BatchDataError(words, component=name))
        self._opened.clear()
        if errors:
            raise errors[0]

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.spouts)

    def _source(self, name: str) -> SpoutCoordinator:
        if name in self._to_reopen:
            self._to_reopen.discard(name)
            self._opened.pop(name).close()
        if name not in self._opened:
            spout = next(item.spout for item in self.spouts if item.name == name)
            self._opened[name] = spout.open_coordinator(self.context(name))
        return self._opened[name]

    def _is_ready(self, name: str) -> bool:
        try:
            return self._source(name).is_ready()
        except FileNotFoundError as error:
            raise NoInputError(str(error)) from error
