"""How a topology is started: this room knows no driver, so that the face of the package says here who runs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from txtopo.errors import unreachable

if TYPE_CHECKING:
    from txtopo.run_settings import RunSettings
    from txtopo.topology.components import Topology

    Launcher = Callable[[Topology, RunSettings], int]

_launchers: list[Launcher] = []


def launch_with(launcher: Launcher) -> None:
    """From now on this one runs topologies."""
    _launchers[:] = [launcher]


def launch(topology: Topology, settings: RunSettings) -> int:
    """Run a topology in the foreground; returns the exit code."""
    return _launchers[0](topology, settings) if _launchers else unreachable("nobody has said who runs a topology")
