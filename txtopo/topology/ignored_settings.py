"""The settings of a topology and its components that Storm knows and that have no effect here: reported once, so that
nobody waits for what they do in Storm.
"""

from __future__ import annotations

from collections.abc import Sequence

from txtopo.config import is_setting
from txtopo.core.storm_settings import Ignored, ignored_in
from txtopo.topology.components import Topology


def ignored_settings(topology: Topology) -> list[Ignored]:
    """Return the ignored settings of the topology, then those of its components, each by name."""
    found = ignored_in("the topology", topology.config, (), whole=True)
    parts: list[tuple[str, object]] = [(item.name, item.spout) for item in topology.spouts]
    parts += [(item.name, item.bolt) for item in topology.tuple_bolts]
    parts += [(item.name, item.bolt) for item in topology.committers]
    for name, part in parts:
        config = getattr(part, "config", {})
        found += ignored_in(name, config, [key for key in config if is_setting(key)], whole=False)
    return found


def told_ignored(found: Sequence[Ignored]) -> str:
    """Return one line that names the settings without effect."""
    # With the name of the component, because the same setting may have an effect elsewhere.
    named = list(dict.fromkeys(one.name if one.of == "the topology" else f"{one.name} (of {one.of})" for one in found))
    verb = "means" if len(named) == 1 else "mean"
    return f"{', '.join(named)} {verb} nothing here; `txtopo explain` says why"
