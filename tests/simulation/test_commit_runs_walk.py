"""Commit runs in simulated time: drivers that die in them, stores that fail in them, a batch that fails in them, and
orders that come meanwhile. I13 to I16 hold, and the counts are right.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.orders import Totals, recount, write_orders
from tests.kit.seeds import seeds
from txtopo.committers.memory.memory_session import MemoryLedgerSession
from txtopo.core import crash_points
from txtopo.core.crash_points import CrashPoint
from txtopo.core.plan import Plan
from txtopo.core.state import Phase, Rules, State
from txtopo.driver.planner import Planner
from txtopo.driver.spout_coordinators import Settled
from txtopo.errors import (
    BatchDataError,
    Fenced,
    Halted,
    InvariantBroken,
    LeadLost,
    PostgresUnavailable,
    StoreUnavailable,
)
from txtopo.testing.simulated import Killed, SimulatedDriver, SimulatedStores

FILES = 10
LIVES_MAX = 40
SEEDS = seeds(10)
IN_COMMIT = (
    CrashPoint.FENCE_LOCKED,
    CrashPoint.LEDGER_APPENDED,
    CrashPoint.APPLIED,
    CrashPoint.RUN_FINISHED,
    CrashPoint.BEFORE_COMMIT,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "orders"
    write_orders(path, FILES, rows=3)
    return path


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    yield
    crash_points.listen(None)


@dataclass
class World:
    """Stores, what happens to their drivers, and what anybody was told."""

    folder: Path
    seed: int
    poison: int | None = None
    """Its rows do not fit the table: whenever they are applied, in a run or alone, but not while something is tried on
    rows that are known to be good.
    """
    faults: int = 5
    orders: int = 2
    stores: SimulatedStores = field(default_factory=SimulatedStores)
    seen: Counter[str] = field(default_factory=Counter)
    ordered: set[int] = field(default_factory=set)
    told: list[tuple[int, str | None]] = field(default_factory=list)
    _appended: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def reached(self, point: CrashPoint, txid: int | None) -> None:
        """Now and then a driver dies here, or the server refuses; always if the batch does not fit."""
        if point is CrashPoint.FENCE_LOCKED:
            self._appended = 0
        self._appended += point is CrashPoint.LEDGER_APPENDED
        if point is CrashPoint.APPLIED and txid == self.poison and self._appended:
            self.seen["poison in a run" if self._appended > 1 else "poison alone"] += 1
            raise BatchDataError("committer totals: does not fit", component="totals")
        if point is CrashPoint.COMMITTED and self._appended > 1:
            self.seen["committed in a run"] += 1
        likely = 0.3 if point is CrashPoint.RUN_FINISHED else 0.1 if self._appended > 1 else 0.03
        if not self.faults or self.chance.random() > likely:
            return
        self.faults -= 1
        kind = self.chance.choice(["die", "die", "die", "refuse", "refuse", "lost", "aborted"])
        self.seen[f"{kind} at {point.value}"] += 1
        if kind == "die":
            raise Killed(point.value)
        if kind in ("lost", "aborted"):
            self.stores.postgres.fail_next_commit("lost" if kind == "lost" else "aborted")
        elif point in IN_COMMIT and self._appended > 1:
            raise self.chance.choice(
                [
                    PostgresUnavailable("deadlock detected (SQLSTATE 40P01)"),
                    BatchDataError("committer totals: a mistake in a run", component="totals"),
                    Halted("the ledger refuses: a mistake in a run"),
                    InvariantBroken("a mistake in a run"),
                    ValueError("a mistake in a run"),
                ]
            )

    def watch(self, state: State) -> None:
        """Look at the machine after each step; now and then an operator gives an order."""
        committing = [txid for txid, batch in state.batches.items() if batch.phase is Phase.COMMITTING]
        assert committing == list(range(state.last_txid + 1, state.last_txid + 1 + len(committing)))
        assert state.held_bytes == sum(
            batch.processed.bytes for batch in state.batches.values() if batch.processed is not None
        )
        if state.unresolved is not None and state.unresolved[1] > state.unresolved[0]:
            self.seen["unknown run"] += 1
        if self.orders and state.batches and self.chance.random() < 0.02:
            self.orders -= 1
            txid = self.chance.choice(sorted(state.batches))
            self.seen[f"order while {state.batches[txid].phase.value}"] += 1
            self.ordered.add(txid)
            self.stores.postgres.ask("orders", "skip", (txid,), "bad")

    def tell(self, plan: Plan, state: Settled | None) -> None:
        """I15: who is told of a batch finds it in the ledger."""
        row = self.stores.postgres.topologies["orders"].ledger.get(plan.txid)
        assert row is not None, f"batch {plan.txid} was told, and is not committed"
        assert state in (None, row.state)
        self.told.append((plan.txid, state))

    def drive(self) -> str:
        """One driver after the other, until the input is at its end; returns how the last one ended."""
        for life in range(LIVES_MAX):
            self.told.clear()
            driver = SimulatedDriver(
                topology=orders_topology(self.folder),
                stores=self.stores,
                seed=self.seed * 1000 + life,
                rules=Rules(workers=4, attempts_max=2, on_poison="quarantine_batch", spout_pending_max=12),
                watch=self.watch,
            )
            crash_points.listen(self.reached)
            try:
                kind: str = driver.run().kind
            except (Killed, StoreUnavailable, LeadLost, Fenced):
                kind = "dead"
            finally:
                crash_points.listen(None)
                self.stores.postgres.take_failure()
            txids = [txid for txid, _ in self.told]
            assert txids == sorted(set(txids)), "told out of order, or twice"
            if kind not in ("dead", "lead_lost"):
                return kind
        raise AssertionError(f"not finished after {LIVES_MAX} drivers")

    def check(self) -> None:
        """I1, I2, I4, I5, I6, I13, I14 and I16 on what is left."""
        rows = self.stores.postgres.topologies["orders"].ledger
        assert list(rows) == list(range(FILES + 1))  # I2, I13: in the order in which they became final
        epochs = [row.epoch for row in rows.values()]
        assert epochs == sorted(epochs)
        quarantined = {txid for txid, row in rows.items() if row.state == "quarantined"}
        self.seen["skipped"] += bool(quarantined - {self.poison})
        assert quarantined <= self.ordered | {self.poison}  # I14
        assert self.poison is None or self.poison in quarantined
        assert self.totals == self.recount(quarantined)
        for _, order in self.stores.postgres.orders.values():  # I16
            if order.state == "open":
                continue
            for txid in order.txids:
                words = order.answer or ""
                is_left_out = f"batch {txid} is quarantined" in words
                assert is_left_out == (txid in quarantined and order.state == "done"), (txid, words)
                if "committed before" in words or "in the ledger" in words:
                    assert txid not in quarantined or "in the ledger" in words

    @property
    def totals(self) -> Totals:
        """As a reader sees them."""
        return {
            (None if k[0] is None else str(k[0]), str(k[1])): (int(v[0]), Decimal(v[1]), Decimal(v[2]))
            for k, v in self.stores.postgres.tables["public.order_totals"].items()
        }

    def recount(self, without: set[int]) -> Totals:
        """Of the files of all batches but these."""
        left = self.folder.parent / f"left-{self.seed}-{self.poison}"
        left.mkdir()
        for txid in range(1, FILES + 1):
            if txid not in without:
                shutil.copy(self.folder / f"order_{txid:04}.csv", left)
        return recount(left)


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> list[World]:
    """The worlds whose spouts want to be told."""
    worlds: list[World] = []
    monkeypatch.setattr(Planner, "wants_settled", property(lambda _: True))
    monkeypatch.setattr(Planner, "settled", lambda _, plan, state: worlds[-1].tell(plan, state))
    return worlds


@pytest.mark.parametrize("seed", SEEDS)
def test_deaths_and_faults_in_runs_lose_nothing_and_blame_nobody(folder: Path, seed: int, telling: list[World]) -> None:
    """Whatever happens in a run, afterwards the counts are right, and only who is at fault is left out."""
    world = World(folder, seed, poison=1 + seed % FILES if seed % 3 == 0 else None)
    telling.append(world)

    assert world.drive() == "finished"
    world.check()


def test_the_walk_gets_to_what_it_is_about(folder: Path, telling: list[World]) -> None:
    """Runs are committed, fail, are unknown and are died in at each point, and orders come while they are under way."""
    seen: Counter[str] = Counter()
    for seed in range(30):
        world = World(folder, 100_000 + seed, poison=1 + seed % FILES if seed % 3 == 0 else None)
        telling.append(world)
        assert world.drive() == "finished"
        world.check()
        seen += world.seen

    expected = {f"die at {point.value}" for point in IN_COMMIT} | {"refuse at applied", "refuse at run_finished"}
    expected |= {
        "committed in a run",
        "unknown run",
        "order while committing",
        "poison in a run",
        "poison alone",
        "skipped",
    }
    assert expected - set(seen) == set()


def test_a_run_applies_each_committer_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: the runs of the walk are runs: most batches share a database transaction."""
    sizes: list[int] = []
    append_run = MemoryLedgerSession.append_run

    def counted(session: MemoryLedgerSession, entries: list[object]) -> None:
        sizes.append(len(entries))
        append_run(session, entries)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryLedgerSession, "append_run", counted)
    world = World(folder, 1, faults=0, orders=0)

    assert world.drive() == "finished"
    assert min(sizes) > 1
    assert sum(sizes) > FILES // 2
