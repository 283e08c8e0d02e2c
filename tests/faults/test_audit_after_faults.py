"""After drivers that died the audit finds nothing wrong, and its own recount agrees: what recovery left is right to the
last seal.
"""

from __future__ import annotations

import json

import pytest

from tests.kit.drivers import World
from tests.kit.orders import write_orders
from txtopo.cli import main
from txtopo.core.crash_points import CrashPoint

FILES = 8


def test_the_audit_matches_after_three_drivers_of_which_two_died(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Promise: audit on a real run without a planted fault gives MATCH and 0, however often it was interrupted; a
    rejected record is kept once.
    """
    third = write_orders(world.folder, FILES)[2]
    with third.open("a") as out:
        out.write("no/such,price\n")  # two columns too few
    for point in (CrashPoint.APPLIED, CrashPoint.COMMITTED):
        # One batch a commit, so that each of the three drivers commits some.
        assert world.start(failpoints=f"{point.value}=exit@3", TXTOPO_RUN_TXIDS_MAX="1").wait() == -9
    assert world.start().wait() == 0

    code = main(("audit", "orders", "--dsn", world.dsn, "--json"))

    report = json.loads(capsys.readouterr().out)
    assert report["findings"] == []
    assert code == 0
    assert [(one["recounted"], one["rejected"]) for one in report["batches"]] == [(20, 0), (20, 0), (21, 1)] + [
        (20, 0)
    ] * (FILES - 3)
    assert len({one["epoch"] for one in report["batches"]}) == 3
