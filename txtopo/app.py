"""Wiring: the only module that knows the concrete stores and the executor, and runs a topology as a driver process."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txtopo.committers.postgres.staging_settings import staging_place
from txtopo.coordinators.ended_processes import new_nonce
from txtopo.core.backoff import backoff_s
from txtopo.core.events import End
from txtopo.core.limits import SUSPECT_RUNS_ALONE_MAX
from txtopo.core.state import Rules
from txtopo.core.values import Fence, Lead
from txtopo.driver.application_names import in_its_folder
from txtopo.driver.console import Reporter
from txtopo.driver.failpoints import arm_from_environment
from txtopo.driver.leader_services import LeaderServices
from txtopo.driver.load_application import code_hash, load_application, needs_spark
from txtopo.driver.run_result import RunResult
from txtopo.driver.signals import StopSignals
from txtopo.driver.system_clock import SystemClock
from txtopo.driver.takeover import CandidateIdentity, Leadership, check_can_run, is_opaque, noting_halts, take_lead
from txtopo.driver.wiring import candidate_of, make_leader, rules_of
from txtopo.driver.work_queues import ThreadWorkQueues
from txtopo.errors import (
    ConfigurationError,
    ExecutorLost,
    Fenced,
    Halted,
    LeadLost,
    PostgresUnavailable,
    StoreUnavailable,
    ZooKeeperUnavailable,
    raise_if_full,
)
from txtopo.operating.last_run import given_by_hand
from txtopo.ports import Executor
from txtopo.topology.components import Topology
from txtopo.topology.ignored_settings import ignored_settings, told_ignored
from txtopo.topology.jvm_work import jvm_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.committers.postgres.ledger import PostgresLedger
    from txtopo.config import Settings
    from txtopo.spark.session.spark_session import SessionOptions

MakeExecutor = Callable[[Topology, bytes, "Settings"], Executor]
ZOOKEEPER_START_S = 15.0
STANDBY_SAYS_EVERY_S = 30.0


def run_application(
    application: str, settings: Settings, *, cut: bool = True, is_wanted: Callable[[], bool] | None = None
) -> int:
    """Load the application and run it on Spark in the foreground (`txtopo run APP`); returns the exit code.

    Without `cut` no new input is planned: the run ends when every planned batch is committed and every open order is
    carried out. `is_wanted`, for a run that waits for the lead, returns True while there is something to do.
    """
    try:
        topology = load_application(application)
    except ConfigurationError as error:
        if not needs_spark(error):
            raise
        return _run_with_early_spark(application, settings, cut, is_wanted)
    return drive(topology, in_its_folder(application), settings, spark_executor, cut=cut, is_wanted=is_wanted)


def _run_with_early_spark(application: str, settings: Settings, cut: bool, is_wanted: Callable[[], bool] | None) -> int:
    """Run an application whose module can only be imported while Spark runs: `@udf("string")` at module level."""
    from txtopo.spark.session.spark_session import start_session, stop_session

    with StopSignals() as signals:
        start_session(session_options(settings, "txtopo"))
        try:
            topology = load_application(application)
            return drive(topology, in_its_folder(application), settings, spark_executor, cut=cut, is_wanted=is_wanted)
        finally:
            with signals.call(lambda: None):
                stop_session()


def drive(
    topology: Topology,
    application: str,
    settings: Settings,
    make_executor: MakeExecutor,
    *,
    cut: bool = True,
    is_wanted: Callable[[], bool] | None = None,
) -> int:
    """Call `drive_to_end` for a command; returns the exit code."""
    return drive_to_end(topology, application, settings, make_executor, cut=cut, is_wanted=is_wanted).exit_code


def drive_to_end(
    topology: Topology,
    application: str,
    settings: Settings,
    make_executor: MakeExecutor,
    *,
    cut: bool = True,
    is_wanted: Callable[[], bool] | None = None,
) -> RunResult:
    """Lead, in one or more candidacies, until the run has an end; returns how it ended. Raises TxtopoError."""
    armed = arm_from_environment()
    check_can_run(topology)
    reporter = Reporter(topology.name, quiet=settings.quiet)
    if armed:
        reporter.say(f"failpoints are armed: {os.environ['TXTOPO_FAILPOINTS']}")
    if ignored := ignored_settings(topology):
        reporter.note(told_ignored(ignored))
    settings = connect_strings(settings.with_topology(topology.config), reporter)
    digest = code_hash(topology, settings.py_files, result_settings())
    with StopSignals() as signals:
        driver = Driver(topology, application, settings, digest, reporter, signals, cut, is_wanted)
        if make_executor is spark_executor:
            from txtopo.spark.session.spark_session import running_session

            own = running_session() is not None
            reporter.note(
                "using the application's own Spark session"
                if own
                else f"starting Spark ({settings.master or 'on this machine'})"
            )
        executor = make_executor(topology, digest, settings)
        for name, tell in (("say", reporter.say), ("note", reporter.note)):
            if hasattr(executor, name):
                setattr(executor, name, tell)
        try:
            executor.start()
            end = driver.run(executor)
        except (MemoryError, OSError, RuntimeError) as error:
            raise_if_full(error)
            raise
        finally:
            with signals.call(lambda: None):  # From here on a signal asks to commit what is in processing.
                executor.close()
                reporter.close()
        return tell_end(end, driver)


def connect_strings(settings: Settings, reporter: Reporter) -> Settings:
    """Return the settings with both stores: those given, or the services that `txtopo dev up` started, whose schema is
    migrated if necessary.
    """
    from txtopo.committers.postgres.connect import check_server, make_engine
    from txtopo.committers.postgres.migrate import migrate, pending_on
    from txtopo.config import LOCAL_SERVICES
    from txtopo.local.services import running_dev

    settings = settings.with_services(running_dev)
    staging_place(settings)  # refused before anything is started
    dsn = str(settings.dsn)
    engine = make_engine(dsn, "txtopo/check")
    is_local = settings.source("dsn") == LOCAL_SERVICES
    try:
        check_server(engine)
        missing = [] if is_local else pending_on(engine)
    finally:
        engine.dispose()
    if is_local:
        reporter.note("using the local services (txtopo dev status)")
        migrate(dsn)
    elif missing:
        raise ConfigurationError(
            f"the database lacks {len(missing)} migrations ({', '.join(missing)}): run `txtopo migrate` first"
        )
    return settings


def result_settings() -> Mapping[str, str]:
    """Return Spark's settings that change results: part of the code hash, which belongs to the attempt (R12)."""
    from txtopo.spark.session.spark_settings import RESULT_SETTINGS

    return RESULT_SETTINGS


def spark_executor(topology: Topology, digest: bytes, settings: Settings) -> Executor:
    """Return the executor of every real run: on the session of this process, or on one that it starts."""
    from txtopo.spark.executor import SparkExecutor
    from txtopo.spark.session.spark_session import running_session

    if (session := running_session()) is not None:
        return executor_on(session, topology, digest, settings)
    options = replace(session_options(settings, f"txtopo {topology.name}"), work=jvm_work(topology))
    return SparkExecutor(topology, digest, options=options, ackers=settings.ackers)


def executor_on(session: SparkSession, topology: Topology, digest: bytes, settings: Settings) -> Executor:
    """Return the executor on a session of the caller, which the executor never stops."""
    from txtopo.spark.executor import SparkExecutor

    return SparkExecutor(topology, digest, session=session, py_files=settings.py_files, ackers=settings.ackers)


def session_options(settings: Settings, name: str) -> SessionOptions:
    """Return the options with which Spark is started for these settings."""
    from txtopo.local.java import java_environment
    from txtopo.spark.session.spark_session import SessionOptions

    os.environ.update(java_environment())
    return SessionOptions(
        master=settings.master,
        conf=settings.conf,
        app_name=name,
        log_folder=log_folder(settings),
        py_files=settings.py_files,
    )


def log_folder(settings: Settings) -> Path:
    """Return the folder for the logs of Spark and txtopo, created if necessary. Raises ConfigurationError."""
    from txtopo.local.services import home

    folder = settings.log_folder or home() / "logs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        words = error.strerror or type(error).__name__
        raise ConfigurationError(f"log folder {folder}: {words}; name another one with --log-folder") from error
    return folder


@dataclass
class Driver:
    """One driver process: candidacies, one after another, until a final end."""

    topology: Topology
    application: str
    settings: Settings
    code_hash: bytes
    reporter: Reporter
    signals: StopSignals
    cut: bool = True
    """True if new input is planned."""
    is_wanted: Callable[[], bool] | None = None
    """For a run that only carries out an order: returns False if nothing is left to do; called before the driver takes
    the lead. None: there is always something to do.
    """
    last_txid: int = 0
    placed: int = 0
    """Number of batches that this run wrote into the ledger."""
    quarantined: int = 0
    """Number of these batches without effect (quarantined)."""
    _counted: tuple[int, int] = (0, 0)
    """Last txid and number of quarantined batches when they were last counted in this lead."""
    _epoch: int = 0
    """Highest epoch that this process held."""
    _lead: Lead | None = None
    """The most recent lead of this process."""
    _stood: bool = False
    """True if this process has been a candidate. Before that, an unreachable store ends the run; afterwards the run
    waits for the store.
    """
    _trouble: int = 0
    """Number of consecutive candidacies that ended because a store was unreachable."""
    _told: str = ""
    _is_doubted: bool = False
    """True if this process lost a lead or a place in the queue. If another driver removed it, because it wrongly took
    this process for ended, that must not happen again: from then on only its session ends its place (R30).
    """

    def run(self, executor: Executor) -> End:
        """Lead until the run has ended. After a lost lead or a lost place in the queue the driver becomes a candidate
        again, unless another driver leads (R16: a leader without Postgres gives up the lead).
        """
        ledger = self._open_ledger()
        try:
            fence = ledger.read_fence()
        except BaseException:
            ledger.close()
            raise
        epoch_seen = 0 if fence is None else fence.epoch
        while True:
            before = self._lead
            try:
                end = self._lead_once(executor, epoch_seen, ledger)
            except (StoreUnavailable, LeadLost) as error:
                if not self._stood:
                    raise
                end = End(kind="lead_lost", reason=str(error))
            if end.kind == "fenced" and self._is_fence_mine():
                reason = f"{end.reason}: no, the fence in Postgres is still this driver's, so something else wrote it"
                end = End(kind="lead_lost", reason=reason)
            if end.kind == "replan" and not self.signals.received:
                self.reporter.note(f"{end.reason}; taking the lead again")
                ledger = self._open_ledger()
                continue
            if end.kind != "lead_lost" or self.signals.received:
                return end
            self._trouble += 1
            self._is_doubted = True
            self._tell(f"{'no lead' if self._lead is before else 'gave up the lead'}: {end.reason}; trying again")
            if self.signals.wait(backoff_s(self._trouble, 1.0)):
                return End(kind="stopped", reason="interrupted")
            self._check_not_replaced()
            epoch_seen = max(epoch_seen, self._epoch)
            ledger = self._open_ledger()

    def _tell(self, words: str) -> None:
        """Report a failure of a store once, not at every repetition."""
        if words != self._told:
            self.reporter.say(words)
        self._told = words

    def _lead_once(self, executor: Executor, epoch_seen: int, ledger: PostgresLedger) -> End:
        """One candidacy on a new ZooKeeper session (Z4: a lock object has one use). Closes the session and the ledger
        (R15).
        """
        from txtopo.coordinators.zookeeper_session import open_session

        try:
            session = open_session(str(self.settings.zookeeper), self.settings.zookeeper_session_s, ZOOKEEPER_START_S)
        except BaseException:
            ledger.close()
            raise
        try:
            identity = self._identity(epoch_seen)
            since = datetime.now(UTC).isoformat(timespec="seconds")
            election, coordinator = candidate_of(identity, session, since)
            with noting_halts(lambda halt: ledger.note_halt(halt)):
                election.enter()
                self._stood = True
                is_my_turn = self._wait_for_turn(election.wait, election.leader, ledger)
            if not is_my_turn:
                waiting = "interrupted while waiting for the lead"
                return End(
                    kind="stopped",
                    reason=waiting if self.signals.received else "another leader has carried out the order",
                )
            leadership = take_lead(identity, election, coordinator, ledger, self.reporter.say)
            self._lead, self._epoch = leadership.lead, leadership.lead.epoch
            with closing(ThreadWorkQueues(self.settings.workers, SUSPECT_RUNS_ALONE_MAX)) as queues:
                services = LeaderServices(
                    topology=self.topology,
                    session=session,
                    candidacy=election,
                    coordinator=coordinator,
                    ledger=ledger,
                    executor=executor,
                    clock=SystemClock(),
                    queues=queues,
                    say=self.reporter.say,
                    watch=self._watch,
                    dead_letter_max=self.settings.dead_letter_max,
                    staging_place=staging_place(self.settings),
                )
                return self._run_lead(leadership, services, rules_of(self.settings, session.session_s))
        finally:
            ledger.close()
            session.close()

    def _run_lead(self, leadership: Leadership, services: LeaderServices, rules: Rules) -> End:
        leader = make_leader(leadership, services, rules, cut=self.cut, by_hand=given_by_hand(self.settings))
        self._counted = (leadership.last_txid, 0)
        try:
            self.reporter.note(
                f"leading with epoch {leadership.lead.epoch}; {leadership.last_txid} batches are committed, "
                f"{len(leadership.reconciled.plans)} planned ones are taken up"
            )
            with self.signals.call(lambda: leader.runner.stop(at_once=True, reason="interrupted")):
                return leader.run()
        finally:
            leader.planner.close()

    def _watch(self, state: Any) -> None:
        if state.last_txid > self.last_txid:
            self.last_txid = state.last_txid
            self._trouble = 0
        last_txid, quarantined = self._counted
        self.placed += state.last_txid - last_txid
        self.quarantined += state.quarantined - quarantined
        self._counted = (state.last_txid, state.quarantined)
        self.reporter.watch(state)

    def _identity(self, epoch_seen: int) -> CandidateIdentity:
        return CandidateIdentity(
            topology=self.topology.name,
            owner_nonce=str(uuid.uuid4()) if self._is_doubted else new_nonce(),
            new_incarnation=str(uuid.uuid4()),
            code_hash=self.code_hash,
            host=socket.gethostname(),
            pid=os.getpid(),
            application=self.application,
            description=self.topology.describe(),
            epoch_seen=epoch_seen,
            opaque=is_opaque(self.topology),
        )

    def _wait_for_turn(
        self, wait: Callable[[float], bool], leader: Callable[[], str | None], ledger: PostgresLedger
    ) -> bool:
        """Wait in the queue for the lead and report who leads; returns False if the run was stopped meanwhile. A driver
        that has to wait closes its connections to Postgres: one may die meanwhile, or its server may have become a
        standby when the lead is taken.
        """
        next_say, is_connected = 0.0, True
        while not wait(0.5):
            if self.signals.received or not self._is_wanted():
                return False
            now = time.monotonic()
            if is_connected:
                ledger.disconnect()
                is_connected = False
            if now >= next_say and (who := leader()) is not None:
                self.reporter.say(f"led by {who}; waiting as standby")
                next_say = now + STANDBY_SAYS_EVERY_S
        return self._is_wanted()

    def _is_wanted(self) -> bool:
        """Return False if another leader has carried out the order: taking the lead would only use up attempts of other
        batches.
        """
        return self.is_wanted is None or self.is_wanted()

    def _open_ledger(self) -> PostgresLedger:
        from txtopo.committers.postgres.ledger import PostgresLedger

        return PostgresLedger(str(self.settings.dsn), self.topology.name)

    def _fence(self) -> Fence | None:
        with closing(self._open_ledger()) as ledger:
            return ledger.read_fence()

    def _epoch_in_fence(self) -> int:
        fence = self._fence()
        return 0 if fence is None else fence.epoch

    def _is_fence_mine(self) -> bool:
        """Return True if, according to Postgres, no other driver has led since. Then no driver wrote the node of
        another leader that is in ZooKeeper.
        """
        try:
            fence = self._fence()
        except StoreUnavailable:
            return False
        mine = self._lead
        return (
            fence is not None
            and mine is not None
            and (fence.epoch, fence.owner_nonce) == (mine.epoch, mine.owner_nonce)
        )

    def _check_not_replaced(self) -> None:
        """Read the fence after an outage of Postgres; raises Fenced if it has the epoch of another driver (R16)."""
        failures = 0
        while not self.signals.received:
            try:
                epoch = self._epoch_in_fence()
            except PostgresUnavailable as error:
                failures += 1
                if failures % 10 == 1:
                    self.reporter.say(f"waiting for Postgres: {error}")
                self.signals.wait(backoff_s(min(failures, 5), 1.0))
                continue
            if self._epoch and epoch > self._epoch:
                raise Fenced(
                    f"{self.topology.name}: another driver has taken the lead (epoch {epoch}, this one had "
                    f"{self._epoch})"
                )
            return


def tell_end(end: End, driver: Driver) -> RunResult:
    """Print and return how the run ended; raises an error for an end that the command line shows as an error."""
    is_asked = driver.signals.received
    match end.kind:
        case "halted":
            raise Halted(end.reason, txid=end.txid, next_command=end.next_command)
        case "fenced":
            raise Fenced(end.reason)
        case "lead_lost" if not is_asked:
            raise ZooKeeperUnavailable(end.reason)
        case "executor_lost" if not is_asked:
            raise ExecutorLost(end.reason)
    driver.reporter.note(f"{end.kind}: {end.reason}; {driver.reporter.summary(driver.last_txid)}")
    return RunResult(
        topology=driver.topology.name,
        ended="finished" if end.kind == "finished" else "stopped",
        reason=end.reason,
        last_txid=driver.last_txid,
        batches=driver.placed - driver.quarantined,
        quarantined=driver.quarantined,
        exit_code=driver.signals.exit_code if is_asked else 0,
    )


__all__ = ["Driver", "drive", "drive_to_end", "run_application", "spark_executor"]
