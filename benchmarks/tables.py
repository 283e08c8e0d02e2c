"""How fast rows of a table are planned and read, next to a bare SELECT and a bare COPY of the same rows, in one run.

    make bench-tables                 # or: python -m benchmarks.tables [THOUSAND_ROWS] [--case table,sql]

Starts a Postgres, fills a table, plans its rows as one batch and reads them as tasks do. Prints rows a CPU second of
the client and of the server, and writes build/bench_tables.json. The bare readers ask once, without a plan: one takes
tuples with psycopg2 and counts them in Python, the other takes CSV by COPY and counts it with Arrow. They promise
nothing.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pyarrow.csv as pcsv

from txtopo import SqlTableSpout, TableSpout
from txtopo.core.plan import Metadata
from txtopo.local.postgres import LocalPostgres
from txtopo.topology.components import Spout, SpoutContext, Tally

ROUNDS = 3
SHOPS = 50
COLUMNS = "shop, pieces, price, sold"
FIELDS = "shop string, pieces int, price decimal(10,2), sold timestamp"
MADE = f"""
create table orders (id bigint generated always as identity primary key, shop text, pieces int, price numeric(10,2),
                     sold timestamptz, written_by xid8 not null default pg_current_xact_id());
create index on orders (written_by, id);
insert into orders ({COLUMNS})
select 'shop ' || n %% {SHOPS}, n %% 1000, (n %% 50000) / 100.0, timestamptz '2024-01-01 00:00Z' + n * interval '1 s'
  from generate_series(1, %s) n;
"""
DSN, URL = "TXTOPO_BENCH_DSN", "TXTOPO_BENCH_URL"
Totals = dict[str, tuple[int, int]]
"""Key -> number of rows, and the sum."""
Step = Callable[[str, int], Totals | None]


def main(arguments: Sequence[str]) -> None:
    """Fill the table, then go through all cases some times and keep the best."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", allow_abbrev=False)
    parser.add_argument("thousands", nargs="?", type=float, default=200.0, help="thousand rows (default: 200)")
    parser.add_argument("--case", help=f"names, separated by commas, of {', '.join(SPOUTS)}")
    asked = parser.parse_args(arguments)
    names = list(SPOUTS) if asked.case is None else asked.case.split(",")
    if unknown := sorted({*names} - {*SPOUTS}):
        parser.error(f"there is no case {', '.join(unknown)}")
    count = int(asked.thousands * 1000)
    with tempfile.TemporaryDirectory(prefix="txtopo_bench_") as folder, LocalPostgres(Path(folder) / "pg") as server:
        os.environ[DSN], os.environ[URL] = server.dsn, server.dsn.replace("postgresql://", "postgresql+psycopg2://")
        with closing(psycopg2.connect(server.dsn)) as connection:
            connection.autocommit = True
            connection.cursor().execute(MADE, (count,))
            connection.cursor().execute("vacuum analyze orders")
        tell(measured(server, names, count), count)


def measured(server: LocalPostgres, names: Sequence[str], count: int) -> dict[str, dict[str, float]]:
    """Return the least CPU seconds of client and server for each step. Raises RuntimeError for different counts."""
    steps: dict[str, Step] = {"bare select": read_select, "bare copy": read_copy}
    for name in names:
        steps |= {f"{name} plan": functools.partial(plan, name), f"{name} read": functools.partial(read, name)}
    best: dict[str, dict[str, float]] = {name: {"client": float("inf"), "server": float("inf")} for name in steps}
    for number in range(ROUNDS):
        totals: list[Totals] = []
        for name, step in steps.items():
            before = {"client": time.process_time(), "server": server_cpu_s(server)}
            found = step(server.dsn, count)
            after = {"client": time.process_time(), "server": server_cpu_s(server)}
            best[name] = {who: min(best[name][who], after[who] - before[who]) for who in before}
            totals += [] if found is None else [found]
        if any(one != totals[0] for one in totals):
            raise RuntimeError("the rows are counted differently")
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
    return best


def server_cpu_s(server: LocalPostgres) -> float:
    """Return the CPU seconds of the server: of its processes that live, and of those that have ended."""
    head = int((server.data / "postmaster.pid").read_text(encoding="ascii").split("\n")[0])
    ticks = sum(_stat(head)[13:15])
    # A backend ends after its client has gone; its time is that of the head's children when the head has noticed.
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (found := _stat(int(folder.name))) and found[3] == head:
            ticks += sum(found[13:15])
    return (ticks + sum(_stat(head)[15:17])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[int]:
    """Return the fields of /proc/PID/stat, the first three as 0; empty if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return []
    return [0, 0, 0, *map(int, text.rpartition(")")[2].split()[1:])]


def read_select(dsn: str, count: int) -> Totals:
    """Take tuples, and count them in Python."""
    totals: Totals = {}
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor(name="bare") as cursor:
        cursor.itersize = 10_000
        cursor.execute(f"select {COLUMNS} from orders")
        for shop, pieces, _, _ in cursor:
            rows, total = totals.get(shop, (0, 0))
            totals[shop] = (rows + 1, total + pieces)
    return totals


def read_copy(dsn: str, count: int) -> Totals:
    """Take CSV, and count it with Arrow."""
    sink = io.BytesIO()
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("set timezone = 'UTC'")
        cursor.copy_expert(f"copy (select {COLUMNS} from orders) to stdout (format csv)", sink)
    types = {"shop": pa.string(), "pieces": pa.int32(), "price": pa.decimal128(10, 2), "sold": pa.string()}
    found = pcsv.read_csv(
        pa.BufferReader(sink.getvalue()),
        read_options=pcsv.ReadOptions(column_names=list(types), use_threads=False),
        convert_options=pcsv.ConvertOptions(column_types=types),
    )
    return counted(found)


def of_table(count: int) -> Spout:
    """Return the spout of the case `table`."""
    return TableSpout("orders", FIELDS, dsn_env=DSN, max_rows=count, max_bytes=1 << 40)


def of_sql(count: int) -> Spout:
    """Return the spout of the case `sql`."""
    return SqlTableSpout("orders", FIELDS, settled_s=0, url_env=URL, max_rows=count, max_bytes=1 << 40)


SPOUTS: dict[str, Callable[[int], Spout]] = {"table": of_table, "sql": of_sql}
_PLANNED: dict[str, Metadata] = {}


def plan(name: str, dsn: str, count: int) -> None:
    """Plan all rows as one batch, as the driver does."""
    coordinator = SPOUTS[name](count).open_coordinator(
        SpoutContext(topology="bench", spout="s", consumed={}, once=True, monotonic=time.monotonic, say=print)
    )
    while not coordinator.is_ready():
        if coordinator.is_exhausted():
            raise RuntimeError("nothing waits")
        time.sleep(0.2)  # The log of the server is not on its disk yet.
    _PLANNED[name] = coordinator.initialize_transaction(1, None)
    coordinator.close()


def read(name: str, dsn: str, count: int) -> Totals:
    """Read the batch as tasks do, one after the other, and count its rows."""
    spout, metadata = SPOUTS[name](count), _PLANNED[name]
    emitted = [
        batch for part in spout.parts(metadata) for batch in spout.emit_part(metadata, part, Tally()) if batch.num_rows
    ]
    found = pa.Table.from_batches(emitted)
    if found.num_rows != count:
        raise RuntimeError(f"{found.num_rows} of {count} rows")
    return counted(found)


def counted(found: Any) -> Totals:
    """Return the totals of a table."""
    grouped = found.group_by("shop").aggregate([("pieces", "sum"), ("pieces", "count")]).to_pylist()
    return {row["shop"]: (row["pieces_count"], row["pieces_sum"]) for row in grouped}


def tell(best: dict[str, dict[str, float]], count: int) -> None:
    """Print the table and write build/bench_tables.json."""
    print(f"{count:,} rows; thousand rows a CPU second, and how many times those of the bare ones")
    print(f"{'step':12} {'client':>8} {'server':>8} {'both':>8} {'select':>8} {'copy':>8}")
    bare = {name: sum(best[f"bare {name}"].values()) for name in ("select", "copy")}
    found = []
    for name, cpu in best.items():
        both = cpu["client"] + cpu["server"]
        row: dict[str, Any] = {
            "step": name,
            **{f"{who}_per_cpu_s": round(count / max(cpu[who], 0.01)) for who in cpu},
            "per_cpu_s": round(count / both),
            **{f"ratio_to_{one}": round(bare[one] / both, 2) for one in bare},
        }
        found.append(row)
        shown = [f"{int(row[key]) / 1000:8.0f}" for key in ("client_per_cpu_s", "server_per_cpu_s", "per_cpu_s")]
        print(f"{name:12} {' '.join(shown)} {row['ratio_to_select']:8} {row['ratio_to_copy']:8}")
    out = Path("build/bench_tables.json")
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"rows": count, "steps": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
