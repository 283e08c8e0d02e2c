"""The inputs that earlier batches consumed, read from the ledger when they are asked for: there may be millions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

PATHS_PER_READ = 10_000
"""Number of inputs that one statement reads."""
NEW_PER_READ = 50_000
"""Number of inputs of which one statement says which are new."""


class ConsumedInputs(Mapping[str, bytes]):
    """Path -> fingerprint of every input that was ever planned into a batch. Nothing is kept in memory but the inputs
    of batches that were not committed when the driver took the lead. Every read may raise PostgresUnavailable.
    """

    def __init__(
        self,
        among: Callable[[Sequence[str]], Mapping[str, bytes]],
        after: Callable[[str, int], Sequence[tuple[str, bytes]]],
        uncommitted: Mapping[str, bytes],
        new_among: Callable[[Sequence[str]], Collection[str]] | None = None,
    ) -> None:
        """`among`, `after` and `new_among` read the ledger, see `Ledger.consumed`, `Ledger.consumed_after` and
        `Ledger.not_consumed`. Without `new_among`, `among` is asked.
        """
        self._among = among
        self._after = after
        self._uncommitted = dict(uncommitted)
        self._new_among = new_among

    def among(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Return those of `paths` that were consumed, with their fingerprints."""
        found: dict[str, bytes] = {}
        storable = [path for path in paths if _is_storable(path)]
        for start in range(0, len(storable), PATHS_PER_READ):
            found |= self._among(storable[start : start + PATHS_PER_READ])
        return found | {path: self._uncommitted[path] for path in paths if path in self._uncommitted}

    def new_among(self, paths: Sequence[str]) -> set[str]:
        """Return those of `paths` that were never consumed. This costs much less than `among` where few are new."""
        if self._new_among is None:
            return {*paths} - self.among(paths).keys()
        storable = paths if _are_storable(paths) else [path for path in paths if _is_storable(path)]
        new = {*paths}.difference(storable)
        for start in range(0, len(storable), NEW_PER_READ):
            new.update(self._new_among(storable[start : start + NEW_PER_READ]))
        return new - self._uncommitted.keys()

    def __getitem__(self, path: str) -> bytes:
        return self.among([path])[path]

    def __iter__(self) -> Iterator[str]:
        yield from self._uncommitted
        last = ""
        while rows := self._after(last, PATHS_PER_READ):
            yield from (path for path, _ in rows if path not in self._uncommitted)
            last = rows[-1][0]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None


def among(consumed: Mapping[str, bytes], paths: Sequence[str]) -> Mapping[str, bytes]:
    """Return those of `paths` that were consumed, with their fingerprints, in as few reads as possible."""
    if isinstance(consumed, ConsumedInputs):
        return consumed.among(paths)
    return {path: consumed[path] for path in paths if path in consumed}


def new_among(consumed: Mapping[str, bytes], paths: Sequence[str]) -> set[str]:
    """Return those of `paths` that were never consumed, in as few reads as possible."""
    if isinstance(consumed, ConsumedInputs):
        return consumed.new_among(paths)
    return {path for path in paths if path not in consumed}


def _are_storable(paths: Sequence[str]) -> bool:
    """Return True if `_is_storable` is True for all; checks all together, since there may be a million."""
    try:
        together = "".join(paths)
        together.encode("utf-8")
    except (TypeError, UnicodeEncodeError):
        return False
    return "\0" not in together


def _is_storable(path: str) -> bool:
    """Return False for a name that is not UTF-8 or has a NUL: it is in no ledger, and no statement can name it. Raises
    TypeError for what is no text: "never consumed" would make a `Path` input again.
    """
    if not isinstance(path, str):
        raise TypeError(f"inputs are known by text: ask for str(path), not for a {type(path).__name__}")
    if "\0" in path:
        return False
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
