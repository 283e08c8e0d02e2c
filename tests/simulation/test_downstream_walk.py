"""The real driver code with bolts downstream of committers: killed anywhere, with bolts that fail in the turn, no
number is lost and none is counted twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.kit.nemesis import Nemesis
from tests.kit.opaque import TOPOLOGY, OpaqueNumbers, check_numbers
from tests.kit.seeds import seeds
from tests.simulation.test_faulty_stores import LIVES_MAX
from txtopo import CountCommitter, Topology, TopologyBuilder
from txtopo.bolts import BasicBolt, BatchCommitter, CommitCollector, CommitTransaction, Tuple
from txtopo.core.crash_points import CrashPoint
from txtopo.core.state import Rules
from txtopo.errors import Fenced, LeadLost, StoreUnavailable
from txtopo.testing.simulated import KillAt, Killed, SimulatedDriver, SimulatedStores

COUNT = 30
BUCKETS = 4
SEEDS = seeds(8)
RULES = Rules(workers=3, attempts_max=1000, spout_pending_max=6)

fails: Callable[[int], bool] = lambda n: False  # noqa: E731
"""Does the bolt downstream of the first committer fail on this number?"""


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], bool]], None]:
    """Sets when the bolt fails."""
    return lambda when: monkeypatch.setitem(globals(), "fails", when)


class Keep(BatchCommitter):
    """Keeps each number, and passes it on."""

    outputs = ["n bigint"]

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for row in rows:
            transaction.execute("insert into kept values (%s)", row.values)
            collector.emit(row.values)


class Bucketize(BasicBolt):
    """Which bucket a number belongs to."""

    outputs = ["bucket bigint", "n bigint"]

    def execute(self, tup: Tuple, collector: Any) -> None:
        if fails(tup["n"]):
            raise ValueError("no bucket")
        collector.emit([tup["n"] % BUCKETS, tup["n"]])


class KeepBucket(Keep):
    """Of the next phase."""

    outputs = ["bucket bigint"]

    def commit(self, transaction: CommitTransaction, rows: Sequence[Tuple], collector: CommitCollector) -> None:
        for row in rows:
            collector.emit([row["bucket"]])


def topology(count: int, chance: random.Random) -> Topology:
    """Numbers, counted in the turn in two phases: the numbers in the first, their buckets in the second."""
    builder = TopologyBuilder(TOPOLOGY)
    builder.set_spout("numbers", OpaqueNumbers(count, chance))
    builder.set_committer_bolt("keep", Keep()).shuffle_grouping("numbers")
    builder.set_bolt("bucketize", Bucketize(), parallelism_hint=2).fields_grouping("keep", ["n"])
    numbers = CountCommitter("public.numbers", ["n"], count="rows")
    builder.set_committer_bolt("totals", numbers).fields_grouping("bucketize", ["n"])
    builder.set_committer_bolt("bucket", KeepBucket()).fields_grouping("bucketize", ["bucket"])
    buckets = CountCommitter("public.buckets", ["bucket"], count="rows")
    builder.set_committer_bolt("buckets", buckets).fields_grouping("bucket", ["bucket"])
    return builder.build()


def _kept(stores: SimulatedStores) -> list[Any]:
    return [next(iter(one.parameters)) for one in stores.postgres.executed]


def check(stores: SimulatedStores, count: int, missing: Sequence[int] = ()) -> None:
    """Each number once, in both phases and with the statements of the committer upstream."""
    check_numbers(stores, count, missing)
    there = [n for n in range(count) if n not in missing]
    assert sorted(_kept(stores)) == there
    buckets = {int(key[0]): int(values[0]) for key, values in stores.postgres.tables["public.buckets"].items()}
    assert buckets == {bucket: len([n for n in there if n % BUCKETS == bucket]) for bucket in range(BUCKETS)}


def test_every_step_can_be_the_last_of_its_driver(failing: Callable[[Any], None]) -> None:
    """Between two committers of one turn as well: nothing of the batch stays, and the next driver makes it anew."""
    reached: set[CrashPoint] = set()
    for nth in range(1, 1000):
        stores, chance = SimulatedStores(), random.Random(nth)
        made = topology(7, chance)
        failing(lambda n, chance=chance: chance.random() < 0.05)
        with KillAt(nth) as kill:
            try:
                SimulatedDriver(topology=made, stores=stores, seed=7, rules=RULES).run()
            except Killed:
                pass
        if kill.killed_at is None:
            break
        reached.add(kill.killed_at)

        end = SimulatedDriver(topology=made, stores=stores, seed=8, rules=RULES).run()
        assert end.kind == "finished", end
        check(stores, 7)
    assert reached >= {CrashPoint.LEDGER_APPENDED, CrashPoint.APPLIED, CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED}


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_of_the_stores_and_of_bolts_in_the_turn_lose_and_repeat_nothing(
    seed: int, failing: Callable[[Any], None]
) -> None:
    """Drivers that die, commits without an answer, lost sessions, and a bolt that fails in the turn now and then."""
    stores, chance = SimulatedStores(), random.Random(seed)
    made, faults = topology(COUNT, chance), 6
    failing(lambda n: chance.random() < 0.05)
    for life in range(LIVES_MAX):
        driver = SimulatedDriver(topology=made, stores=stores, seed=seed * 1000 + life, rules=RULES)
        driver.watch = nemesis = Nemesis(stores, driver, chance, faults)
        with KillAt(1 + (seed * 7919 + life * 104729) % 400 if life < 4 else 10**9):
            try:
                end = driver.run()
                if end.kind == "finished":
                    break
                assert end.kind == "lead_lost", end
            except (StoreUnavailable, LeadLost, Fenced, Killed):
                pass
        faults = nemesis.left
        nemesis.heal()
        stores.postgres.take_failure()
        if driver.session is not None:
            # A driver that was killed while its connection was cut left its place in the queue until its session ends.
            stores.zookeeper.expire(driver.session)
    else:
        raise AssertionError(f"not finished after {LIVES_MAX} candidacies")
    check(stores, COUNT)


@pytest.mark.parametrize("on_poison", ["halt", "dead_letter_rows"])
def test_a_batch_that_fails_in_its_turn_for_good_halts_and_goes_on_once_the_bolt_is_fixed(
    on_poison: Any, failing: Callable[[Any], None]
) -> None:
    """A source tuple cannot be taken out for what fails downstream of a committer, which has seen it: so no run without
    it is tried.
    """
    stores, made = SimulatedStores(), topology(12, random.Random(1))
    rules = Rules(workers=3, attempts_max=2, on_poison=on_poison)
    failing(lambda n: n == 7)

    end = SimulatedDriver(topology=made, stores=stores, rules=rules).run()

    assert end.kind == "halted"
    assert "2 attempts failed in bucketize" in end.reason and "ValueError: no bucket" in end.reason
    assert "tuple" in end.reason and "keep in this batch" in end.reason
    assert 7 not in _kept(stores)
    failing(lambda n: False)
    assert SimulatedDriver(topology=made, stores=stores, seed=2, rules=rules).run().kind == "finished"
    check(stores, 12)


def test_a_bolt_that_ends_the_driver_in_its_turn_is_no_endless_loop(failing: Callable[[Any], None]) -> None:
    """It runs in the driver, so it takes the driver with it: the next ones find the attempt without an end, and after
    three halt at its batch.
    """
    stores, made, lives = SimulatedStores(), topology(12, random.Random(1)), 0

    def end(n: int) -> bool:
        if n == 7:
            raise Killed
        return False

    failing(end)
    while True:
        lives += 1
        try:
            found = SimulatedDriver(topology=made, stores=stores, seed=lives).run()
            break
        except Killed:
            assert lives < 10
    assert found.kind == "halted" and "no verdict from 3 attempts that ran alone" in found.reason
    failing(lambda n: False)
    stores.postgres.ask(TOPOLOGY, "retry", (max(stores.postgres.topologies[TOPOLOGY].ledger) + 1,), "because")
    assert SimulatedDriver(topology=made, stores=stores, seed=99).run().kind == "finished"
    check(stores, 12)


def test_a_batch_that_was_left_out_over_its_turn_comes_back_once_and_is_never_recomputed(
    failing: Callable[[Any], None],
) -> None:
    """What a custom committer wrote cannot be taken back: a recompute is refused, in words, and changes nothing."""
    stores, made = SimulatedStores(), topology(12, random.Random(1))
    rules = Rules(workers=3, attempts_max=2, on_poison="quarantine_batch")
    failing(lambda n: n == 7)
    assert SimulatedDriver(topology=made, stores=stores, rules=rules).run().kind == "finished"
    ledger = stores.postgres.topologies[TOPOLOGY].ledger
    (left,) = [txid for txid, row in ledger.items() if row.state == "quarantined"]
    failing(lambda n: False)

    for kind in ("recompute", "redrive", "redrive", "recompute"):
        order = stores.postgres.ask(TOPOLOGY, kind, (1 if kind == "recompute" else left,), "because")
        assert SimulatedDriver(topology=made, stores=stores, rules=rules, cut=False).run().kind == "stopped"
        row = stores.postgres.orders[order][1]
        assert row.state == ("refused" if kind == "recompute" else "done"), row
        if kind == "recompute":
            assert row.answer is not None and "keep" in row.answer

    check(stores, 12)
    assert [row.redo_of for row in ledger.values() if row.redo_of is not None] == [left]
