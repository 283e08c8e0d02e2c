"""The settings of a TopologyHarness, with their types."""

from __future__ import annotations

from typing import TypedDict

from txtopo.core.state import PoisonPolicy


class HarnessRules(TypedDict, total=False):
    """Keywords of TopologyHarness: settings of the machine, under their names in `txtopo run`."""

    spout_pending_max: int
    workers: int
    attempts_max: int
    on_poison: PoisonPolicy
    quarantined_in_row_max: int
    message_timeout_s: float
    session_s: float
    postgres_away_max_s: float
    spout_poll_s: float
    results_bytes_max: int
    wave_txids_max: int
    wave_bytes_max: int
    run_txids_max: int
    checkpoint_every_s: float
