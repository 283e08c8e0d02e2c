"""The inputs that earlier batches consumed, read from the ledger when they are asked for: there may be millions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

PATHS_PER_READ = 10_000
"""Number of inputs that one statement reads."""


class ConsumedInputs(Mapping[str, bytes]):
    """Path -> fingerprint of every input that was ever planned into a batch. Nothing is kept in memory but the inputs
    of batches that were not committed when the driver took the lead. Every read may raise PostgresUnavailable.
    """

    def __init__(
        self,
        among: Callable[[Sequence[str]], Mapping[str, bytes]],
        after: Callable[[str, int], Sequence[tuple[str, bytes]]],
        uncommitted: Mapping[str, bytes],
    ) -> None:
        """`among` and `after` read the ledger, see `Ledger.consumed` and `Ledger.consumed_after`."""
        self._among = among
        self._after = after
        self._uncommitted = dict(uncommitted)

    def among(self, paths: Sequence[str]) -> dict[str, bytes]:
        """Return those of `paths` that were consumed, with their fingerprints."""
        found: dict[str, bytes] = {}
        storable = [path for path in paths if _is_storable(path)]
        for start in range(0, len(storable), PATHS_PER_READ):
            found |= self._among(storable[start : start + PATHS_PER_READ])
        return found | {path: self._uncommitted[path] for path in paths if path in self._uncommitted}

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
