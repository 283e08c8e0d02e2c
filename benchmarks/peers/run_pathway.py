"""Pathway at the backlog: its wheel is installed into a separate environment below build/, used by nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.cases import Job, case_of
from benchmarks.inputs import difference, read_inputs
from benchmarks.led import WrongResult
from benchmarks.meter import Meter

WHEEL = "pathway==0.33.0"
BUILD = Path("build") / "pathway"
PROGRAM = Path(__file__).with_name("pathway_program.py")


def passes(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the row of each pass. Pathway runs one dataflow in a process, so each pass is a process; its wall starts
    when Pathway has been imported.
    """
    folder = read_inputs(Path(job.inputs))[case_of(job.case).folder]
    python = installed()
    for number in range(1, job.passes + 1):
        meter = Meter(job, number)
        done = subprocess.run(
            [str(python), "-P", str(PROGRAM), str(folder.path)], capture_output=True, text=True, cwd=job.folder
        )
        if done.returncode:
            raise WrongResult(f"Pathway ended with exit code {done.returncode}: {done.stderr.strip()[-500:]}")
        told = json.loads(done.stdout.strip().splitlines()[-1])
        found = {(carrier, origin): (flights, miles) for carrier, origin, flights, miles in told["counts"]}
        if wrong := difference(found, folder.counts):
            raise WrongResult(f"Pathway: {wrong}")
        row = meter.row(rows=folder.rows, batches=1, wall_s=told["wall_s"])
        # It has ended: what it used is that of an ended child, which no role counts.
        yield row | {"cpu_s_per_million_rows": {"workers": round(told["cpu_s"] / (folder.rows / 1e6), 3)}}


def installed() -> Path:
    """Install Pathway if it is not there; returns its Python."""
    python = (BUILD / "bin" / "python").absolute()
    mark = BUILD / f"installed_{WHEEL.replace('==', '_')}"
    if not mark.exists():
        venv.create(BUILD, with_pip=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", WHEEL],
            check=True,
            stdout=sys.stderr,
        )
        mark.touch()
    return python
