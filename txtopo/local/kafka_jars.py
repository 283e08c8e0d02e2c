"""The jars of a Kafka broker: downloaded once by the Ivy in the PySpark package, and compared with a known digest."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from txtopo.errors import ConfigurationError
from txtopo.local.java import find_java
from txtopo.local.places import home

KAFKA_VERSION = "4.3.1"
ARTIFACT = ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION)
DIGEST = "4815c97ff2e7a63916fab445a26ad0316234e77ed964aac9b74ba93c191691de"
"""SHA-256 of the listing of all jars as sha256sum prints it, in the order of their names."""
DOWNLOAD_S = 600.0
"""Time limit in seconds for the download of 44 MB."""
OF_IVY = ("ivy-", "commons-cli")
OF_LOGGING = ("slf4j-api", "log4j-slf4j2-impl", "log4j-api", "log4j-core")
"""Beginnings of the names of jars that are taken from PySpark: Kafka brings no binding for its log."""
REPLACED = ("slf4j-api", "log4j-api", "log4j-core")


def kafka_jars(folder: Path | None = None) -> list[Path]:
    """Return the class path of a broker. The jars are downloaded if they are not in `folder`, by default
    `kafka/VERSION` in `home()`.

    Raises ConfigurationError if that fails, or if they are not the known ones.
    """
    place = (folder or home() / "kafka") / KAFKA_VERSION
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone(place):
        if not place.exists():
            _download(place)
    own = sorted(place.glob("*.jar"))
    return _of_pyspark(OF_LOGGING) + [jar for jar in own if not jar.name.startswith(REPLACED)]


def _download(place: Path) -> None:
    """Retrieve the jars into a working folder, compare them, and rename it: an incomplete folder is never used."""
    work = place.with_name(f"{place.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    command = [
        *(str(find_java().executable), "-cp", ":".join(map(str, _of_pyspark(OF_IVY))), "org.apache.ivy.Main"),
        *("-dependency", *ARTIFACT, "-confs", "default", "-types", "jar", "bundle"),
        *("-cache", str(work / "cache"), "-retrieve", f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DOWNLOAD_S,
            check=False,
        )
        said = done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        said = f"no end after {DOWNLOAD_S:.0f} s"
    jars = sorted((work / "jars").glob("*.jar"))
    if not jars:
        shutil.rmtree(work, ignore_errors=True)
        told = [
            line.strip() for line in said.splitlines() if "ERROR" in line or "not found" in line or "no end" in line
        ]
        raise ConfigurationError(
            f"the jars of Kafka {KAFKA_VERSION} cannot be downloaded from Maven Central "
            f"({'; '.join(told[:3]) or 'Ivy found none'})"
        )
    found = digest_of(jars)
    if found != DIGEST:
        shutil.rmtree(work, ignore_errors=True)
        raise ConfigurationError(
            f"Maven Central gave other jars for Kafka {KAFKA_VERSION} than known: their digest is {found}, not {DIGEST}"
        )
    (work / "jars").rename(place)
    shutil.rmtree(work, ignore_errors=True)


def digest_of(jars: Sequence[Path]) -> str:
    """Return the digest of these jars: of names and content."""
    lines = [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in sorted(jars)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _of_pyspark(names: tuple[str, ...]) -> list[Path]:
    """Return jars of the PySpark package, without importing it. Raises ConfigurationError if one is missing."""
    spec = find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin is not None else None
    jars = [] if folder is None else sorted(jar for jar in folder.glob("*.jar") if jar.name.startswith(names))
    missing = [name for name in names if not any(jar.name.startswith(name) for jar in jars)]
    if missing:
        raise ConfigurationError(
            f"no {', '.join(missing)} among the jars of PySpark in {folder}; use the full PySpark package (not "
            f"pyspark-client)"
        )
    return jars


@contextlib.contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Lock: two processes must not download into one folder."""
    with place.with_name(f"{place.name}.lock").open("a", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
