"""What a Python worker has from the daemon that forks it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, sys
from txtopo.spark.session import worker_daemon

def forks():
    from txtopo.spark.session.ship_modules import package_version
    missing = [name for name in worker_daemon._PRELOADED if name not in sys.modules]
    print(missing, package_version.cache_info().currsize, gc.get_freeze_count() > len(gc.get_objects()))

worker_daemon.manager = forks
worker_daemon.main()
"""


def test_a_worker_finds_what_each_task_needs_imported_and_hashed_when_it_is_forked() -> None:
    """A module that is renamed would be left out without a word, and each worker would import it again. The fingerprint
    of the sources is that of the code that the workers run.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)

    assert (done.stdout, done.stderr) == ("[] 1 True\n", "")
