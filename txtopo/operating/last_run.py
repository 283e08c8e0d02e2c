"""Settings that the last run received from flags and the environment: an order that is carried out without a leader
uses them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from txtopo.config import TOPOLOGY_CONFIG, Settings, is_setting
from txtopo.errors import ConfigurationError
from txtopo.reports.model import TopologyStatus
from txtopo.reports.read import reading
from txtopo.reports.stored_description import read_config

LAST_RUN = "the last run"
"""Source of settings that `with_last_run` added."""
_BY_HAND = ("flag ", "environment ")


def given_by_hand(settings: Settings) -> dict[str, Any]:
    """Return the settings about running batches that came from flags, the environment, or those of the last run.
    Settings from files are not included: they are read again.
    """
    return {
        name: getattr(settings, name)
        for name, source in sorted(settings.sources.items())
        if is_setting(name) and (source.startswith(_BY_HAND) or source == LAST_RUN)
    }


def with_last_run(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Return these settings with those that the last run received from flags and the environment, unless this command
    received the same setting in this way.

    Settings that this release does not know are ignored.
    """
    taken = {
        name: value
        for name, value in given.items()
        if is_setting(name) and not settings.source(name).startswith(_BY_HAND)
    }
    weaker = replace(settings, sources={name: source for name, source in settings.sources.items() if name not in taken})
    try:
        made = weaker.with_topology(taken)
    except ConfigurationError:
        return settings
    said = {name: LAST_RUN for name in taken if made.source(name) == TOPOLOGY_CONFIG}
    return replace(made, sources={**made.sources, **said})


def poison_in_force(settings: Settings, status: TopologyStatus) -> str:
    """Return the value of `on_poison` with which an order would be carried out, and its source."""
    if status.is_led:
        return f"as {status.who_leads} has it"
    with reading(str(settings.dsn)) as connection:
        of_topology = read_config(connection, status.topology) or {}
    found = with_last_run(settings, status.settings).with_topology(of_topology)
    return f"{found.on_poison} ({found.source('on_poison')})"
