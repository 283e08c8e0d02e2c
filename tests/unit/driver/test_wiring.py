"""A leader is put together from what both stores said: nothing of it may get lost on the way to planner and machine."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.machines import chain, plan
from txtopo import CountCommitter, TopologyBuilder
from txtopo.committers.memory.memory_ledger import MemoryLedger
from txtopo.coordinators.memory import MemorySession
from txtopo.core.events import Moment, PlansCut, Process, Tick
from txtopo.core.fields import parse_fields
from txtopo.core.machine import step
from txtopo.core.state import Rules, State
from txtopo.core.values import Left
from txtopo.driver.leader_services import LeaderServices
from txtopo.driver.takeover import CandidateIdentity, Leadership, take_lead
from txtopo.driver.wiring import ReadyLeader, candidate_of, make_leader
from txtopo.errors import Halted
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import SerialWorkQueues, SimulatedStores
from txtopo.topology.components import Input, Spout, SpoutContext, SpoutKind, Tally


class Files(Spout):
    """Both halves of a source of files that has nothing new."""

    def __init__(self, kind: SpoutKind) -> None:
        self.fields = parse_fields("word string")
        self.kind = kind
        self.closed = 0

    def open_coordinator(self, context: SpoutContext) -> Any:
        return self

    def inputs(self, metadata: Mapping[str, Any]) -> Sequence[Input]:
        return [Input(path=metadata["file"], fingerprint=b"f")]

    def batch_bytes(self, metadata: Mapping[str, Any]) -> int:
        return 1234

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind}

    def parts(self, metadata: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        return [{}]

    def emit_part(self, metadata: Any, part: Any, tally: Tally) -> Iterator[pa.RecordBatch]:
        return iter(())

    def close(self) -> None:
        self.closed += 1


def led(files: Files, one_by_one: str | None = None, waves_proven: bool = False, **found: Any) -> ReadyLeader:
    """A leader that has just taken the lead, on stores in which that was `found`."""
    builder = TopologyBuilder("t")
    builder.set_spout("s", files)
    builder.set_committer_bolt("c", CountCommitter(table="public.words", keys=["word"])).shuffle_grouping("s")
    topology, stores = builder.build(), SimulatedStores()
    session, ledger = MemorySession(stores.zookeeper), MemoryLedger(stores.postgres, "t")
    identity = CandidateIdentity(
        topology="t",
        owner_nonce=str(uuid.uuid4()),
        new_incarnation=str(uuid.uuid4()),
        code_hash=b"code",
        host="here",
        pid=1,
        application="a.py:t",
        description=topology.describe(),
        epoch_seen=0,
        opaque=files.kind == "opaque",
    )
    election, coordinator = candidate_of(identity, session, since="-")
    election.enter()
    leadership: Leadership = take_lead(identity, election, coordinator, ledger, lambda words: None)
    recent = found.pop("recent", ())
    leadership = replace(leadership, recent=recent, reconciled=replace(leadership.reconciled, **found))
    chance, executor = random.Random(1), InProcessExecutor(topology, b"code")
    executor.one_by_one, executor.waves_proven = one_by_one, waves_proven
    services = LeaderServices(
        topology=topology,
        session=session,
        candidacy=election,
        coordinator=coordinator,
        ledger=ledger,
        executor=executor,
        clock=stores.clock,
        queues=SerialWorkQueues(stores.clock, chance),
        say=lambda words: None,
        chance=chance,
    )
    return make_leader(leadership, services, Rules())


def test_the_machine_begins_where_the_stores_say() -> None:
    """R11: plans that are mirrored are not mirrored again, suspects run alone again, and a row of quarantines goes on
    (W7).
    """
    recent = [Left(5, "a cause"), Left(6, None)]
    leader = led(
        Files("transactional"),
        plans=(first := plan(1), second := plan(2, first.digest)),
        mirrored_txid=2,
        next_attempts={1: 3, 2: 1},
        suspects={1: 0, 2: 1},
        suspects_once=frozenset({2}),
        recent=recent,
    )

    state: State = leader.state
    assert [batch.plan for batch in state.batches.values()] == [first, second]
    assert (state.last_txid, state.mirrored_txid, state.recent) == (0, 2, tuple(recent))
    assert [
        (batch.attempt, batch.suspect, batch.once, batch.runs_alone, batch.source_bytes)
        for batch in state.batches.values()
    ] == [(3, True, False, 0, 1234), (1, True, True, 1, 1234)]
    assert state.last_digest == leader.leadership.last_digest
    assert state.owed == frozenset()


def test_what_an_opaque_topology_had_planned_is_owed_to_its_source() -> None:
    """No run ends before it is committed, and the planner knows what it was."""
    discarded = (plan(1), plan(2))

    leader = led(Files("opaque"), discarded=discarded)

    assert leader.state.owed == {1, 2}
    assert leader.state.rules.opaque
    assert leader.planner.opaque and leader.planner._discarded == {1: discarded[0], 2: discarded[1]}


def test_an_executor_that_shares_no_jobs_is_known_from_the_start() -> None:
    """Else the first batches are planned as a wave that runs one by one."""
    leader = led(Files("transactional"), "a bolt depends on other rows")

    assert leader.state.one_by_one == "a bolt depends on other rows"


def test_an_executor_that_compares_no_first_wave_holds_no_batch_for_it() -> None:
    """Its first wave is as large as any early one, whatever the bytes, and the other workers start at the same time."""
    rules = Rules(workers=2)

    def first_waves(waves_proven: bool) -> list[int]:
        leader = led(Files("transactional"), waves_proven=waves_proven)
        plans = chain(1, 40)
        state, _ = step(replace(leader.state, rules=rules), [Tick(progress={})], Moment(0.0, 0.5))
        cut = PlansCut(plans=plans, exhausted=False, sizes=dict.fromkeys((plan.txid for plan in plans), 1000))
        _, actions = step(state, [cut], Moment(0.0, 0.5))
        return [len(action.attempts) for action in actions if isinstance(action, Process)]

    assert first_waves(True) == [16, 16]
    assert first_waves(False) == [2]


def test_a_leader_that_may_not_begin_closes_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process goes on as a candidate, and a new leader opens them again."""

    def refuse(*_: Any) -> None:
        raise Halted("no such table", next_command="txtopo run")

    monkeypatch.setattr(MemoryLedger, "prepare_targets", refuse)
    files = Files("transactional")

    with pytest.raises(Halted, match="no such table"):
        led(files)
    assert files.closed == 1


def test_a_plan_with_input_of_a_spout_that_is_gone_halts_at_takeover() -> None:
    """What was planned must be emitted: without its spout the batch would be committed without that input."""
    of_another = replace(plan(1), metadata={"gone": {"file": "/1"}})

    with pytest.raises(Halted, match="batch 1 of t is planned with input of spout gone") as halt:
        led(Files("transactional"), plans=(of_another,))

    assert halt.value.txid == 1
    assert (halt.value.next_command or "").startswith("put spout gone back until batch 1 is committed")
