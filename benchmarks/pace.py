"""`make bench-pace`: whether the pace holds. What a commit costs after 100, 1,000, 10,000 and 100,000 batches,
alone and in runs of 64, and what a leader's start and the checks of the source cost after that with 1,000,000 counted
files.

    python -m benchmarks.pace [--batches 100000] [--files 10] [--keys 5] [--no-start]

A ratio of CPU seconds of one server process and one thread, of WAL bytes and of buffers is the same on a busy machine.
Writes build/bench_pace.json. The exit code is 1 if something failed or counted wrong, whatever its pace.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import psycopg2
from sqlalchemy import Engine, event

from benchmarks.history import RUN, History, PlannedFile, named_files
from benchmarks.led import WrongResult, hash_of, topology_of
from benchmarks.report import table
from txtopo.committers.postgres.migrate import migrate
from txtopo.config import load_settings
from txtopo.local.services import LocalServices, ServicesState

ROOT = Path(__file__).resolve().parents[1]
NAME = "pace"
MARKS = (100, 1_000, 10_000, 100_000, 1_000_000)
GROUPS = 9
"""Groups of commits that are measured at a mark; the median group counts."""
ALONE = 10
"""Commits of one batch in a group."""
BUFFERS = """
select coalesce(sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read
                    + coalesce(toast_blks_hit + toast_blks_read + tidx_blks_hit + tidx_blks_read, 0)), 0)::bigint
  from pg_statio_user_tables"""
SCANNED = (
    "select coalesce(sum(seq_tup_read), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint from pg_stat_user_tables"
)
SIZES = """
select relname, pg_relation_size(relid), pg_indexes_size(relid) from pg_stat_user_tables
 where schemaname = 'txtopo' or relname like 'pace%' order by 2 desc limit 8"""


class Observer:
    """Reads the counters of the server for one of its sessions."""

    def __init__(self, dsn: str, history: History) -> None:
        self._connection = psycopg2.connect(dsn)
        self._connection.autocommit = True
        self._history = history
        self._statements = 0
        event.listen(Engine, "before_cursor_execute", self._count)

    def close(self) -> None:
        """Stop counting."""
        event.remove(Engine, "before_cursor_execute", self._count)
        self._connection.close()

    def _count(self, *_: object) -> None:
        self._statements += 1

    def ask(self, query: str) -> list[Any]:
        """Return the rows of a query."""
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def server_ns(self) -> int:
        """Return the CPU nanoseconds of the server process of the leader: it has one thread, so one connection."""
        ((pid,),) = self.ask(f"select pid from pg_stat_activity where application_name like 'txtopo/{NAME}%'")
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])

    def counters(self) -> dict[str, int]:
        """Return buffers, rows and statements so far. Waits until the server has added up its own."""
        time.sleep(1.1)
        self._history.ledger.read_fence()
        ((buffers,),), ((scanned, fetched),) = self.ask(BUFFERS), self.ask(SCANNED)
        ((wal,),) = self.ask("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        return {
            "buffers": int(buffers),
            "rows_scanned": int(scanned),
            "rows_fetched": int(fetched),
            "wal_bytes": int(wal),
            "statements": self._statements,
        }

    def sizes(self) -> dict[str, list[int]]:
        """Return the bytes of the largest tables and of their indexes."""
        return {name: [int(heap), int(indexes)] for name, heap, indexes in self.ask(SIZES)}


def measured(history: History, observer: Observer, runs: bool) -> dict[str, float]:
    """Return what a batch costs now, committed alone or in runs: the median of the groups for CPU, the mean for what is
    counted.
    """
    per_group = RUN if runs else ALONE
    items = [history.ready(per_group) for _ in range(GROUPS)]
    before = observer.counters()
    server, client = [], []
    for group in items:
        server_ns, client_ns = observer.server_ns(), time.thread_time_ns()
        if runs:
            history.commit_together(group)
        else:
            for item in group:
                history.commit_alone(item)
        client.append(time.thread_time_ns() - client_ns)
        server.append(observer.server_ns() - server_ns)
    after = observer.counters()
    batches = per_group * GROUPS
    return {
        "server_us": round(median(server) / per_group / 1000, 1),
        "client_us": round(median(client) / per_group / 1000, 1),
        **{name: round((after[name] - before[name]) / batches, 2) for name in before},
    }


def paces(history: History, batches: int, tell: Callable[[str], None], dsn: str) -> list[dict[str, Any]]:
    """Commit `batches`, and measure at each mark on the way."""
    rows: list[dict[str, Any]] = []
    for mark in (mark for mark in MARKS if mark <= batches):
        history.continue_to(mark)
        with contextlib.closing(Observer(dsn, history)) as observer:
            for runs in (False, True):
                row = {"after": mark, "commits": "in runs of 64" if runs else "alone"}
                rows.append({**row, **measured(history, observer, runs)})
                tell(f"{rows[-1]}")
    history.continue_to(batches)
    return rows


def make_files(folder: Path) -> Iterator[PlannedFile]:
    """Make empty files as they are asked for, all in one folder."""
    folder.mkdir()
    number = 0
    while True:
        number += 1
        path = f"{folder}/part_{number:010}.csv"
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        status = os.fstat(descriptor)
        os.close(descriptor)
        yield PlannedFile(path, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def started(dsn: str, zookeeper: str, files: Path, scratch: Path) -> list[dict[str, Any]]:
    """Start a leader over a history, and check its source again; in a separate process, whose memory is its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [json.dumps({"dsn": dsn, "zookeeper": zookeeper, "files": str(files), "scratch": str(scratch)})]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pace_start", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        raise WrongResult(f"the start failed (exit code {done.returncode}): {done.stderr.strip()[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def report(rows: Sequence[dict[str, Any]], starts: Sequence[dict[str, Any]], sizes: dict[str, list[int]]) -> str:
    """Return the report."""
    counted = ("server_us", "client_us", "wal_bytes", "buffers", "rows_fetched", "rows_scanned", "statements")
    lines = [[str(row["after"]), row["commits"], *(f"{row[name]:,.1f}" for name in counted)] for row in rows]
    costs = table(["after", "commits", *counted], lines)
    parts = [f"A batch, by the number of batches before it; CPU in microseconds\n\n{costs}"]
    for commits in dict.fromkeys(row["commits"] for row in rows):
        first, *_, last = [row for row in rows if row["commits"] == commits]
        ratios = ", ".join(f"{name} {last[name] / first[name]:.2f}" for name in counted[:4] if first[name])
        parts.append(f"{commits}, batch {last['after']:,} to batch {first['after']:,}: {ratios}")
    parts += [", ".join(f"{name}: {value}" for name, value in row.items()) for row in starts]
    parts.append("\n".join(f"{name}: {heap:,} bytes, indexes {indexes:,}" for name, (heap, indexes) in sizes.items()))
    return "\n\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pace", allow_abbrev=False)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=10, help="files of a batch")
    parser.add_argument("--keys", type=int, default=5, help="groups that a batch counts")
    parser.add_argument("--no-start", action="store_true", help="measure commits only; no file is made")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="txtopo_pace_") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres has its own account where the caller is root.
        with LocalServices(folder / "services") as services:
            migrate(services.state.dsn)
            done = _measure(asked, folder, services.state)
    build = Path("build")
    build.mkdir(exist_ok=True)
    (build / "bench_pace.json").write_text(json.dumps(done, indent=2) + "\n", encoding="utf-8")
    print(report(done["commits"], done["starts"], done["sizes"]))
    return 0


def _measure(asked: argparse.Namespace, folder: Path, stores: ServicesState) -> dict[str, Any]:
    files = folder / "files"
    topology = topology_of(NAME, files, asked.files)
    flags = {"dsn": stores.dsn, "zookeeper": stores.zookeeper, "once": True, "quiet": True}
    digest = hash_of(topology, load_settings(flags, cwd=folder, environment={}, target=None))
    made = named_files(str(files)) if asked.no_start else make_files(files)
    history = History(stores.dsn, topology, digest, made, asked.files, asked.keys)
    rows = paces(history, asked.batches, tell, stores.dsn)
    with contextlib.closing(Observer(stores.dsn, history)) as observer:
        sizes = observer.sizes()
    history.ledger.close()
    starts = [] if asked.no_start else started(stores.dsn, stores.zookeeper, files, folder)
    return {"commits": rows, "starts": starts, "sizes": sizes}


def tell(words: str) -> None:
    """Progress, with the time, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
