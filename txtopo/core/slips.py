"""Misspelt settings in a topology's own config, and settings that a topology cannot give: without an error, the default
would silently apply.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

STORMS_RATIO_MIN = 0.96
"""How similar a name must be to one of Storm's to count as misspelt: one or two letters differ."""
OWN_RATIO_MIN = 0.9
"""The same for txtopo's own names, which are shorter."""
OWN_LETTERS_MIN = 8
"""A name with fewer letters, such as `worker`, may be a component's own setting."""
OF_A_RUN = {
    "dsn": "--dsn, TXTOPO_DSN or txtopo.toml",
    "postgres_dsn": "--dsn, TXTOPO_DSN or txtopo.toml",
    "zookeeper": "--zk, TXTOPO_ZK or txtopo.toml",
    "zk": "--zk, TXTOPO_ZK or txtopo.toml",
    "master": "--master, TXTOPO_MASTER or txtopo.toml",
    "py_files": "--py-files, TXTOPO_PY_FILES or txtopo.toml",
    "log_folder": "TXTOPO_LOG_FOLDER or txtopo.toml",
    "once": "--once",
}
"""Settings that belong to a run and not to a topology -> how to give them. Names such as `verbose` are left to
components.
"""
_BETWEEN_WORDS = re.compile(r"[-_.\s]+")


def slip_in(name: str, names: Collection[str], of_topology: Collection[str]) -> str | None:
    """Return what is wrong with an unknown name, in words; None if it is a component's own setting. `of_topology` are
    txtopo's names that a topology may give.
    """
    if name.startswith("topology."):
        near = difflib.get_close_matches(name, list(names), n=1, cutoff=STORMS_RATIO_MIN)
        return f"unknown key {name}: did you mean {near[0]}?" if near else None
    plain = _plain(name)
    for known, given in OF_A_RUN.items():
        if plain == _plain(known):
            return f"{name} is no setting of a topology: give it by {given}; a component's own needs another name"
    same = [known for known in of_topology if _plain(known) == plain]
    long = [known for known in of_topology if len(known) >= OWN_LETTERS_MIN]
    near = same or difflib.get_close_matches(name.lower().replace("-", "_"), long, n=1, cutoff=OWN_RATIO_MIN)
    return f"unknown key {name}: did you mean {near[0]}?" if near else None


def _plain(name: str) -> str:
    return _BETWEEN_WORDS.sub("", name.lower().removeprefix("txtopo."))
