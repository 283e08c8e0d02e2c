"""What bad lines cost: a file of 34 MB read clean and with 5 % of its lines bad, in one run.

    make bench-rejected               # or: python -m benchmarks.rejected_rows [MEGABYTES]

Prints seconds and the ratio to the clean file, with and without quotes, and writes build/bench_rejected_rows.json. Only
ratios of one run mean anything; leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from txtopo import FileSpout
from txtopo.topology.components import SpoutContext, Tally

FIELDS = "carrier string not null, distance int, price decimal(10,2), sold timestamp, day date"
BAD_SHARE = 0.05
BAD_LINES = (
    "C,1\n",
    "C,x{0},1.5,,,\n",
    "C,99999999{0},1.5,,,\n",
    "C,1,{0}.555,,,\n",
    "C,1,,2024-13-{0},,\n",
    "C,1,,,{0}.12.2024,\n",
    ",1,,,,{0}\n",
)
RUNS = 4


def main(arguments: Sequence[str]) -> None:
    """Write the files, read each some times, keep the best."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rejected_rows", allow_abbrev=False)
    parser.add_argument("megabytes", nargs="?", type=int, default=34, help="size of each file (default: 34)")
    size = int(parser.parse_args(arguments).megabytes) * 1_000_000
    measured = {}
    with tempfile.TemporaryDirectory(prefix="txtopo_bench_") as folder:
        for name, quote in (("plain", ""), ("quoted", '"')):
            clean = lines_of(size, quote)
            chance = random.Random(1)
            spoiled = [spoil(line, number, chance) for number, line in enumerate(clean)]
            for kind, lines in (("clean", clean), ("bad", spoiled)):
                measured[f"{name} {kind}"] = seconds(Path(folder) / f"{name}_{kind}.csv", lines)
    tell(measured, size)


def lines_of(size: int, quote: str) -> list[str]:
    """Lines of about `size` bytes together."""
    one = f"C1,1,1.25,2024-01-01T10:00:00Z,2024-01-31,{quote}{'x' * 20}{quote}\n"
    return [
        f"C{n % 7},{n},{n % 1000}.25,2024-01-{n % 28 + 1:02}T10:00:00Z,2024-01-31,{quote}{'x' * 20}{quote}\n"
        for n in range(size // len(one))
    ]


def spoil(line: str, number: int, chance: random.Random) -> str:
    """The line, or now and then one that does not parse."""
    return chance.choice(BAD_LINES).format(1000 + number) if chance.random() < BAD_SHARE else line


def seconds(path: Path, lines: Sequence[str]) -> float:
    """Best wall time of reading the file as an emitter does."""
    path.write_text("carrier,distance,price,sold,day,x\n" + "".join(lines))
    spout = FileSpout(path, FIELDS, settled_s=0)
    coordinator = spout.open_coordinator(
        SpoutContext(topology="bench", spout="files", consumed={}, once=True, monotonic=time.monotonic, say=print)
    )
    while not coordinator.is_ready():
        pass
    metadata = coordinator.initialize_transaction(1, None)
    best = float("inf")
    for _ in range(RUNS):
        began, tally = time.perf_counter(), Tally()
        for part in spout.parts(metadata):
            for _batch in spout.emit_part(metadata, part, tally):
                pass
        best = min(best, time.perf_counter() - began)
    if tally.read != len(lines):
        raise RuntimeError(f"{tally.read} records read of {len(lines)}")
    return best


def tell(measured: dict[str, float], size: int) -> None:
    """Print and keep the figures."""
    print(f"{size / 1e6:.0f} MB, {BAD_SHARE:.0%} of the lines bad; best of {RUNS}, seconds and ratio to the clean file")
    for name, best in measured.items():
        print(f"{name:<14}{best:8.3f}{best / measured[name.split()[0] + ' clean']:8.2f}")
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    (folder / "bench_rejected_rows.json").write_text(json.dumps({"bytes": size, "seconds": measured}, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
