"""Both stores, a folder of orders and an application, with the command line as processes of their own that may be
killed.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tests.kit.drivers import ROOT, DriverProcess, World
from tests.kit.orders import recount, write_orders

FILES = 4


class Site:
    """Both stores, four files of orders, and the command line as processes of their own."""

    def __init__(self, world: World) -> None:
        self.world = world
        file = world.logs / "app.py"
        self.added = world.logs / "added"
        """While this file exists, the application has one committer more."""
        file.write_text(
            "from pathlib import Path\nfrom tests.kit.applications import orders_topology\n"
            f"topology = orders_topology(Path({str(world.folder)!r}), by_shop=Path({str(self.added)!r}).exists())\n"
        )
        self.application = f"{file}:topology"
        write_orders(world.folder, FILES)

    def start(self, *arguments: str, **settings: str) -> DriverProcess:
        """A command, in the background."""
        log = self.world.logs / f"command_{len(self.world.started)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.command", *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**self.world.environment(once=True), **settings},
            )
        driver = DriverProcess(process, log)
        self.world.started.append(driver)
        return driver

    def run(self, *arguments: str, code: int, **settings: str) -> str:
        """A command that ends with this code; what it said."""
        command = self.start(*arguments, **settings)
        assert command.wait() == code, command.output()
        return command.output()

    def drive(self, *, code: int = 0, **settings: str) -> str:
        """`txtopo run --once`."""
        return self.run("run", self.application, "--once", code=code, **settings)

    def states(self) -> list[tuple[Any, ...]]:
        return self.world.query("select txid, state, redo_of from txtopo.ledger where txid > 0 order by txid")

    def orders(self) -> list[tuple[Any, ...]]:
        return self.world.query("select kind, state from txtopo.request order by request_id")

    def actions(self) -> list[tuple[Any, ...]]:
        """Of the action log, those of operators."""
        return self.world.query(
            "select command, txid from txtopo.action where command <> 'on_poison' order by action_id"
        )

    def is_whole(self) -> bool:
        return self.world.totals() == recount(self.world.folder)
