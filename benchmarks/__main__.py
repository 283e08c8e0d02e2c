"""`make bench`: starts the stores, measures each case and system in a separate process, prints ratios and targets,
and writes build/bench.json.

    python -m benchmarks [--case daily-1,words-tuple] [--passes 3] [--peers] [--days 365] [--copies 30] [--words 5]

The exit code is 1 if anything counted wrong or failed, whatever its speed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.cases import PASSES, TXTOPO, Case, Job, wanted
from benchmarks.inputs import write_inputs
from benchmarks.one import PROTOCOL
from benchmarks.peers import missing
from txtopo.committers.postgres.migrate import migrate
from txtopo.local.services import LocalServices, ServicesState

ROOT = Path(__file__).resolve().parents[1]
JOB_S_MAX = 1800.0
"""A process that takes longer is killed, and has failed."""


def main(arguments: Sequence[str]) -> int:
    """Measure what is asked for; returns the exit code."""
    asked = options(arguments)
    rows: list[dict[str, Any]] = []
    more: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="txtopo_bench_") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres has its own account where the caller is root.
        tell("writing the input")
        inputs = folder / "inputs"
        inputs.mkdir()
        write_inputs(inputs, asked.days, asked.copies)
        with LocalServices(folder / "services") as services:
            migrate(services.state.dsn)
            for job in jobs(asked, folder, services.state):
                if why := missing(job.peer):
                    tell(f"SKIPPED {job.case} of {job.peer}: {why}")
                    continue
                try:
                    for row in measured(job):
                        if job.case == PROTOCOL:
                            more[PROTOCOL] = row
                        else:
                            rows.append(row)
                except ChildProcessError as error:
                    failed.append(str(error))
                    tell(f"FAILED: {error}")
            if asked.whole:
                more |= takeover(failed)
    write(rows, more)
    print(report.whole(rows, more.get(PROTOCOL), more.get("takeover"), PASSES))
    for words in failed:
        print(f"FAILED: {words}")
    return 1 if failed or not (rows or more) else 0


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. Exits with 2 for words that it does not know."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", allow_abbrev=False)
    parser.add_argument("--case", help="names, separated by commas; by default all, and what the protocol costs")
    parser.add_argument("--passes", type=int, default=PASSES, help="passes of each process")
    parser.add_argument("--peers", action="store_true", help="also Storm and Pathway")
    parser.add_argument("--days", type=int, default=365, help="daily files")
    parser.add_argument("--copies", type=int, default=30, help="files of the backlog, each with the rows of all days")
    parser.add_argument("--words", type=float, default=5.0, help="million words")
    asked = parser.parse_args(arguments)
    asked.whole = not asked.case
    asked.protocol = asked.whole or PROTOCOL in asked.case.split(",")
    names = [name for name in (asked.case or "").split(",") if name and name != PROTOCOL]
    try:
        asked.cases = wanted(",".join(names)) if names or asked.whole else ()
    except ValueError as error:
        parser.error(f"{error}, {PROTOCOL}")
    return asked


def jobs(asked: argparse.Namespace, folder: Path, stores: ServicesState) -> Iterator[Job]:
    """Yield the processes to run, one after the other: all systems of a case, then the next case."""
    cases: list[tuple[str, str]] = [
        (case.name, peer) for case in asked.cases for peer in systems(case, with_more=asked.peers)
    ]
    for case, peer in [*cases, *([(PROTOCOL, TXTOPO)] if asked.protocol else [])]:
        yield Job(
            case=case,
            peer=peer,
            passes=asked.passes,
            inputs=str(folder / "inputs"),
            scratch=str(folder / "scratch"),
            words=int(asked.words * 1e6),
            dsn=stores.dsn,
            zookeeper=stores.zookeeper,
            postgres_pid=stores.postgres_pid,
            zookeeper_pid=stores.zookeeper_pid,
        )


def systems(case: Case, *, with_more: bool) -> tuple[str, ...]:
    """Return the systems that a case is measured with."""
    return case.peers + (case.more_peers if with_more else ())


def measured(job: Job) -> Iterator[dict[str, Any]]:
    """Run a job in a separate process, and yield its passes as they end. Raises ChildProcessError if it fails: also
    for a wrong count.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "benchmarks.one", job.as_json()]
    log = job.folder / "errors.log"
    with (
        log.open("w", encoding="utf-8") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=ROOT, start_new_session=True
        ) as process,
    ):
        late = threading.Timer(JOB_S_MAX, _end, [process.pid])
        late.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.startswith("{"):
                    continue
                row = json.loads(line)
                if "rows_per_s" in row:
                    tell(f"{row['case']}, {row['peer']}, pass {row['pass']}: {row['rows_per_s']:,} rows/s")
                yield row
            process.wait()
        finally:
            late.cancel()
            _end(process.pid)
    if process.returncode:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise ChildProcessError(f"{job.case} of {job.peer} (exit code {process.returncode}): {' | '.join(said[-3:])}")


def _end(group: int) -> None:
    """End a job with everything that it started: the JVM of a killed process would continue."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def takeover(failed: list[str]) -> dict[str, dict[str, Any]]:
    """Run benchmarks/takeover.py, which measures how long a standby takes to commit after a leader's death."""
    tell("takeovers")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.takeover"], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    if done.returncode:
        failed.append(f"takeovers (exit code {done.returncode}): {' | '.join(done.stderr.strip().splitlines()[-3:])}")
        return {}
    return {"takeover": json.loads(done.stdout.strip().splitlines()[-1])}


def write(rows: Sequence[dict[str, Any]], more: dict[str, dict[str, Any]]) -> None:
    """Write the rows to build/bench.json, and what has no passes to build/bench_more.json."""
    build = Path("build")
    build.mkdir(exist_ok=True)
    (build / "bench.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    (build / "bench_more.json").write_text(json.dumps(more, indent=2) + "\n", encoding="utf-8")


def tell(words: str) -> None:
    """Progress, with the time, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
