"""Gives Spark's JVM its classes from an archive, parsed and verified already: Java calls it class data sharing. An
archive is written once for a Java and a PySpark, by a separate process; no run waits for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txtopo.spark.session.spark_settings import java_options_given
from txtopo.topology.jvm_work import JvmWork

if TYPE_CHECKING:
    import pyarrow as pa

VARIABLE = "TXTOPO_CLASS_ARCHIVE"
"""`off`: no archive is used or written. `read`: none is written."""
WRITER = "txtopo.archive_classes"
"""Module that a process runs to write an archive."""
ASIDE = "aside"
"""Its argument if nobody waits for it."""
KEPT = 3
"""Archives that are kept, those used last: an upgrade of Java or PySpark makes a new one, of 100 MB or more."""
RETRY_S = 24 * 3600.0
"""Seconds until a writing that failed is tried again."""
WRITE_S = 300.0
"""Seconds that Java may take to write an archive."""
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_SHARING = re.compile(r"Archive|-Xshare|ClassList|AOT")
"""Options of the user for class data sharing."""
_CLASS_PATH_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_CLASSPATH")
_CLASS_PATH_SETTING = "spark.driver.extraClassPath"


def archive_file(environ: Mapping[str, str]) -> Path | None:
    """Return where the archive of the Java and PySpark stands that these variables name, whether it is there or not.
    None: they can have none, or it is switched off.
    """
    if environ.get(VARIABLE) == "off" or any(environ.get(name) for name in _CLASS_PATH_VARIABLES):
        return None
    try:
        spark = Path(environ.get("SPARK_HOME") or str(_pyspark())).resolve()
        server = Path(environ["JAVA_HOME"], "lib", "server")
        java = (server / ("libjvm.dylib" if sys.platform == "darwin" else "libjvm.so")).resolve()
        conf = Path(environ.get("SPARK_CONF_DIR") or spark / "conf")
        if conf.is_dir() and any(conf.iterdir()):  # Java archives no class path with such a folder in it.
            return None
        # Copies of one image differ in parts of a second.
        known = [(str(one), int(one.stat().st_mtime), one.stat().st_size) for one in (java, spark / "jars")]
        cache = Path(environ.get("XDG_CACHE_HOME", ""))
        if not cache.is_absolute():  # As the XDG specification says.
            cache = Path.home() / ".cache"
        folder = (cache / "txtopo" / "classes").resolve()
    except (KeyError, OSError, RuntimeError):
        return None
    file = folder / f"{hashlib.sha256(repr(known).encode()).hexdigest()[:16]}.jsa"
    # It is a word among the JVM's options, and a colon would make it two archives.
    return None if re.search(r"[\"'\\\s:]", str(file)) else file


def _pyspark() -> Path:
    """Its folder, without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise OSError("no PySpark")
    return Path(spec.origin).parent


def usable_archive(conf: Mapping[str, str], environ: Mapping[str, str]) -> Path | None:
    """Return the archive with which a JVM with these Spark settings may start; None without one, where another user
    could have written it, and where the user has options for sharing or a different class path.
    """
    if _SHARING.search(java_options_given(conf, environ)) or conf.get(_CLASS_PATH_SETTING):
        return None
    file = archive_file(environ)
    if file is None or not _is_file(file) or not _nobody_else_can_write(file):
        return None
    with contextlib.suppress(OSError):
        os.utime(file)  # Used now: see KEPT.
    return file


def _is_file(path: Path) -> bool:
    """False also where this user may not look; `Path.is_file` raises an error there."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _nobody_else_can_write(path: Path, *, may_be_missing: bool = False) -> bool:
    """True if nobody but this user and root can write there, nor put something else in its place: what is in an archive
    is code.
    """
    for place in _folders_of(path):
        try:
            found = place.lstat()
        except FileNotFoundError:
            if may_be_missing:
                continue
            return False
        except OSError:
            return False
        # Nobody takes away what others own in a folder such as /tmp.
        is_sticky = place not in (path, path.parent) and bool(found.st_mode & stat.S_ISVTX)
        if found.st_uid not in (0, os.geteuid()) or stat.S_ISLNK(found.st_mode):
            return False
        if found.st_mode & _OTHERS_MAY_WRITE and not is_sticky:
            return False
    return True


def _folders_of(path: Path) -> list[Path]:
    return [path, *path.parents]


def write_aside() -> None:
    """Have a process with the lowest priority write the archive unless it is there, and do not wait for it. Whatever
    fails, runs start without an archive.
    """
    file = archive_file(os.environ)
    if file is None or os.environ.get(VARIABLE) == "read" or _is_file(file) or _has_failed(file):
        return
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", WRITER, ASIDE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",  # Python would import what lies in the folder of the run.
            start_new_session=True,
        )


def _failure_of(file: Path) -> Path:
    return file.with_suffix(".failed")


def _has_failed(file: Path) -> bool:
    try:
        return time.time() - _failure_of(file).stat().st_mtime < RETRY_S
    except OSError:
        return False


def write() -> str | None:
    """Write the archive unless it is there or another process writes one; returns why there is none."""
    file = archive_file(os.environ)
    if file is None:
        return "this Java and this PySpark can have no archive of classes, or it is switched off"
    others = f"another user can write {file.parent}, or a folder above it"
    if not _nobody_else_can_write(file.parent, may_be_missing=True):  # No folders of root in the home of another user.
        return others
    try:
        _make_folder(file.parent)
        if not _nobody_else_can_write(file.parent):
            return others
        with (file.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _write_alone(file)
    except BlockingIOError:
        return "another process is writing one"
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def _make_folder(folder: Path) -> None:
    """Whatever the umask, group members may not write there; everybody may read, as an image is for all its users."""
    for one in reversed(_folders_of(folder)):
        one.mkdir(mode=0o755, exist_ok=True)


def _write_alone(file: Path) -> str | None:
    if _is_file(file):
        return None
    # A writer that is killed has failed, too: by the end of its container, or for its memory.
    _failure_of(file).write_text("it was ended before the archive was whole", encoding="utf-8")
    work = file.parent / "work"  # What a writer that was killed left there goes, too.
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(mode=0o700)
        _write(file, work)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):  # The disk may be full.
            _failure_of(file).write_text(said, encoding="utf-8")
        return said
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _failure_of(file).unlink(missing_ok=True)
    _remove_old(file.parent)
    return None


def _write(file: Path, work: Path) -> None:
    """Note which classes Spark loads, then have Java archive them; the archive gets its name when it is whole."""
    noted, written = work / "classes", work / "archive"
    with _plain_environment():
        class_path, modules = _note_classes(noted, work)
        command = [
            str(Path(os.environ["JAVA_HOME"], "bin", "java")),
            "-XX:+IgnoreUnrecognizedVMOptions",
            "-XX:TieredStopAtLevel=1",
            *modules,
            "-Xshare:dump",
            f"-XX:SharedClassListFile={noted}",
            f"-XX:SharedArchiveFile={written}",
            "-cp",
            class_path,
        ]
        nothing = subprocess.DEVNULL
        try:
            done = subprocess.run(
                command, cwd=work, stdin=nothing, capture_output=True, text=True, timeout=WRITE_S, check=False
            )
        except subprocess.TimeoutExpired:  # Its own words are the command, with a class path of 300 files.
            raise OSError(f"Java took longer than {WRITE_S:.0f} s") from None
    if done.returncode != 0 or not written.exists():
        raise OSError(f"Java ended with {done.returncode}: {(done.stderr or done.stdout)[-500:].strip()}")
    written.chmod(0o444)
    with written.open("rb") as whole:  # Half an archive after a power cut would end each JVM.
        os.fsync(whole.fileno())
    written.replace(file)


@contextlib.contextmanager
def _plain_environment() -> Iterator[None]:
    """The variables of a user's run may load jars, write event logs, or name options for sharing."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("SPARK_", "PYSPARK_")) and name != "SPARK_HOME":
            del os.environ[name]
    os.environ[VARIABLE] = "off"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _note_classes(noted: Path, work: Path) -> tuple[str, list[str]]:
    """Run jobs like those of a batch, and write the names of the classes that Spark loads; returns its class path and
    its options for modules, which belong to an archive.
    """
    from pyspark.sql import functions

    from txtopo.spark.session.spark_session import SessionOptions, start_session, stop_session

    conf = {"spark.driver.extraJavaOptions": f"-XX:DumpLoadedClassList={noted}"}
    options = SessionOptions(
        app_name="txtopo classes", log_folder=work, master="local[2]", conf=conf, work=JvmWork.MESSAGES
    )
    spark = start_session(options)
    try:
        numbers = spark.range(100).withColumn("name", functions.col("id").cast("string"))
        doubled = numbers.mapInArrow(_doubled, "id long, name string").withColumn("late", functions.col("id") > 50)
        counts = doubled.groupBy("name", "late").agg(functions.sum("id"), functions.count("*"))
        counts.toArrow()
        counts.createOrReplaceTempView("counts")
        spark.sql("select late, count(*) from counts a join counts b using (late) group by late").collect()
        spark.sparkContext.parallelize(range(10), 2).map(lambda number: (number % 2, number)).groupByKey().collect()
        jvm: Any = spark._jvm
        given = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
        modules = [str(option) for option in given if str(option).startswith("--")]
        return str(jvm.java.lang.System.getProperty("java.class.path")), modules
    finally:
        stop_session()


def _doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        yield batch


def _remove_old(folder: Path) -> None:
    """A JVM that has one of them open keeps what it read."""
    by_use = sorted(folder.glob("*.jsa"), key=lambda one: one.stat().st_mtime, reverse=True)
    for one in by_use[KEPT:]:
        one.unlink(missing_ok=True)
