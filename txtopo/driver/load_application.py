"""Loads the topology that `file.py:topology` or `package.module:topology` names, and computes the hash of its code
(R12, only attempts with the leader's code commit).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from txtopo.core.plan import canonical
from txtopo.errors import ConfigurationError
from txtopo.topology.components import Topology
from txtopo.topology.user_exceptions import is_of_code, said
from txtopo.tuples.user_errors import user_frame

DEFAULT_ATTRIBUTE = "topology"


def load_application(application: str) -> Topology:
    """Import the module that `application` names and return its topology. Raises ConfigurationError with what was
    searched and what was found.
    """
    place, _, attribute = application.rpartition(":")
    if not place:
        place, attribute = application, DEFAULT_ATTRIBUTE
    module = _module_of_file(Path(place)) if place.endswith(".py") else _module_of_name(place)
    found = getattr(module, attribute, None)
    if isinstance(found, Topology):
        return found
    others = [name for name, value in vars(module).items() if isinstance(value, Topology)]
    hint = f"; it has {', '.join(others)}" if others else "; build one with TopologyBuilder(...).build()"
    what = "is not a topology" if found is not None else "does not exist"
    raise ConfigurationError(f"{application}: {attribute!r} {what} in {place}{hint}")


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigurationError(f"{path}: no such file")
    name = path.stem
    if not name.isidentifier():
        raise ConfigurationError(f"{path}: the file's name must be a Python identifier, so that it can be imported")
    path = path.resolve()
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    if loaded is not None:
        name = f"{name}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise ConfigurationError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        specification.loader.exec_module(module)
    except ConfigurationError:
        del sys.modules[name]
        raise
    except BaseException as error:
        if not is_of_code(error):
            raise
        del sys.modules[name]
        where = user_frame("".join(traceback.format_exception(error)))
        line = f"{where}: " if where else ""
        raise ConfigurationError(f"{path}: importing it failed: {line}{_in_words(error)}") from error
    return module


def _module_of_name(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ConfigurationError:
        raise
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{name}: {error}; give a module's name or a path that ends in .py") from error
    except BaseException as error:
        if not is_of_code(error):
            raise
        raise ConfigurationError(f"{name}: importing it failed: {_in_words(error)}") from error


def _in_words(error: BaseException) -> str:
    words = f"{type(error).__name__}: {said(error)}".rstrip(": ")
    if isinstance(error, SystemExit):
        words += '; put code that only a script needs below `if __name__ == "__main__":`'
    return words


def needs_spark(error: BaseException) -> bool:
    """True if an import failed only because there was no Spark session yet."""
    cause = error.__cause__
    return type(cause).__name__ == "PySparkRuntimeError" and "SESSION_OR_CONTEXT_NOT_EXISTS" in str(cause)


def code_hash(topology: Topology, shipped_files: Iterable[str], result_settings: Mapping[str, str]) -> bytes:
    """Return the sha-256 of the topology's module, all shipped files, its description and the settings that change
    results (R12, only attempts with the leader's code commit). Raises ConfigurationError if a file cannot be read.
    """
    digest = hashlib.sha256(canonical({"topology": topology.describe(), "settings": dict(result_settings)}))
    files = [*([topology.module_file] if topology.module_file else []), *shipped_files]
    for name in files:
        try:
            content = Path(name).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"{name}: {error.strerror}") from error
        digest.update(hashlib.sha256(content).digest())
    return digest.digest()
