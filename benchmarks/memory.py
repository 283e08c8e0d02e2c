"""How much memory a large file takes, next to a small one with the same rows again and again.

    make bench-memory                 # or: python -m benchmarks.memory [MEGABYTES …] [--format csv,csv.gz]

A separate process for each file writes it, plans it as one batch, and processes that batch; megabytes are
those that are parsed, also for a compressed file, which is a single archive. Prints the largest memory that the
driver, its JVM and all its Python workers together had, and writes build/bench_memory.json. The memory should not grow
with the file. A wrong count fails the benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.formats import plan_of
from benchmarks.processes import peak_memory_mib
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.core.values import Processed, TransactionAttempt
from txtopo.local.java import java_environment
from txtopo.ports import Assignment
from txtopo.topology.components import Topology

MEGABYTES = (200, 2000)
KINDS = ("csv", "csv.gz")
HEADER = b"carrier,origin,distance,note\n"
BLOCK_ROWS = 200_000
SAMPLE_S = 0.5
Totals = dict[tuple[str, str], tuple[int, int]]
"""Key -> number of rows, and the sum."""


def main(arguments: Sequence[str]) -> None:
    """Measure each file in a separate process, and compare it with the first one of its format."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", allow_abbrev=False)
    parser.add_argument("megabytes", nargs="*", type=int, help="sizes (default: 200 2000); 20000 takes a long time")
    parser.add_argument("--format", default=",".join(KINDS), help=f"of {', '.join(KINDS)}, separated by commas")
    parser.add_argument("--folder", help="where the files are written, one at a time (default: the temporary folder)")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    sizes, kinds = asked.megabytes or list(MEGABYTES), asked.format.split(",")
    if unknown := sorted({*kinds} - {*KINDS}):
        parser.error(f"there is no format {', '.join(unknown)}")
    if asked.alone:
        print(json.dumps(measured(kinds[0], sizes[0], asked.folder)))
        return
    found = []
    for kind in kinds:
        for size in sizes:
            command = [sys.executable, "-m", "benchmarks.memory", str(size), "--format", kind, "--alone"]
            where = ["--folder", asked.folder] if asked.folder else []
            done = subprocess.run([*command, *where], stdout=subprocess.PIPE, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
    tell(found)


def measured(kind: str, megabytes: int, folder: str | None = None) -> dict[str, Any]:
    """Return the figures of one file; the memory is that of this process and its children."""
    from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session

    os.environ.update(java_environment())
    with tempfile.TemporaryDirectory(prefix="txtopo_bench_", dir=folder) as inside:
        expected = write_file(Path(inside) / f"in.{kind}", megabytes * 1_000_000)
        spout = FileSpout(f"{inside}/in.*", "carrier string, origin string, distance int", settled_s=0)
        spark = start_session(SessionOptions(app_name="bench", log_folder=Path(inside)))
        try:
            with peaks() as peak:
                began = time.perf_counter()
                metadata = plan_of(spout)
                plan_s = time.perf_counter() - began
                process_s, found = processed(spark, spout, metadata)
        finally:
            stop_session()
    rows = sum(number for number, _ in expected.values())
    if found != expected:
        raise RuntimeError(f"{kind}: the rows are counted differently")
    return {
        "case": kind,
        "megabytes": megabytes,
        "rows": rows,
        "plan_s": round(plan_s, 1),
        "process_s": round(process_s, 1),
        "peak_memory_mib": peak,
    }


def write_file(path: Path, size: int) -> Totals:
    """Write a file of about `size` bytes, before it is compressed; return what is in it."""
    chance = random.Random(1)
    rows = [
        (chance.choice(("AA", "UA", "DL", "WN")), chance.choice(("EWR", "JFK", "LGA")), chance.randint(90, 4900))
        for _ in range(BLOCK_ROWS)
    ]
    block = "".join(f"{carrier},{origin},{miles},{'x' * 20}\n" for carrier, origin, miles in rows).encode()
    times = max(1, size // len(block))
    with path.open("wb") as file:
        for piece in compressed(HEADER, block, times) if path.suffix == ".gz" else plain(HEADER, block, times):
            file.write(piece)
    numbers, sums = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for carrier, origin, miles in rows:
        numbers[carrier, origin] += times
        sums[carrier, origin] += times * miles
    return {key: (numbers[key], sums[key]) for key in numbers}


def plain(header: bytes, block: bytes, times: int) -> Iterator[bytes]:
    """Yield a header and a block several times."""
    yield header
    for _ in range(times):
        yield block


def compressed(header: bytes, block: bytes, times: int) -> Iterator[bytes]:
    """Yield the same as one gzip archive. A compressed block that needs nothing before it can be repeated as it is.

    >>> zlib.decompress(b"".join(compressed(b"a,b", b"1,2", 3)), 31)
    b'a,b1,21,21,2'
    """
    yield b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    yield packer.compress(header) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    crc, size = zlib.crc32(header), len(header)
    for _ in range(times):
        yield packed
        crc, size = zlib.crc32(block, crc), size + len(block)
    yield packer.flush(zlib.Z_FINISH) + struct.pack("<II", crc, size % 2**32)


def processed(spark: Any, spout: FileSpout, metadata: Any) -> tuple[float, Totals]:
    """Return the seconds of processing the batch, and its result."""
    from txtopo.spark.executor import SparkExecutor

    executor = SparkExecutor(topology_of(spout), b"bench", session=spark)
    executor.start()
    try:
        began = time.perf_counter()
        assignment = Assignment(attempt=TransactionAttempt(1, 1), metadata={"files": metadata})
        (outcome,) = executor.process([assignment])
        seconds = time.perf_counter() - began
    finally:
        executor.close()
    if not isinstance(outcome, Processed):
        raise RuntimeError(outcome.failure.message)
    rows = outcome.results[0].rows.to_pylist()
    return seconds, {(row["carrier"], row["origin"]): (int(row["count"]), int(row["miles"])) for row in rows}


def topology_of(spout: FileSpout) -> Topology:
    """Return a topology that counts and sums by two keys."""
    builder = TopologyBuilder("memory")
    builder.set_spout("files", spout)
    counts = CountCommitter("counts", ["carrier", "origin"], sums={"distance": "miles"})
    builder.set_committer_bolt("counts", counts).shuffle_grouping("files")
    return builder.build()


@contextmanager
def peaks() -> Iterator[dict[str, float]]:
    """Yield what will have the largest memory in MiB of each role so far; workers that ended meanwhile count, too."""
    found: dict[str, float] = {}
    ended = threading.Event()

    def look() -> None:
        while True:
            for role, size in peak_memory_mib(os.getpid()).items():
                found[role] = max(size, found.get(role, 0))
            if ended.wait(SAMPLE_S):
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def tell(found: Sequence[dict[str, Any]]) -> None:
    """Print and keep the figures."""
    for line in report(found):
        print(line)
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    (folder / "bench_memory.json").write_text(json.dumps(found, indent=2) + "\n")


def report(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the table: MiB, and how many times those of the first file of the same format they are.

    >>> one = {"case": "csv", "rows": 5_400_000, "plan_s": 0.4, "process_s": 4.0}
    >>> small = {**one, "megabytes": 200, "peak_memory_mib": {"driver": 200, "jvm": 600, "workers": 900}}
    >>> large = {**one, "megabytes": 2000, "peak_memory_mib": {"driver": 200, "jvm": 630, "workers": 930}}
    >>> print("\\n".join(report([small, large])))
    format        MB   M rows  plan s  process s  driver     jvm  workers  times
    csv          200      5.4     0.4        4.0     200     600      900   1.00
    csv         2000      5.4     0.4        4.0     200     630      930   1.04
    """
    lines = ["format        MB   M rows  plan s  process s  driver     jvm  workers  times"]
    first: dict[str, float] = {}
    for row in found:
        memory = row["peak_memory_mib"]
        total = sum(memory.values())
        times = total / first.setdefault(row["case"], total)
        lines.append(
            f"{row['case']:<8}{row['megabytes']:>8}{row['rows'] / 1e6:>9.1f}{row['plan_s']:>8.1f}"
            f"{row['process_s']:>11.1f}{memory['driver']:>8.0f}{memory['jvm']:>8.0f}{memory['workers']:>9.0f}"
            f"{times:>7.2f}"
        )
    return lines


if __name__ == "__main__":
    main(sys.argv[1:])
