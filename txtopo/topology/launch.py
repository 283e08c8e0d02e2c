"""The function that starts a topology. This room does not know the driver, so the package registers here what runs a
topology.
"""

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
    """Register the function that runs topologies."""
    _launchers[:] = [launcher]


def launch(topology: Topology, settings: RunSettings) -> int:
    """Run a topology in the foreground; returns the exit code."""
    return _launchers[0](topology, settings) if _launchers else unreachable("nobody has said who runs a topology")
