"""Apache Storm at the daily files: Trident of the current release, TransactionalTopology of the last one that had it.
Both programs are Java, built by Maven below build/, and run in a LocalCluster.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from benchmarks.cases import TRIDENT, Job, case_of
from benchmarks.inputs import difference, read_inputs
from benchmarks.led import WrongResult, read_table
from benchmarks.meter import Meter

SOURCES = Path(__file__).with_name("storm")
BUILD = Path("build") / "storm"
PENDING = 4
"""`topology.max.spout.pending`: the fastest of 1, 4 and 16."""
MAVEN_S_MAX = 600.0


def passes(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the row of each pass: a new topology in the same JVM."""
    case = case_of(job.case)
    folder = read_inputs(Path(job.inputs))[case.folder]
    right = {key: (flights, 0) for key, (flights, _) in folder.counts.items()}
    command = command_of(job, case.files_per_batch, folder.path)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, cwd=job.folder
    ) as java:
        assert java.stdin is not None and java.stdout is not None
        for number in range(1, job.passes + 1):
            meter = Meter(job, number)
            java.stdin.write("pass\n")
            java.stdin.flush()
            told = next((json.loads(line) for line in java.stdout if line.startswith("{")), None)
            if told is None:
                raise WrongResult(f"{job.peer} ended with exit code {java.wait()}")
            row = meter.row(rows=folder.rows, batches=told["batches"], wall_s=told["wall_s"])
            if wrong := difference(read_table(job.dsn, "select carrier, origin, n, 0 from storm_counts"), right):
                raise WrongResult(f"{job.peer}: {wrong}")
            yield row
        java.stdin.close()


def command_of(job: Job, files_per_batch: int, days: Path) -> list[str]:
    """Build the program if necessary; returns the command that runs it."""
    flavour, main = ("trident", "TridentFlights") if job.peer == TRIDENT else ("transactional", "TransactionalFlights")
    classes = built(flavour)
    # Storm 1.2.4's ZooKeeper client looks an address up as "localhost/<unresolved>" on Java 14 and later.
    hosts = job.folder / "hosts"
    hosts.write_text(
        f"127.0.0.1 localhost {socket.gethostname()}\n127.0.0.1 localhost/<unresolved>\n", encoding="utf-8"
    )
    url = make_url(job.dsn)
    properties = {
        "url": f"jdbc:postgresql://{url.host}:{url.port}/{url.database}?user={url.username}&reWriteBatchedInserts=true",
        "days": str(days),
        "per": str(files_per_batch),
        "pending": str(PENDING),
        "passes": str(job.passes),
        **({"jdk.net.hosts.file": str(hosts)} if job.peer != TRIDENT else {}),
    }
    return ["java", "-Xmx4g", *(f"-D{name}={value}" for name, value in properties.items()), "-cp", classes, main]


def built(flavour: str) -> str:
    """Compile one of the two programs with its release of Storm; returns its class path."""
    BUILD.mkdir(parents=True, exist_ok=True)
    shutil.copytree(SOURCES, BUILD, dirs_exist_ok=True)
    found = (BUILD / f"{flavour}.cp").absolute()
    done = subprocess.run(
        ["mvn", "-q", "-B", "-P", flavour, "compile", "dependency:build-classpath", f"-Dmdep.outputFile={found}"],
        cwd=BUILD,
        capture_output=True,
        text=True,
        timeout=MAVEN_S_MAX,
    )
    if done.returncode:
        raise RuntimeError(f"Maven could not build {flavour}: {done.stdout.strip()[-500:]}")
    return f"{BUILD.absolute() / 'target' / flavour / 'classes'}:{found.read_text(encoding='utf-8').strip()}"
