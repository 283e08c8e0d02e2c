"""Sends code to the executors: the user's module by value, txtopo itself by path, other files as Spark ships them."""

from __future__ import annotations

import hashlib
import os
import site
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from txtopo.errors import ConfigurationError
from txtopo.topology.components import Topology
from txtopo.tuples.user_errors import one_line

PACKAGE = Path(__file__).resolve().parents[2]


def ship(spark: SparkSession, topology: Topology, py_files: tuple[str, ...] = ()) -> None:
    """Make the topology's code loadable in every task of this session. Safe to repeat. Raises ConfigurationError with
    the name of what cannot be sent.
    """
    module = module_of(topology)
    if module is not None:
        # Executors cannot import a file that a driver was started with; its functions are sent inside the plan instead.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    check_picklable(topology)
    context = spark.sparkContext
    for path in py_files:
        context.addPyFile(path)
    root = str(PACKAGE.parent)
    if root not in site.getsitepackages():
        paths = context.environment.get("PYTHONPATH", "").split(os.pathsep)
        if root not in paths:
            context.environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])


def check_picklable(topology: Topology) -> None:
    """Raise ConfigurationError with the component that cannot be sent to tasks: for example, only pickling finds a
    connection in one of its closures.
    """
    components: list[tuple[str, object]] = [(f"spout {one.name!r}", one.spout) for one in topology.spouts]
    components += [(f"bolt {one.name!r}", one.bolt) for one in topology.tuple_bolts]
    components += [(f"committer bolt {one.name!r}", one.bolt) for one in topology.committers]
    for who, component in components:
        try:
            cloudpickle.dumps(component)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ConfigurationError(
                f"{who}: {type(component).__name__} cannot be sent to Spark's tasks: {one_line(str(error))}; make "
                f"such a thing where it is used, in the task"
            ) from error


def module_of(topology: Topology) -> ModuleType | None:
    """Return the loaded module that built the topology; None if it is `__main__` (which is always sent by value), is
    part of txtopo, or does not exist.
    """
    if topology.module_file is None:
        return None
    wanted = Path(topology.module_file).resolve()
    if wanted.is_relative_to(PACKAGE):
        return None
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and file is not None and Path(file).resolve() == wanted:
            return module
    return None


@cache
def package_version() -> str:
    """Return the fingerprint of the txtopo sources that run in tasks, as found by this process: driver and tasks must
    agree (R12: only attempts with the leader's code commit).
    """
    digest = hashlib.sha256()
    for room in ("core", "topology", "spouts", "tuples", "spark"):
        for path in sorted((PACKAGE / room).rglob("*.py")):
            digest.update(
                f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest()
            )
    return digest.hexdigest()[:16]
