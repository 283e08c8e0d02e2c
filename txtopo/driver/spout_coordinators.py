"""The coordinator halves of all spouts of a topology: asked together for a batch, notified together of its final
state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from txtopo.core.plan import Metadata
from txtopo.errors import BatchDataError
from txtopo.topology.components import (
    Input,
    OpaqueCoordinator,
    SettledListener,
    SpoutComponent,
    SpoutContext,
    SpoutCoordinator,
)
from txtopo.topology.user_exceptions import is_of_code, said

IDLE_KEY = "$idle"
"""A spout that has no part in a batch is in its plan as {IDLE_KEY: its metadata before, or null}, so that its position
is never lost.
"""
Settled = Literal["applied", "quarantined"]


class NoInputError(Exception):
    """A spout does not find its source at all."""


def is_idle(metadata: Any) -> bool:
    """True if a spout with this entry in a plan has no part in the batch."""
    return isinstance(metadata, Mapping) and IDLE_KEY in metadata


def last_of(entry: Metadata | None) -> Metadata | None:
    """A spout's metadata before the next batch, from its entry in the plan before; None: it never had a batch."""
    if entry is None or not is_idle(entry):
        return entry
    return cast("Metadata | None", entry[IDLE_KEY])


@dataclass(kw_only=True)
class Sources:
    """Used from one thread. `whole` puts metadata back together that is kept in pieces."""

    spouts: Sequence[SpoutComponent]
    whole: Callable[[Metadata], Metadata]
    context: Callable[[str], SpoutContext]
    """The context with which a spout is opened, at the txid where planning continues."""
    _opened: dict[str, SpoutCoordinator] = field(default_factory=dict)
    _drawn: dict[str, Metadata] = field(default_factory=dict)
    """What spouts have given for the batch at hand: kept where another one, or a store, has trouble, since no spout
    gives it again.
    """

    _given_back: dict[str, list[Metadata]] = field(default_factory=dict)
    """What spouts gave for batches that are planned again, oldest first: it comes before anything new."""

    _moved: set[str] = field(default_factory=set)
    """Opaque spouts that must be opened again: their last input will be planned again."""

    @property
    def want_settled(self) -> bool:
        """True if one of them is to be notified of the final state of its batches."""
        return any(item.spout.wants_settled for item in self.spouts)

    def open(self) -> None:
        """Open each; those that are open already when one fails are closed by `close`. One that has trouble is opened
        when it is asked, as it is waited for then.
        """
        for item in self.spouts:
            with suppress(OSError):
                self._source(item.name)

    def draw(
        self,
        txid: int,
        before: Mapping[str, Metadata],
        again: Mapping[str, Metadata] | None = None,
        *,
        given_up: bool = False,
    ) -> Mapping[str, Metadata] | None:
        """Return the metadata of a batch by spout, if any spout is ready; None if none is. `before` is the plan's
        metadata before it.

        `again` is what a discarded plan of this txid consisted of: then opaque spouts are not asked whether they are
        ready, and there is a batch; of one that is `given_up` also where they have trouble. Called again after an
        error, it continues where it stopped. Call `taken` when the batch is certain to be planned. Raises NoInputError,
        OSError and BatchDataError.
        """
        for item in self.spouts:
            if item.name in self._drawn:
                continue
            if given := self._given_back.get(item.name):
                self._drawn[item.name] = given.pop(0)
            elif again is not None and item.name in again and item.spout.kind == "opaque":
                try:
                    self._drawn[item.name] = self._again(item.name, txid, before, again[item.name])
                except OSError:
                    if not given_up:
                        raise
            elif self._is_ready(item.name):
                self._drawn[item.name] = self._source(item.name).initialize_transaction(
                    txid, self._previous(item.name, before)
                )
        if not self._drawn and again is None:
            return None
        if not self._drawn and not given_up:
            name = next(item.name for item in self.spouts if item.spout.kind == "opaque")
            self._drawn[name] = self._again(name, txid, before, None)
        # A spout that the topology no longer has keeps its entry too: it may come back.
        names = list(self._names) + [
            name for name in before if name not in self._names and last_of(before[name]) is not None
        ]
        return {
            name: self._drawn[name] if name in self._drawn else {IDLE_KEY: last_of(before.get(name))} for name in names
        }

    def _again(self, name: str, txid: int, before: Mapping[str, Metadata], discarded: Metadata | None) -> Metadata:
        source = cast(OpaqueCoordinator, self._source(name))
        return source.initialize_again(txid, self._previous(name, before), discarded)

    def _previous(self, name: str, before: Mapping[str, Metadata]) -> Metadata | None:
        previous = last_of(before.get(name))
        return None if previous is None else self.whole(previous)

    def taken(self) -> None:
        """What was drawn is part of a plan."""
        self._drawn.clear()

    def give_back(self, plans: Sequence[Mapping[str, Metadata]]) -> None:
        """Batches that will be planned again. An opaque spout is asked again; of any other the input of a batch is
        given once, and is used again.
        """
        for item in self.spouts:
            if item.spout.kind == "opaque":
                self._drawn.pop(item.name, None)
                self._moved |= {item.name} & self._opened.keys()
                continue
            given = [plan[item.name] for plan in plans if item.name in plan and not is_idle(plan[item.name])]
            last = [self._drawn.pop(item.name)] if item.name in self._drawn else []
            self._given_back[item.name] = [*given, *last, *self._given_back.get(item.name, [])]

    def redo(self, metadata: Mapping[str, Metadata]) -> dict[str, Metadata]:
        """The same inputs as they are now, of each spout that had a part in the batch. No source is moved."""
        for name in metadata:
            if name not in self._names:
                raise BatchDataError(f"the topology no longer has spout {name}", component=name)
        return {name: self._source(name).initialize_redo(value) for name, value in metadata.items()}

    def inputs(self, metadata: Mapping[str, Metadata]) -> dict[str, Sequence[Input]]:
        """What a batch consumes, by spout."""
        return {item.name: item.spout.inputs(metadata[item.name]) for item in self.spouts if item.name in metadata}

    def are_exhausted(self) -> bool:
        """In a `once` run: will nothing more come from any of them?"""
        return (
            not self._drawn
            and not any(self._given_back.values())
            and all(self._source(name).is_exhausted() for name in self._names)
        )

    def settled(self, txid: int, metadata: Mapping[str, Metadata], state: Settled) -> None:
        """Notify the spouts with `wants_settled` that had a part in the batch."""
        for item in self.spouts:
            if item.spout.wants_settled and item.name in metadata:
                listener = cast(SettledListener, self._source(item.name))
                listener.settled(txid, metadata[item.name], state)

    def close(self) -> None:
        """Close each, whatever the others raise; the first error is raised in the end."""
        errors: list[Exception] = []
        for name, source in self._opened.items():
            try:
                source.close()
            except BaseException as error:
                if not is_of_code(error):
                    raise
                words = f"{name}: {type(error).__name__} in close: {said(error)}"
                # A `sys.exit()` here would end a run that halted with exit code 0.
                errors.append(error if isinstance(error, Exception) else BatchDataError(words, component=name))
        self._opened.clear()
        if errors:
            raise errors[0]

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.spouts)

    def _source(self, name: str) -> SpoutCoordinator:
        if name in self._moved:
            self._moved.discard(name)
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
