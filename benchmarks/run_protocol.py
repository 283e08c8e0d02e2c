"""What the protocol costs when processing costs nothing: Spark processes the daily files once, then an executor that
answers directly from memory leads again over the same files, with each batch alone and with all in waves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.cases import Job
from benchmarks.inputs import Folder, read_inputs
from benchmarks.led import Led, check_run, hash_of, lead, settings_of, topology_of
from benchmarks.report import percentile
from benchmarks.round_trips import CountingProxy
from txtopo import Topology
from txtopo.app import spark_executor
from txtopo.core.values import Failure, Outcome, Processed, TransactionAttempt
from txtopo.ports import Assignment, Executor, Staging, Tell, tell_nobody

LONE_BATCHES = 120
"""Batches that are planned, processed and committed one after the other."""


class Recorder:
    """An executor that keeps what another one answered, by txid, and afterwards answers the same without it."""

    broken: str | None = None
    one_by_one: str | None = None
    waves_proven = False

    def __init__(self, executor: Executor | None, code_hash: bytes, known: dict[int, Processed]) -> None:
        self._executor = executor
        self._code_hash = code_hash
        self._known = known

    def start(self) -> None:
        """Start the executor that answers."""
        if self._executor is not None:
            self._executor.start()

    def stage_with(self, staging: Staging) -> None:
        """Nothing is so large."""

    def process(self, wave: Sequence[Assignment], tell: Tell = tell_nobody) -> Sequence[Outcome]:
        """Answer from memory, or ask the executor and keep its answers."""
        if self._executor is None:
            outcomes: list[Outcome] = [self._again(one) for one in wave]
            for outcome in outcomes:
                tell(outcome)
            return outcomes
        asked = self._executor.process(wave, tell)
        self._known.update({one.attempt.txid: one for one in asked if isinstance(one, Processed)})
        return asked

    def _again(self, assignment: Assignment) -> Processed:
        known = self._known[assignment.attempt.txid]
        return replace(known, attempt=assignment.attempt, code_hash=self._code_hash)

    def try_over_nothing(self) -> Failure | None:
        """Return None: nothing fails."""
        return None

    def cancel(self, attempt: TransactionAttempt) -> None:
        """Cancel an attempt of the executor that answers."""
        if self._executor is not None:
            self._executor.cancel(attempt)

    def progress(self, attempt: TransactionAttempt) -> int:
        """Return the progress of the executor that answers."""
        return self._executor.progress(attempt) if self._executor is not None else 0

    def close(self) -> None:
        """Close the executor that answers."""
        if self._executor is not None:
            self._executor.close()


def passes(job: Job) -> Iterator[dict[str, Any]]:
    """Yield one row: milliseconds that the protocol adds to a lone batch and to one in a wave, round trips a batch."""
    folder = read_inputs(Path(job.inputs))["days"]
    known: dict[int, Processed] = {}
    topology = topology_of("protocol_spark", folder.path, 1)
    settings = settings_of(job)
    spark = Recorder(spark_executor(topology, hash_of(topology, settings), settings), b"", known)
    spark.start()
    try:
        _led(job, topology, folder, spark)
    finally:
        spark.close()
    first = folder.first(LONE_BATCHES)
    lone = [_from_memory(job, f"protocol_lone_{turn}", first, known, spout_pending_max=1) for turn in (1, 2)][-1]
    wave = [_from_memory(job, f"protocol_wave_{turn}", folder, known) for turn in (1, 2)][-1]
    with CountingProxy(job.dsn) as proxy:
        before = proxy.count()
        _from_memory(job, "protocol_counted", folder, known, dsn=proxy.dsn)
        trips = proxy.count() - before
    yield {
        "lone_batch_ms": _percentiles(steps_ms(lone)),
        "batch_in_a_wave_ms": _percentiles(steps_ms(wave)),
        "round_trips_per_batch": round(trips / folder.files, 3),
    }


def _from_memory(job: Job, name: str, folder: Folder, known: dict[int, Processed], **flags: object) -> Led:
    topology = topology_of(name, folder.path, 1)
    digest = hash_of(topology, settings_of(job))
    return _led(job, topology, folder, Recorder(None, digest, known), **flags)


def _led(job: Job, topology: Topology, folder: Folder, executor: Executor, **flags: object) -> Led:
    led = lead(topology, settings_of(job, **flags), executor)
    check_run(job, topology.name, led, folder.files, folder.counts)
    return led


def steps_ms(led: Led) -> list[float]:
    """Return for each batch the milliseconds since the COMMIT before it; batches of one COMMIT share them equally. The
    first COMMIT is left out: it includes the start of a lead.
    """
    steps = []
    for (before, low), (after, high) in zip(led.known, led.known[1:], strict=False):
        steps += [(after - before) * 1000 / (high - low)] * (high - low)
    return steps


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    return {"p50": round(percentile(values, 50), 3), "p99": round(percentile(values, 99), 3)}
