"""What a test needs, told from the fixtures that it uses: markers that cannot be forgotten, and a guard that nothing
starts without one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePath

SERVICES = {
    "spark": {"spark_session"},
    "postgres": {"postgres_server", "own_postgres", "postgres_to_crash"},
    "zookeeper": {"zookeeper_server", "own_zookeeper"},
    "kafka": {"kafka_server"},
}
"""Marker -> the fixtures at the bottom of all others that start this service."""
PROGRAMS = {
    "spark-submit": {"spark"},
    "java": {"spark", "zookeeper", "kafka"},
    "initdb": {"postgres"},
    "postgres": {"postgres"},
}
"""Program that a service consists of -> the markers of which one must be there."""


def markers_for(fixtures: Iterable[str]) -> list[str]:
    """The markers of a test that uses these fixtures, directly or through others."""
    used = set(fixtures)
    return [marker for marker, roots in SERVICES.items() if used & roots]


def needed_for(command: object) -> set[str]:
    """The markers of which a test that starts this command must have one; empty where it starts no service, as one
    that only asks for a version.
    """
    if not isinstance(command, list | tuple):
        return set()
    words = [os.fsdecode(word) for word in command]
    if any(word.endswith("-version") for word in words):
        return set()
    return next((PROGRAMS[name] for word in words if (name := PurePath(word).name) in PROGRAMS), set())
