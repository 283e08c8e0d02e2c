"""The files that were input before: which they are, by the ledger, and in which state they were last found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from txtopo.core.limits import FILES_COMPARED_MAX
from txtopo.spouts.fingerprint import FileStat
from txtopo.topology.components import SpoutContext
from txtopo.topology.consumed_inputs import among

RECENT_MAX = 20_000
"""Files that this driver planned and that are kept by name, until the ledger has them."""
LOOKED_AT_MAX = 10_000
"""Of more consumed files than this in the source, a check reads the metadata of about this many, the next one those of
others.
"""
GONE_MAX = 10_000
"""States of files that no longer exist are dropped when there are this many more states than twice the files."""


class ConsumedFiles:
    """Keeps about 150 bytes for each such file that is in the source now, and nothing for the others. Used by one
    thread.

    Hashes have 64 bits. Two paths with the same one share a state: they are compared with the ledger at each look.
    """

    def __init__(self, context: SpoutContext) -> None:
        self._consumed: Mapping[str, bytes] = context.consumed
        self._recent: dict[str, bytes] = {}
        """Consumed by this driver: the ledger may not have them yet."""
        self._states: dict[int, int] = {}
        """Hash of the path -> inode and hash of the state in which the file was last found."""
        self._older: dict[int, int] = {}
        """States from before this check, while those of files that no longer exist are being dropped."""
        self._context = context
        self._planned: dict[str, tuple[int, int]] | None = None
        """Read when the first consumed file is found: where they are moved away, a driver need not wait for it."""
        self._is_first_check = True
        self._turns = 1
        """Number of checks that together read the metadata of every consumed file."""
        self._turn = 0
        """Of these, the next one."""

    def among(self, paths: Sequence[str]) -> set[str]:
        """Return those of `paths` that were input before."""
        asked = [path for path in paths if path not in self._recent]
        return {*among(self._consumed, asked), *(path for path in paths if path in self._recent)}

    def any_of(self, means: Callable[[str], bool]) -> bool:
        """Return True if a file that was input before has such a path."""
        return any(map(means, self._recent)) or any(map(means, self._consumed))

    def fingerprint(self, path: str) -> bytes:
        """Return the last fingerprint of a file that was input before."""
        return self._recent[path] if path in self._recent else self._consumed[path]

    def consume(self, path: str, stat: FileStat, fingerprint: bytes) -> None:
        """The file is input now, in this state."""
        self._recent.pop(path, None)
        self._recent[path] = fingerprint
        self.note(path, stat)

    def note(self, path: str, stat: FileStat) -> None:
        """From now on a consumed file in this state counts as unchanged."""
        self._states[hash(path)] = _state(stat)

    def is_unchanged(self, path: str, stat: FileStat) -> bool:
        """Return True if this is a consumed file in the state in which it was last found; needs no look into the
        ledger.
        """
        key = hash(path)
        state = self._states.get(key)
        if state is None and key in self._older:
            state = self._states[key] = self._older[key]
        return state == _state(stat)

    def is_for_later(self, path: str, inode: int) -> bool:
        """Return True for a consumed file that a later check compares: it was unchanged at the last comparison, and
        is still the same file. Every such file has its turn once in `_turns` checks, so that a write to it is
        reported, if later; whatever is new, or has another inode than what it replaced, is never for later.
        """
        if self._turns == 1:
            return False
        key = hash(path)
        state = self._states.get(key)
        return state is not None and state >> _HASH_BITS == inode and key % self._turns != self._turn

    def is_as_planned(self, path: str, stat: FileStat) -> bool:
        """Return True for a consumed file that need not be compared with its fingerprint although this driver has not
        seen it before.

        The files found when this driver took the lead were compared when they were planned; hashing all of them again
        would take hours. Inode and ctime change with every move to another disk, so a difference in them alone means
        nothing.
        """
        if not self._is_first_check or hash(path) in self._states:
            return False
        if self._planned is None:
            self._planned = _as_planned(self._context)
        return self._planned.get(path) in (None, (stat.size, stat.mtime_ns))

    def checked(self, found: int) -> None:
        """The source was checked completely, and had this many files."""
        self._is_first_check = False
        self._planned = None
        self._older.clear()
        self._turn += 1
        if self._turn >= self._turns:
            self._turn, self._turns = 0, max(1, -(-len(self._states) // LOOKED_AT_MAX))
        if len(self._states) > 2 * found + GONE_MAX:
            self._older, self._states = self._states, {}
        if len(self._recent) > RECENT_MAX:
            oldest = list(self._recent)[: RECENT_MAX // 2]
            for path in among(self._consumed, oldest):
                del self._recent[path]


_HASH_BITS = 64


def _state(stat: FileStat) -> int:
    return stat.inode << _HASH_BITS | hash(stat) & ((1 << _HASH_BITS) - 1)


def _as_planned(context: SpoutContext) -> dict[str, tuple[int, int]]:
    """Return size and mtime of the files of the last batches when they were planned, so that writes while no driver ran
    are reported.
    """
    known: dict[str, tuple[int, int]] = {}
    for metadata in context.recent():
        for file in metadata.get("files", ()):
            known.setdefault(str(file["path"]), (file["size"], file["mtime_ns"]))
        if len(known) >= FILES_COMPARED_MAX:
            break
    return known
