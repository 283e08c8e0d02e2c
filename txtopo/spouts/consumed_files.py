"""The files that were input before: which they are, by the ledger, and in which state they were last found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from txtopo.core.limits import FILES_COMPARED_MAX
from txtopo.spouts.file_states import UNSEEN, FileStates, Inodes, Keys, Mask, state_of
from txtopo.spouts.fingerprint import FileStat
from txtopo.topology.components import SpoutContext
from txtopo.topology.consumed_inputs import among, new_among

RECENT_MAX = 20_000
"""Files that this driver planned and that are kept by name, until the ledger has them."""
LOOKED_AT_MAX = 10_000
"""Of more consumed files than this in the source, a check reads the metadata of about this many, the next one those of
others.
"""
GONE_MAX = 10_000
"""States of files that no longer exist are dropped when there are this many more states than twice the files."""


class ConsumedFiles:
    """Keeps 24 bytes for each such file that is in the source now, and nothing for the others. Used by one thread.

    Hashes have 64 bits. Two paths with the same one share a state: they are compared with the ledger at each look.
    """

    def __init__(self, context: SpoutContext) -> None:
        self._consumed: Mapping[str, bytes] = context.consumed
        self._recent: dict[str, bytes] = {}
        """Consumed by this driver: the ledger may not have them yet."""
        self._states = FileStates()
        self._context = context
        self._planned: dict[str, tuple[int, int]] | None = None
        """Read when the first consumed file is found: where they are moved away, a driver need not wait for it."""
        self._is_first_check = True
        self._turns = 1
        """Number of checks that together read the metadata of every consumed file."""
        self._turn = 0
        """Of these, the next one."""

    def new_among(self, paths: Sequence[str]) -> set[str]:
        """Return those of `paths` that were never input."""
        return new_among(self._consumed, [path for path in paths if path not in self._recent])

    def any_of(self, means: Callable[[str], bool]) -> bool:
        """Return True if a file that was input before has such a path."""
        return any(map(means, self._recent)) or any(map(means, self._consumed))

    def fingerprints(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the last fingerprints of files that were input before."""
        recent = {path: self._recent[path] for path in paths if path in self._recent}
        return {**recent, **among(self._consumed, [path for path in paths if path not in recent])}

    def consume(self, path: str, stat: FileStat, fingerprint: bytes) -> None:
        """The file is input now, in this state."""
        self._recent.pop(path, None)
        self._recent[path] = fingerprint
        self.note(path, stat)

    def note(self, path: str, stat: FileStat) -> None:
        """From now on a consumed file in this state counts as unchanged."""
        self._states.note(path, stat)

    def leave(self, keys: Keys, inodes: Inodes) -> None:
        """From now on consumed files with these hashes of their paths and these inodes, as their folder gives them,
        wait for their turn.
        """
        self._states.leave(keys, inodes)

    def is_unchanged(self, path: str, stat: FileStat) -> bool:
        """Return True if this is a consumed file in the state in which it was last found; needs no look into the
        ledger.
        """
        return self._states.state(path) == state_of(stat)

    def forget(self, path: str) -> None:
        """From now on no state of this file counts as unchanged."""
        self._states.forget(path)

    def is_unseen(self, path: str) -> bool:
        """Return True for a consumed file that was left, and has its first turn."""
        return self._states.state(path) == UNSEEN

    def turns(self, keys: Keys, inodes: Inodes) -> tuple[Mask, Mask]:
        """Return for paths with these hashes, and inodes as their folder gives them, which are for a later check, and
        which are known.

        For later is a consumed file that was unchanged at the last comparison and is still the same file, or that was
        left by the first check. Every such file has its turn once in `_turns` checks, so that a write to it is
        reported, if later; whatever is new, or has another inode than what it replaced, is never for later. Not known
        is also a file that replaced one that was left.
        """
        known, kept, states = self._states.look_up(keys)
        is_same, is_unseen = kept == inodes, states == UNSEEN
        is_later = np.full(len(keys), self._turns > 1) & (keys % self._turns != self._turn)
        if self._is_first_check:  # It is made again, after an error.
            is_later |= is_unseen
        return known & is_same & is_later, known & (is_same | ~is_unseen)

    def may_be_left(self, path: str) -> bool:
        """Return False for a consumed file that this check has to compare: with its plan at the first check of a
        driver, with its content at any other.
        """
        return self._is_first_check and path not in self._last_plans()

    def is_as_planned(self, path: str, stat: FileStat) -> bool:
        """Return True for a consumed file that need not be compared with its fingerprint although this driver has not
        seen it before.

        The files found when this driver took the lead were compared when they were planned; hashing all of them again
        would take hours. Inode and ctime change with every move to another disk, so a difference in them alone means
        nothing.
        """
        if not self._is_first_check or self._states.state(path) is not None:
            return False
        return self._last_plans().get(path) in (None, (stat.size, stat.mtime_ns))

    def begin(self) -> None:
        """The source is checked from here on."""
        self._states.begin()

    def checked(self, found: int) -> None:
        """The source was checked completely, and had this many files."""
        self._is_first_check = False
        self._planned = None
        if len(self._states) > 2 * found + GONE_MAX:
            self._states.drop_others()
        self._turn += 1
        if self._turn >= self._turns:
            self._turn, self._turns = 0, max(1, -(-len(self._states) // LOOKED_AT_MAX))
        if len(self._recent) > RECENT_MAX:
            oldest = list(self._recent)[: RECENT_MAX // 2]
            for path in among(self._consumed, oldest):
                del self._recent[path]

    def _last_plans(self) -> Mapping[str, tuple[int, int]]:
        if self._planned is None:
            self._planned = _as_planned(self._context)
        return self._planned


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
