"""TopologyHarness: runs a topology in a test and shows everything it does, without services, and without Spark unless
it has DataFrame bolts.

>>> from txtopo.testing import TopologyHarness                                            # doctest: +SKIP
>>> with TopologyHarness(topology) as harness:                                            # doctest: +SKIP
...     harness.run()
...     harness.emitted("split")
"""

from __future__ import annotations

import random
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from txtopo.committers.memory.memory_applying import MemoryDraft
from txtopo.committers.memory.memory_halves import memory_half
from txtopo.committers.memory.memory_ledger import MemoryLedger
from txtopo.committers.memory.memory_transaction import MemoryTransaction
from txtopo.config import Settings
from txtopo.coordinators.memory import MemorySession
from txtopo.core.events import End
from txtopo.core.health import health_of
from txtopo.core.state import Phase, PoisonPolicy, Rules, State
from txtopo.core.values import DeadLetter, EdgeCount, Failure, FailureKind, RejectedRow, TransactionAttempt
from txtopo.driver.leader_services import LeaderServices
from txtopo.driver.planner import Planner
from txtopo.driver.runner import Runner
from txtopo.driver.takeover import CandidateIdentity, is_opaque, take_lead
from txtopo.driver.wiring import candidate_of, make_leader
from txtopo.errors import ConfigurationError, Halted, TopologyError, TopologyTypeError, unreachable
from txtopo.ports import Executor
from txtopo.testing.by_hand import BACKOFF_S, IDLE_AFTER_S, SOURCE_S, HandWorkQueues, Idle
from txtopo.testing.capturing import Emission, Watched, committed_emissions, forget, with_captures
from txtopo.testing.harness_rules import HarnessRules
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import SimulatedStores
from txtopo.topology.components import Topology
from txtopo.topology.queries import QueryAnswer, find_query
from txtopo.topology.streams import DEFAULT_STREAM
from txtopo.trident.answering import answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE_HASH = b"a topology in a test"
RULES = frozenset(one.name for one in fields(Rules)) - {"workers", "wave_txids_max", "wave_bytes_max"}
"""Settings of a topology that apply in a test too. How many batches run concurrently is decided by the test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSeen:
    """A batch with its final row in the ledger."""

    txid: int
    attempt: int
    state: Literal["applied", "quarantined"]
    read: int
    rejected: int
    dead_lettered: int


class TopologyHarness:
    """A leader of `topology` on memory stores, in simulated time: the real planner, machine, counting and commit
    (Storm's testing harness).

    `run` continues until there is nothing left to do. With `by_hand=True`, the result of each attempt's processing and
    of each commit is held until the test releases it or lets it fail; `spout_pending_max=` sets how many batches may be
    pending. Pass a Spark `session` to run the processing phase on Spark: the results are the same. Batches run one at a
    time unless `waves=True`, and each is committed alone. Settings such as `attempts_max=`, `spout_pending_max=` and
    `on_poison=` are keyword arguments and override the topology's `config`.

    Emissions are recorded by hidden committers, with which every topology runs on tuples. `capture=False` runs the
    topology unchanged: DataFrame bolts share jobs as in production, and `emitted` finds nothing. So that a test with
    endless input ends, `run` raises RuntimeError after `works_max` steps (planning, processing and committing a batch
    are one step each).

    Raises TopologyTypeError if `topology` is not a topology, TopologyError if it has DataFrame bolts and no `session`
    is given, ConfigurationError for an unknown `on_poison`.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        session: SparkSession | None = None,
        by_hand: bool = False,
        waves: bool = False,
        once: bool = True,
        capture: bool = True,
        dead_letter_max: int | None = None,
        works_max: int = 50_000,
        **rules: Unpack[HarnessRules],
    ) -> None:
        if not isinstance(topology, Topology):
            shown = topology.__name__ if isinstance(topology, type) else type(topology).__name__
            raise TopologyTypeError(f"{shown} is not a topology: give the harness what build() returns")
        if topology.frame_bolts and session is None:
            names = ", ".join(bolt.name for bolt in topology.frame_bolts)
            raise TopologyError(f"{names}: DataFrame bolts need Spark; give the harness a session")
        if rules.get("on_poison", "halt") not in get_args(PoisonPolicy):
            raise ConfigurationError(
                f"on_poison must be {' or '.join(get_args(PoisonPolicy))}, not {rules['on_poison']!r}"
            )
        settings = Settings().with_topology(topology.config)
        of_topology = {name: getattr(settings, name) for name in settings.sources if name in RULES}
        chosen: dict[str, Any] = {**of_topology, **rules}
        self.said: list[str] = []
        """Lines that would have been shown to an operator."""
        self.end: End | None = None
        """How the topology ended; None while it is waiting for input or for a release."""
        self.stores = SimulatedStores()
        self._token = uuid.uuid4().hex
        weakref.finalize(self, forget, self._token)
        self._topology, self._reads = with_captures(topology, self._token) if capture else (topology, {})
        self._watched = Watched(_executor(self._topology, session), self._reads)
        self._dead_letter_max = settings.dead_letter_max if dead_letter_max is None else dead_letter_max
        # Whatever may be pending can be held at once.
        workers = max(2, chosen.get("spout_pending_max", 2)) if by_hand else 2
        self._rules = Rules(
            **{"workers": workers, "run_txids_max": 1, **({} if waves else {"wave_bytes_max": 0}), **chosen}
        )
        self._once = once
        self._queues = HandWorkQueues(self.stores.clock, self._idle_after, works_max, self._in_turn)
        self._queues.inbox.holds = by_hand
        self._state: State | None = None
        self._runner: Runner | None = None
        self._planner: Planner | None = None

    def __enter__(self) -> TopologyHarness:
        self._watched.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watched.close()
        if self._planner is not None:
            self._planner.close()

    # ------------------------------------------------------------------------------------------------------------------

    def run(self) -> End | None:
        """Run until the input ends, the topology ends, or only held phases are left. Returns how the topology ended,
        None if it has not.

        Raises Halted, with the text for an operator, if the topology halts; the exception of a component that raises
        outside of a batch; and RuntimeError after `works_max` steps.
        """
        if self.end is None:
            self._queues.works = 0
            runner, state = self._led()
            try:
                self.end = runner.run(state)
            except Idle:
                self._queues.inbox.awake()
        if self.end is not None and self.end.kind == "halted":
            raise Halted(self.end.reason, txid=self.end.txid, next_command=self.end.next_command)
        return self.end

    def release_processing(self, *txids: int) -> None:
        """Release the processing of these batches, in this order, and continue the run. Raises KeyError if the
        processing of a batch is not held.
        """
        for txid in txids:
            self._queues.inbox.release_processing(txid)
            self.run()

    def fail_processing(self, txid: int, message: str = "failed by the test", kind: FailureKind = "data") -> None:
        """Let the held processing of a batch fail instead, and continue the run. Raises KeyError if it is not held."""
        self._queues.inbox.fail_processing(txid, Failure(kind=kind, message=message))
        self.run()

    def release_commit(self, *txids: int) -> None:
        """Release the commits of these batches, in this order, and continue the run. Raises KeyError if the commit of a
        batch is not held.
        """
        for txid in txids:
            self._queues.inbox.release_commit(txid)
            self.run()

    def fail_commit(
        self, txid: int | None = None, message: str = "failed by the test", kind: FailureKind = "data"
    ) -> None:
        """Let the next commit of this batch fail without effect. Kind `data`: as if its rows did not fit the table, so
        that a new attempt is made. Kind `infrastructure`: as if the database were unreachable, so that the same results
        are committed later.

        Without `txid`, the database refuses the next COMMIT. Raises KeyError if the batch is already committed, held or
        not.
        """
        if txid is None:
            self.stores.postgres.fail_next_commit("aborted")
            return
        if txid in self.held_commits or any(batch.txid == txid for batch in self.batches):
            raise KeyError(f"the commit of batch {txid} has happened: let it fail before the batch has its turn")
        self._queues.refused[txid] = Failure(kind=kind, message=message)

    @property
    def held_processing(self) -> Mapping[int, int]:
        """Attempts, by txid, whose processing is done and held."""
        return {txid: event.outcome.attempt.attempt for txid, event in sorted(self._queues.inbox.processing.items())}

    @property
    def held_commits(self) -> Sequence[int]:
        """Txids whose commit is done and held."""
        return sorted(self._queues.inbox.commits)

    # ------------------------------------------------------------------------------------------------------------------

    def emitted(self, component: str, stream: str = DEFAULT_STREAM, txid: int | None = None) -> list[Emission]:
        """Return the emissions of a component in all attempts whose processing succeeded, in the order in which the
        attempts ended; for a committer, in the order of the commits.

        Raises ValueError for a stream that is not declared, so that a misspelt name is not mistaken for no emissions.
        """
        if (component, stream) not in self._reads.values():
            known = sorted(
                {source if name == DEFAULT_STREAM else f"{source}:{name}" for source, name in self._reads.values()}
            )
            raise ValueError(
                f"no emissions of {component!r} on stream {stream!r} are captured; there are "
                f"{', '.join(known) or 'none'}"
            )
        return [
            emission
            for emission in [*self._watched.emissions, *self._committed()]
            if (emission.component, emission.stream) == (component, stream) and txid in (None, emission.txid)
        ]

    def values(self, component: str, stream: str = DEFAULT_STREAM, txid: int | None = None) -> list[tuple[Any, ...]]:
        """Return the values of the emissions of a component, as `emitted` does."""
        return [emission.values for emission in self.emitted(component, stream, txid)]

    def edges(self, txid: int) -> list[EdgeCount]:
        """Return the tuple counts of each edge: in the last attempt of the batch whose processing succeeded, and in its
        commit.
        """
        topology = self.stores.postgres.topologies.get(self._topology.name)
        row = topology.ledger.get(txid) if topology is not None else None
        found = {
            edge.edge: edge for edge in (*(row.edges if row is not None else ()), *self._watched.edges.get(txid, ()))
        }
        return [edge for name, edge in found.items() if "$capture" not in name]

    @property
    def batches(self) -> list[BatchSeen]:
        """All batches with a final row in the ledger, in txid order."""
        if self._runner is None:
            return []
        rows = self.stores.postgres.topologies[self._topology.name].ledger
        return [
            BatchSeen(
                txid=txid,
                attempt=row.attempt,
                state=row.state,
                read=row.read or 0,
                rejected=row.rejected or 0,
                dead_lettered=row.dead_lettered or 0,
            )
            for txid, row in sorted(rows.items())
            if row.state != "genesis"
        ]

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Committed dead letters: records that were removed from their batches because a bolt failed on them."""
        return [kept.row for kept in self.stores.postgres.dead_letters]

    @property
    def rejects(self) -> list[RejectedRow]:
        """Committed rejected rows: records that do not parse under the spout's declared fields."""
        return [kept.row for kept in self.stores.postgres.rejected]

    def table(self, name: str) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
        """Return the rows of a CountCommitter's table: (count, sum, …) by key. Raises KeyError if no committer of this
        topology writes the table.
        """
        schema = name if "." in name else f"public.{name}"
        tables = self.stores.postgres.tables
        if schema not in tables:
            raise KeyError(f"no committer counts into {schema}: there is {', '.join(sorted(tables)) or 'no table'}")
        return dict(tables[schema])

    def query(self, name: str, *values: object, questions: Sequence[Sequence[Any]] = ()) -> QueryAnswer:
        """Ask a query of the topology, as `Topology.query` does, of what is committed now."""
        query = find_query(self._topology, name)
        if query.tables:
            self._led()
        known = self.stores.postgres.topologies.get(self._topology.name)
        fence = None if known is None or not query.tables else known.fence
        attempt = TransactionAttempt(0 if fence is None else fence.last_txid, 0)
        tables = MemoryDraft(self.stores.postgres).rows_of
        rows = answer(
            query,
            [*([values] if values or not questions else []), *questions],
            attempt,
            lambda step: MemoryTransaction(step, attempt, tables=tables),
        )
        return QueryAnswer(
            rows=rows, txid=None if fence is None else fence.last_txid, epoch=None if fence is None else fence.epoch
        )

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a committer's table, or of a view on it (`<table>_windows`, `<table>_sessions`,
        `<table>_distinct`), each as column -> value, also of columns that the server computes (averages, `window_end`),
        in no particular order. Raises KeyError if no committer of this topology writes it.
        """
        shown: dict[str, list[dict[str, Any]]] = {}
        for committer in self._topology.committers:
            shown.update(memory_half(committer).shown(self.stores.postgres, committer))
        if (full := name if "." in name else f"public.{name}") not in shown:
            raise KeyError(f"no committer writes {full}: there is {', '.join(sorted(shown)) or 'no table'}")
        return shown[full]

    # ------------------------------------------------------------------------------------------------------------------

    def _committed(self) -> list[Emission]:
        """Emissions of committers, in commit order."""
        return [
            Emission(attempt=attempt, component=component, stream=stream, task=row[-1], values=row[:-1])
            for name, (component, stream) in self._reads.items()
            for attempt, rows in sorted(committed_emissions(f"{self._token}/{name}").items())
            for row in rows
        ]

    def _led(self) -> tuple[Runner, State]:
        if self._runner is None:
            self._runner, self._state = self._take_lead()
        return self._runner, self._state if self._state is not None else unreachable("a leader has a state")

    def _take_lead(self) -> tuple[Runner, State]:
        topology, clock = self._topology, self.stores.clock
        session = MemorySession(self.stores.zookeeper)
        ledger = MemoryLedger(self.stores.postgres, topology.name)
        nonce = str(uuid.UUID(int=1))
        identity = CandidateIdentity(
            topology=topology.name,
            owner_nonce=nonce,
            new_incarnation=str(uuid.UUID(int=2)),
            code_hash=CODE_HASH,
            host="test",
            pid=1,
            application="test",
            description=topology.describe(),
            epoch_seen=1 << 60,
            opaque=is_opaque(topology),
        )
        election, coordinator = candidate_of(identity, session, since="-")
        election.enter()
        leadership = take_lead(identity, election, coordinator, ledger, self.said.append)
        services = LeaderServices(
            topology=topology,
            session=session,
            candidacy=election,
            coordinator=coordinator,
            ledger=ledger,
            executor=self._watched,
            clock=clock,
            queues=self._queues,
            say=self.said.append,
            watch=self._keep,
            chance=random.Random(0),
            dead_letter_max=self._dead_letter_max,
        )
        rules = replace(self._rules, once=self._once)
        leader = make_leader(leadership, services, rules)
        self._planner = leader.planner
        return leader.runner, leader.state

    def _in_turn(self) -> int | None:
        state = self._state
        return None if state is None or state.unresolved else state.last_txid + 1

    def _keep(self, state: State) -> None:
        self._state = state

    def _idle_after(self) -> float:
        if self._state is not None and self._once and self._state.source_away_since is not None:
            return SOURCE_S
        return BACKOFF_S if self._retries_due() else IDLE_AFTER_S

    def _retries_due(self) -> bool:
        if self._state is None or health_of(self._state, self.stores.clock.monotonic()).state == "stalled":
            return False
        held = self._queues.inbox.processing.keys() | self._queues.inbox.commits.keys()
        again = (
            batch
            for txid, batch in self._state.batches.items()
            if batch.phase is Phase.PLANNED and batch.last_failure is not None and txid not in held
        )
        return self._state.commit_failures > 0 or any(batch.not_before != float("inf") for batch in again)


def _executor(topology: Topology, session: SparkSession | None) -> Executor:
    if session is None:
        return InProcessExecutor(topology, CODE_HASH)
    from txtopo.spark.executor import SparkExecutor

    return SparkExecutor(topology, CODE_HASH, session=session)
