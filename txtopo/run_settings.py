"""The settings of a run, with their types, for editors and type checkers: an editor completes them, a type checker
refuses a misspelt name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from txtopo.core.state import PoisonPolicy


class RunSettings(TypedDict, total=False):
    """Keywords of `txtopo.run` and `Topology.run_cli`: the settings of `txtopo run` and `txtopo.toml`. A setting that
    is not given comes from there.

    `txtopo config show` prints the meaning of each, from the docstrings of `txtopo.config.Settings`. Seconds may be
    text such as "5m", bytes such as "256MiB".
    """

    dsn: str
    zookeeper: str
    master: str
    conf: Mapping[str, str | int | float | bool] | Sequence[str]
    py_files: Sequence[str]
    once: bool
    workers: int
    wave_txids_max: int
    wave_bytes_max: int | str
    run_txids_max: int
    spout_pending_max: int
    attempts_max: int
    on_poison: PoisonPolicy
    quarantined_in_row_max: int
    dead_letter_max: int
    ackers: int
    message_timeout_s: float | str
    zookeeper_session_s: float | str
    postgres_away_max_s: float | str
    spout_poll_s: float | str
    results_bytes_max: int | str
    staging_dsn: str
    result_rows_max: int
    staging_connections: int
    checkpoint_every_s: float | str
    log_folder: str | Path
    quiet: bool
    verbose: int
    debug: bool
    config: str | Path
    """Read this file, not the nearest txtopo.toml in this folder or a folder above it."""
    target: str
    """Use [target.NAME] of the file before [default]."""
