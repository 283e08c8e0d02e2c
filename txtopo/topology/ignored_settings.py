"""Which settings of a topology and its components are Storm's and mean nothing here: said once, so that nobody waits for what they would do in Storm."""

from __future__ import annotations

from collections.abc import Sequence

from txtopo.config import is_setting
from txtopo.core.storm_settings import Ignored, ignored_in
from txtopo.topology.components import Topology


def ignored_settings(topology: Topology) -> list[Ignored]:
    """Those of the topology first, then those of its components, each by name."""
    found = ignored_in("the topology", topology.config, (), whole=True)
    parts: list[tuple[str, object]] = [(item.name, item.spout) for item in topology.spouts]
    parts += [(item.name, item.bolt) for item in topology.tuple_bolts]
    parts += [(item.name, item.bolt) for item in topology.committers]
    for name, part in parts:
        config = getattr(part, "config", {})
        found += ignored_in(name, config, [key for key in config if is_setting(key)], whole=False)
    return found


def told_ignored(found: Sequence[Ignored]) -> str:
    """One line of what means nothing."""
    named = ", ".join(dict.fromkeys(one.name for one in found))
    verb = "means" if len({one.name for one in found}) == 1 else "mean"
    return f"{named} {verb} nothing here; `txtopo explain` says why"
