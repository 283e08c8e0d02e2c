"""Programs of other people under mypy --strict: what is right passes, and what is misspelt is found before it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.foreign import PARTS_OF_PYSPARK, mypy_says

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "kit" / "programs"
WRONG = """
import txtopo
from txtopo import Topology
from txtopo.testing import TopologyHarness


def wrong(topology: Topology) -> None:
    txtopo.run(topology, onec=True)
    topology.run_cli(dns="postgresql://db/warehouse")
    topology.run(workers="four")
    txtopo.run(topology, on_poison="skip")
    txtopo.run(topology).last_tixd
    TopologyHarness(topology, atempts_max=1)
    txtopo.connect("postgresql://db/warehouse").batches("flights", state="done")
    txtopo.connect("postgresql://db/warehouse").status("flights").sate
"""
FIRST_WRONG, LAST_WRONG = 8, 15
"""Lines of it with a mistake."""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says of all of them, in one run of its own."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "wrong.py").write_text(WRONG)
    programs = sorted(PROGRAMS.glob("[a-z]*.py"))
    return mypy_says(folder, *programs, folder / "wrong.py", without=PARTS_OF_PYSPARK)


def test_programs_that_are_right_pass(checked: str) -> None:
    """Promise: the face is typed, so that who checks strictly needs no `Any` and no `ignore`."""
    assert len(list(PROGRAMS.glob("[a-z]*.py"))) == 5
    assert [line for line in checked.splitlines() if "error:" in line and "wrong.py" not in line] == []


def test_every_mistake_is_found(checked: str) -> None:
    """Misspelt settings, values that are none, fields that are not there."""
    lines = {int(found) for found in re.findall(r"wrong\.py:(\d+): error:", checked)}

    assert lines == set(range(FIRST_WRONG, LAST_WRONG + 1)), checked
