"""Java writes an archive of a few classes, and starts with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from txtopo.local.java import find_java, java_environment
from txtopo.spark.session import class_archive

pytestmark = pytest.mark.spark
OBJECT = "java/lang/Object\n"


@pytest.mark.parametrize("bundled", ["0", "1"], ids=["the machine's Java", "the wheel's Java"])
def test_java_writes_an_archive_and_starts_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundled: str
) -> None:
    """Also the Java of the wheel, which has no archive of its own classes."""
    monkeypatch.setenv("TXTOPO_IGNORE_SYSTEM_JAVA", bundled)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(class_archive.VARIABLE)
    java = find_java()
    for name, value in java_environment(java).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(class_archive, "_nobody_else_can_write", lambda path, **_: True)  # Of folders of this machine.
    (tmp_path / "some.jar").write_bytes(b"PK\x05\x06" + bytes(18))
    class_path = str(tmp_path / "some.jar")

    def note(noted: Path, work: Path) -> tuple[str, list[str]]:
        noted.write_text(OBJECT)
        return class_path, ["--add-opens=java.base/java.lang=ALL-UNNAMED", "--an-option-of-a-later-java=allow"]

    monkeypatch.setattr(class_archive, "_note_classes", note)

    assert class_archive.write() is None

    file = class_archive.usable_archive({}, os.environ)
    assert file is not None

    def starts_with(archive: Path) -> bool:
        options = ["-Xshare:on", f"-XX:SharedArchiveFile={archive}", "-cp", class_path, "-version"]
        return subprocess.run([java.executable, *options], capture_output=True, check=False).returncode == 0

    assert starts_with(file)
    file.chmod(0o644)
    with file.open("r+b") as whole:
        whole.truncate(4096)
    assert not starts_with(file), "the option is heard"
