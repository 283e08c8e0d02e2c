"""What a Python worker has from the daemon that forks it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from txtopo.spark.session.ship_modules import PACKAGE, package_version

PROGRAM = """
import gc, sys
import pyarrow as pa
from txtopo.spark.session import worker_daemon
from txtopo.tuples.aggregate_batches import folded

def forks():
    missing = [name for name in worker_daemon._PRELOADED if name not in sys.modules]
    print(missing, gc.get_freeze_count() > len(gc.get_objects()))
    before = set(sys.modules)
    folded(pa.table({"key": [1, 1], "sum": [2, 3]}), 1, ["add"])
    print(sorted(set(sys.modules) - before))

worker_daemon.manager = forks
worker_daemon.main()
"""


OTHER_SOURCES = """
import os, sys
from pathlib import Path
from txtopo.spark.session import worker_daemon

def worker():
    if os.fork() == 0:
        from txtopo.spark.session.ship_modules import PACKAGE, package_version
        print(PACKAGE, package_version(), flush=True)
        os._exit(0)
    os.wait()

def forks():
    worker()
    emitter = Path(worker_daemon.__file__).parents[2] / "spouts" / "file_parts.py"
    assert "txtopo.spouts.file_parts" not in sys.modules, "the worker imports it from the disk"
    emitter.write_text(emitter.read_text() + "# another release\\n")
    worker()

worker_daemon.manager = forks
worker_daemon.main()
"""


def test_a_worker_that_is_forked_after_the_sources_changed_tells_so(tmp_path: Path) -> None:
    """R12: it imports what the daemon has not imported from the disk as it is then. With the daemon's fingerprint its
    results would count as those of the driver's code.
    """
    copy = tmp_path / "txtopo"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    program = [sys.executable, "-c", OTHER_SOURCES]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert done.stderr == ""
    before, after = (line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert before == [str(copy), package_version()]
    assert after[0] == str(copy) and after[1] != package_version()


def test_a_worker_finds_what_each_task_needs_imported_when_it_is_forked() -> None:
    """A module that is renamed would be left out without a word, and each worker would import it again: also what
    pyarrow imports only when it groups for the first time.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)

    assert (done.stdout, done.stderr) == ("[] True\n[]\n", "")
