"""Errors for a topology or a batch that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from txtopo.errors import NotFoundError


def no_topology(name: str, known: Sequence[str]) -> NotFoundError:
    """Return the error for a topology that is in no database row."""
    there = f"; there is {', '.join(known[:10])}" if known else "; no topology has run on this database yet"
    return NotFoundError(f"no topology {name!r}{nearest(name, known)}{there}\n  next: txtopo status")


def no_batch(topology: str, txid: int, planned: Mapping[str, int]) -> NotFoundError:
    """Return the error for an unknown batch; `planned` has the highest planned txid of each topology."""
    if topology not in planned:
        return no_topology(topology, list(planned))
    last = planned[topology]
    there = f"its batches go from 1 to {last}" if last else "it has no batches yet"
    return NotFoundError(f"{topology} has no batch {txid}: {there}\n  next: txtopo batches {topology}")


def nearest(word: str, known: Sequence[str]) -> str:
    """Return ": did you mean X?" for a similar name, otherwise an empty text."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f": did you mean {near[0]}?" if near else ""
