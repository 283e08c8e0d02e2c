"""Keeps, in 24 bytes a file, which files were counted, and in which state each was found. There may be millions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from txtopo.spouts.fingerprint import FileStat

UNSEEN = 0
"""State of a file of which a folder gave the name and the inode, and whose metadata were not read yet."""
PENDING_MIN = 20_000
"""New entries wait until there are this many, or a share of those that are sorted already: each merge moves all."""

Keys = npt.NDArray[np.int64]
Inodes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


def state_of(stat: FileStat) -> int:
    """Return a hash of all the metadata; never `UNSEEN`."""
    return hash(stat) or 1


def keys_of(paths: Sequence[str]) -> Keys:
    """Return a hash of each path. Two paths with the same one share an entry."""
    return np.fromiter(map(hash, paths), np.int64, len(paths))


class FileStates:
    """Hash of a path -> inode and state. Used by one thread."""

    def __init__(self) -> None:
        self._keys: Keys = np.empty(0, np.int64)
        """Sorted; the other arrays have the same order."""
        self._inodes: Inodes = np.empty(0, np.uint64)
        self._states: Keys = np.empty(0, np.int64)
        self._found: Mask = np.empty(0, np.bool_)
        """True for what was asked for since `begin`."""
        self._noted: dict[int, tuple[int, int]] = {}
        """Newer than what is sorted."""
        self._left: list[tuple[Keys, Inodes]] = []
        self._left_count = 0

    def __len__(self) -> int:
        self._sort_in()
        return len(self._keys)

    def begin(self) -> None:
        """Forget what was asked for until now."""
        self._sort_in()
        self._found = np.zeros(len(self._keys), np.bool_)

    def drop_others(self) -> None:
        """Drop the entries that were not asked for since `begin`."""
        self._sort_in()
        kept = self._found
        self._keys, self._inodes, self._states = self._keys[kept], self._inodes[kept], self._states[kept]
        self._found = kept[kept]

    def note(self, path: str, stat: FileStat) -> None:
        """Set the entry of a file."""
        self._noted[hash(path)] = (stat.inode, state_of(stat))
        if len(self._noted) >= max(PENDING_MIN, len(self._keys) // 8):
            self._sort_in()

    def leave(self, keys: Keys, inodes: Inodes) -> None:
        """Add entries in state `UNSEEN`, where there are none."""
        self._left.append((keys, inodes))
        self._left_count += len(keys)
        if self._left_count >= max(PENDING_MIN, len(self._keys) // 2):
            self._sort_in()

    def forget(self, path: str) -> None:
        """Set the entry of a file to a state that no file has."""
        self._noted[hash(path)] = (0, -1)

    def state(self, path: str) -> int | None:
        """Return the state of a file; None if it has no entry."""
        key = hash(path)
        if key in self._noted:
            return self._noted[key][1]
        at = int(np.searchsorted(self._keys, key))
        if at == len(self._keys) or self._keys[at] != key:
            return None
        self._found[at] = True
        return int(self._states[at])

    def look_up(self, keys: Keys) -> tuple[Mask, Inodes, Keys]:
        """Return for each key whether it has an entry that was sorted in, with its inode and state."""
        if not len(self._keys):
            return np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.uint64), np.zeros(len(keys), np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = self._keys[at] == keys
        self._found[at[known]] = True
        return known, self._inodes[at], self._states[at]

    def _sort_in(self) -> None:
        if self._left:
            keys, first = np.unique(np.concatenate([some for some, _ in self._left]), return_index=True)
            inodes = np.concatenate([some for _, some in self._left])[first]
            self._left, self._left_count = [], 0
            self._insert(keys, inodes, np.full(len(keys), UNSEEN, np.int64), newer=False)
        if self._noted:
            keys = np.fromiter(sorted(self._noted), np.int64, len(self._noted))
            values = [self._noted[key] for key in keys.tolist()]
            self._noted.clear()
            inodes = np.fromiter((inode for inode, _ in values), np.uint64, len(values))
            states = np.fromiter((state for _, state in values), np.int64, len(values))
            self._insert(keys, inodes, states, newer=True)

    def _insert(self, keys: Keys, inodes: Inodes, states: Keys, *, newer: bool) -> None:
        """Merge sorted entries; `newer` ones replace those that are there."""
        at = np.searchsorted(self._keys, keys)
        same = np.zeros(len(keys), np.bool_)
        inside = at < len(self._keys)
        same[inside] = self._keys[at[inside]] == keys[inside]
        if newer:
            self._inodes[at[same]], self._states[at[same]] = inodes[same], states[same]
        self._found[at[same]] = True
        new = ~same
        self._inodes = np.insert(self._inodes, at[new], inodes[new])
        self._states = np.insert(self._states, at[new], states[new])
        self._found = np.insert(self._found, at[new], True)
        self._keys = np.insert(self._keys, at[new], keys[new])
