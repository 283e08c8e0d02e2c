"""Names in a topology's own config that are all but a setting, or one that a topology cannot give: a slip must not
leave the default in force.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

STORMS_RATIO_MIN = 0.96
"""How alike a name must be to one of Storm's to be a slip: a letter or two."""
OWN_RATIO_MIN = 0.9
"""The same of one of txtopo's own names, which are shorter."""
OWN_LETTERS_MIN = 8
"""A name with fewer letters, such as `worker`, may well be a component's own."""
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
"""What is of a run and not of a topology, whoever runs it -> how it is given. Names such as `verbose` are left to
components.
"""
_BETWEEN_WORDS = re.compile(r"[-_.\s]+")


def slip_in(name: str, names: Collection[str], of_topology: Collection[str]) -> str | None:
    """What is wrong with a name that is no setting, in words; None where it is a component's own. `of_topology` are
    txtopo's names that a topology gives.
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
