"""The backoff before the next try: exponential, bounded, with full jitter."""

from __future__ import annotations

from txtopo.core.limits import BACKOFF_FACTOR, BACKOFF_FIRST_S, BACKOFF_MAX_S


def backoff_s(failures: int, chance: float) -> float:
    """Return seconds to wait after the `failures`-th consecutive failure (1, 2, …); `chance` in [0, 1) is the jitter.

    Never less than a tenth of the bound, so that a store that refuses immediately does not get too many requests.
    """
    bound = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * BACKOFF_FACTOR ** min(max(failures, 1) - 1, 20))
    return bound * (0.1 + 0.9 * chance)
