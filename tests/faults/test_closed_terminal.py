"""A driver whose terminal is closed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios

from tests.kit.drivers import ROOT, SESSION_S, World, wait_until
from tests.kit.orders import recount, write_orders


def test_a_driver_whose_terminal_goes_away_ends_in_order(world: World) -> None:
    """SIGHUP stops it as SIGTERM does, although nothing that it says can be written any more."""
    write_orders(world.folder, 2)
    ours, theirs = os.openpty()

    def take_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.kit.driver", str(world.folder)],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={
            **os.environ,
            "TXTOPO_DSN": world.dsn,
            "TXTOPO_ZK": world.zookeeper,
            "TXTOPO_ZOOKEEPER_SESSION_S": str(SESSION_S),
            "DRIVER_ONCE": "0",
        },
        preexec_fn=take_terminal,
    )
    try:
        os.close(theirs)
        wait_until(lambda: world.last_txid() == 2, "both batches")

        os.close(ours)

        assert driver.wait(60) == 129
        assert world.query("select state, reason from txtopo.topology") == [("stopped", "interrupted")]
        assert world.totals() == recount(world.folder)
        world.check_nothing_left_over()
    finally:
        driver.kill()
        driver.wait()
