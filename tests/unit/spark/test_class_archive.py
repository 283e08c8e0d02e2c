"""The archive of Spark's classes: which one a JVM is given, and who may have written it. Java writes and reads a real
one in tests/integration/test_class_archive.py.
"""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

from txtopo.errors import ExecutorLost
from txtopo.spark.session import class_archive, jvm_process, spark_session
from txtopo.spark.session.class_archive import VARIABLE, archive_file, usable_archive, write, write_aside
from txtopo.spark.session.python_worker_sockets import SocketFolder

LIBRARY = "libjvm.dylib" if sys.platform == "darwin" else "libjvm.so"
OF_A_SESSION = ("_active_spark_context", "_gateway", "_jvm")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java and a Spark that look real enough, no archive; returns where it would stand."""
    for name in ("java/lib/server", "spark/jars", "cache"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "java/lib/server" / LIBRARY).write_text("java")
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE)
    # The folders above belong to the machine that runs the tests.
    monkeypatch.setattr(class_archive, "_folders_of", lambda path: [path, path.parent, path.parent.parent])
    found = archive_file(os.environ)
    assert found is not None
    return found


@pytest.fixture
def archive(place: Path) -> Path:
    place.parent.mkdir(parents=True, mode=0o700)
    place.parent.chmod(0o700)
    place.parent.parent.chmod(0o755)
    place.write_text("classes")
    place.chmod(0o444)
    return place


def test_a_jvm_starts_with_the_archive_of_its_java_and_its_spark(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert usable_archive({}, os.environ) == archive

    (tmp_path / "java/lib/server" / LIBRARY).write_text("an upgrade")
    assert archive_file(os.environ) not in (None, archive)
    assert usable_archive({}, os.environ) is None
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "none"))
    assert archive_file(os.environ) is None


def another_user(path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "geteuid", lambda: path.stat().st_uid + 4711)
    if path.stat().st_uid == 0:  # What root wrote is trusted.
        os.chown(path, 4712, -1)


def through_a_link(path: Path, patch: pytest.MonkeyPatch) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path, patch: path.chmod(0o464),
        lambda path, patch: path.chmod(0o446),
        lambda path, patch: path.parent.chmod(0o770),
        lambda path, patch: path.parent.chmod(0o1777),
        lambda path, patch: path.parent.parent.chmod(0o777),
        another_user,
        through_a_link,
        lambda path, patch: path.unlink(),
    ],
    ids=["group", "all", "folder", "sticky folder", "folder above", "owner", "link", "gone"],
)
def test_an_archive_that_another_user_could_write_is_never_loaded(
    archive: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path, pytest.MonkeyPatch], object]
) -> None:
    """Its classes are code, which would run with the rights of the driver."""
    spoil(archive, monkeypatch)

    assert usable_archive({}, os.environ) is None


def test_a_folder_above_may_be_one_in_which_nobody_takes_away_what_others_own(archive: Path) -> None:
    archive.parent.parent.chmod(0o1777)

    assert usable_archive({}, os.environ) == archive


@pytest.mark.parametrize(
    ("conf", "environ"),
    [
        ({"spark.driver.extraJavaOptions": "-XX:SharedArchiveFile=mine.jsa"}, {}),
        ({"spark.driver.defaultJavaOptions": "-Xshare:off"}, {}),
        ({"spark.driver.extraClassPath": "mine.jar"}, {}),
        ({}, {"SPARK_SUBMIT_OPTS": "-XX:AOTCache=mine.aot"}),
        ({}, {"JAVA_TOOL_OPTIONS": "-XX:ArchiveClassesAtExit=mine.jsa"}),
        ({}, {"HADOOP_CONF_DIR": "/etc/hadoop"}),
        ({}, {VARIABLE: "off"}),
    ],
)
def test_options_and_class_paths_of_the_user_count_alone(
    archive: Path, conf: dict[str, str], environ: dict[str, str]
) -> None:
    assert usable_archive(conf, {**os.environ, **environ}) is None
    assert usable_archive({}, {**os.environ, VARIABLE: "read", "SPARK_SUBMIT_OPTS": "-Xss4m"}) == archive


def test_a_folder_of_settings_in_the_class_path_can_have_no_archive(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark/conf").mkdir()
    assert usable_archive({}, os.environ) == archive
    (tmp_path / "spark/conf/spark-defaults.conf").touch()
    assert usable_archive({}, os.environ) is None


def test_a_folder_that_this_user_may_not_enter_costs_no_run(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that root made, for example, or the home of root where a supervisor started the driver as another user."""
    real = os.stat

    def closed(path: Any, *rest: Any, **named: Any) -> os.stat_result:
        if path in (archive, str(archive)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *rest, **named)

    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: None)
    monkeypatch.setattr(os, "stat", closed)

    assert usable_archive({}, os.environ) is None
    write_aside()


@pytest.mark.parametrize("name", ["2026-11-23T02:37:00", "two words", "it's"])
def test_a_path_that_is_not_one_word_among_javas_options_has_no_archive(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.parents[2] / name))

    assert archive_file(os.environ) is None


def test_a_run_ends_without_waiting_for_the_process_that_writes_the_archive(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started once; not while there is an archive, nor within a day after a failure, nor where it is unwanted."""
    started: list[Any] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **how: started.append((command[-2:], how)))

    write_aside()
    monkeypatch.setenv(VARIABLE, "read")
    write_aside()
    monkeypatch.setenv(VARIABLE, "off")
    write_aside()
    monkeypatch.delenv(VARIABLE)
    place.parent.mkdir(parents=True)
    place.with_suffix(".failed").touch()
    write_aside()
    os.utime(place.with_suffix(".failed"), (0, 0))
    write_aside()
    place.touch()
    write_aside()

    assert [name for name, _ in started] == [["txtopo.archive_classes", "aside"]] * 2
    assert find_spec(class_archive.WRITER) is not None
    assert all(how["start_new_session"] and how["stdout"] == subprocess.DEVNULL for _, how in started)
    assert all(how["cwd"] == "/" for _, how in started), "nothing is imported from the folder of the run"


def test_an_archive_appears_whole_or_not_at_all_and_one_process_writes_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a writer was killed before, where it fails, and where several drivers end at the same time."""
    seen: list[str] = []

    def half(file: Path, work: Path) -> None:
        assert write() == "another process is writing one", "this one has the lock"
        seen.extend(one.name for one in work.iterdir())
        assert class_archive._has_failed(file), "it counts as failed if it is killed now"
        (work / "archive").write_text("half")
        raise OSError("No space left on device")

    monkeypatch.setattr(class_archive, "_write", half)
    (place.parent / "work").mkdir(parents=True, mode=0o700)
    (place.parent / "work/left by a killed one").touch()
    place.parent.parent.chmod(0o755)
    place.parent.chmod(0o700)

    assert write() == "OSError: No space left on device"

    assert seen == []
    assert sorted(one.suffix or one.name for one in place.parent.iterdir()) == [".failed", "lock"]
    with (place.parent / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # It is free again.


def test_a_writing_that_takes_too_long_has_failed_and_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, for one; the words fit on a line, although Spark's class path does not."""

    def endless(command: list[str], **how: Any) -> None:
        raise subprocess.TimeoutExpired(command, how["timeout"])

    monkeypatch.setattr(class_archive, "_note_classes", lambda noted, work: ("spark.jar:" * 300, []))
    monkeypatch.setattr(subprocess, "run", endless)

    assert write() == "OSError: Java took longer than 300 s"

    assert class_archive._has_failed(place)


def test_old_archives_go_and_those_used_last_stay(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def new(file: Path, work: Path) -> None:
        file.write_text("new")

    for age in range(1, 5):
        old = archive.with_name(f"{age}.jsa")
        old.touch()
        os.utime(old, (1000 - age, 1000 - age))
    os.utime(archive, (1, 1))
    assert usable_archive({}, os.environ) == archive  # Used now.
    monkeypatch.setattr(class_archive, "_write", new)
    monkeypatch.setattr(class_archive, "archive_file", lambda environ: archive.with_name("new.jsa"))

    assert write() is None

    assert sorted(one.name for one in archive.parent.glob("*.jsa")) == sorted(["1.jsa", archive.name, "new.jsa"])


def test_what_is_written_where_new_files_belong_to_a_group_can_be_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there was no `~/.cache`. Others than the one who wrote may read it: an image is written as root."""

    def whole(file: Path, work: Path) -> None:
        file.touch(0o444)

    monkeypatch.setattr(class_archive, "_write", whole)
    cache = place.parents[2]
    cache.rmdir()
    monkeypatch.setattr(class_archive, "_folders_of", lambda path: [path, *path.parents][: -len(cache.parents)])
    before = os.umask(0o002)
    try:
        assert write() is None
    finally:
        os.umask(before)

    assert usable_archive({}, os.environ) == place
    assert [one.stat().st_mode & 0o777 for one in (cache, place.parent.parent, place.parent)] == [0o755] * 3


def test_nothing_is_written_where_another_user_could_write(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "_write", lambda file, work: pytest.fail("written"))
    place.parent.mkdir(parents=True)
    place.parent.chmod(0o777)

    assert "another user can write" in str(write())


def test_root_makes_no_folder_in_the_home_of_another_user(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sudo txtopo run` with the HOME of the user, who could not enter the folder afterwards."""
    cache = place.parents[2]
    another_user(cache, monkeypatch)

    assert "another user can write" in str(write())

    assert not [*cache.iterdir()]


def test_spark_is_launched_with_the_archive(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user's own options come last; a JVM that crashes while it starts costs the archive, which may be damaged."""
    launched: list[str] = []

    class Crashed:
        returncode = jvm_process.CRASHES[0]

        def was_killed(self) -> bool:
            return True

        def poll(self) -> int:
            return self.returncode

        def end(self, patience_s: float) -> None: ...

    def launch(conf: Any, _: object) -> None:
        launched.append(conf.get("spark.driver.extraJavaOptions") or "")
        monkeypatch.setattr(jvm_process.Jvm, "started", Crashed())
        raise RuntimeError("no gateway")

    # A session that other tests of this process share is out of reach, and stays.
    for name in ("_active_spark_context", "_gateway", "_jvm"):
        monkeypatch.setattr(SparkContext, name, None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    monkeypatch.setattr(spark_session, "_sockets", SocketFolder())
    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    # The session that other tests of this process share is not this test's to end.
    for owner, name in (*((SparkContext, one) for one in OF_A_SESSION), (SparkSession, "_instantiatedSession")):
        monkeypatch.setattr(owner, name, None)
    monkeypatch.setattr(spark_session, "_sockets", SocketFolder())
    conf = {"spark.driver.extraJavaOptions": "-Dmine=1"}
    options = spark_session.SessionOptions(app_name="t", log_folder=tmp_path / "logs", conf=conf)

    with pytest.raises(ExecutorLost, match="was killed while Spark started"):
        spark_session.start_session(options)

    assert launched[0].endswith(f" -XX:SharedArchiveFile={archive} -Dmine=1")
    assert not archive.exists()
