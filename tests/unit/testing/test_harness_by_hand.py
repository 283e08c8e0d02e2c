"""TopologyHarness with its phases in the test's hands: held, released, failed, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.testing.test_harness import csv, sifted
from txtopo.errors import Halted
from txtopo.testing import TopologyHarness
from txtopo.topology.components import Spout


def held(spout: Spout, **settings: Any) -> TopologyHarness:
    """Every phase held, two batches at a time."""
    return TopologyHarness(sifted(spout), by_hand=True, spout_pending_max=2, **settings)


def test_phases_are_held_until_they_are_released(tmp_path: Path) -> None:
    """What is processed shows in emissions, what is committed in the ledger; nothing goes on by itself."""
    with held(csv(tmp_path, "a,1\n", "b,100\n", "c,3\n")) as harness:
        assert harness.run() is None
        assert (harness.held_processing, harness.held_commits) == ({1: 0, 2: 0}, [])
        assert (harness.values("rows"), harness.values("announce")) == ([("a", 1), ("b", 100)], [])

        harness.release_processing(2)
        assert (harness.held_processing, harness.held_commits, harness.batches) == ({1: 0}, [], [])

        harness.release_processing(1)
        assert (harness.held_processing, harness.held_commits) == ({}, [1])
        harness.release_commit(1)
        assert (harness.held_processing, harness.held_commits) == ({3: 0}, [2])
        assert harness.values("announce") == [(0,), (1,)]

        harness.release_processing(3)
        harness.release_commit(2, 3)
        assert harness.run() is harness.end
        assert harness.end is not None
        assert harness.end.kind == "finished"


def test_what_is_not_held_cannot_be_released(tmp_path: Path) -> None:
    """A test that releases the wrong batch is told."""
    with held(csv(tmp_path, "a,1\n")) as harness:
        harness.run()
        with pytest.raises(KeyError, match="the processing of batch 2 is not held: held is that of 1"):
            harness.release_processing(2)
        with pytest.raises(KeyError, match="the processing of batch 7 is not held: held is that of 1"):
            harness.fail_processing(7)
        with pytest.raises(KeyError, match="the commit of batch 1 is not held: none is held"):
            harness.release_commit(1)
        assert harness.held_processing == {1: 0}


def test_a_phase_that_is_failed_is_tried_again_as_often_as_it_may(tmp_path: Path) -> None:
    """`fail_processing` counts as what it says: data failures are bounded by attempts_max, and the last one is what an
    operator reads.
    """
    with held(csv(tmp_path, "a,1\n", "b,2\n"), attempts_max=2) as harness:
        harness.run()
        harness.fail_processing(1, "away for a moment", "infrastructure")
        harness.fail_processing(1, "first")
        assert harness.held_processing == {1: 2, 2: 0}
        assert [one.attempt.attempt for one in harness.emitted("rows", txid=1)] == [0, 1, 2]

        with pytest.raises(Halted, match="second"):
            harness.fail_processing(1, "second")
        assert harness.batches == []


def test_a_commit_that_is_refused_keeps_what_committers_told_once(tmp_path: Path) -> None:
    """A refused COMMIT leaves nothing; done again, its emissions count once."""
    with TopologyHarness(sifted(csv(tmp_path, "b,100\n"))) as harness:
        harness.fail_commit()
        harness.run()

        assert harness.values("announce") == [(1,)]
        assert len(harness.stores.postgres.executed) == 1
        assert [(seen.txid, seen.attempt) for seen in harness.batches] == [(1, 0)]
