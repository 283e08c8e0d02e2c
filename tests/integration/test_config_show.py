"""`txtopo config show TOPOLOGY`: the config of a topology that has run, as the database has it."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from tests.kit.filled_ledger import FilledLedger
from txtopo.cli import main


def test_the_config_of_a_topology_that_has_run_is_read_from_the_database(
    database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: `txtopo config show TOPOLOGY`; a topology that is not there is 1, and names those that are."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    config: dict[str, Any] = {"topology.max.spout.pending": 32, "password": "hush", "limit": 3}
    with contextlib.closing(FilledLedger(database)) as ledger:
        ledger.lead(description=json.dumps({"config": config}))
        assert main(["config", "show", "flights", "--json"]) == 0
    said = capsys.readouterr().out
    document = json.loads(said)
    (setting,) = (one for one in document["settings"] if one["name"] == "spout_pending_max")

    assert (setting["value"], setting["source"]) == (32, "the topology's own config")
    assert document["components"] == {"password": "***", "limit": 3}
    assert main(["config", "show", "fligts"]) == 1
    assert "did you mean flights?" in capsys.readouterr().err
