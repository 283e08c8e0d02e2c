"""`txtopo audit` on a database of the test's own: run it, read what it said, plant a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.audited import behind_the_back
from txtopo.cli import main


class Audited:
    """A database with the command line at hand; `TXTOPO_DSN` names it."""

    def __init__(self, dsn: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.dsn = dsn
        self.folder = folder
        """Of the input files."""
        self._capsys = capsys

    def audit(self, *arguments: str, topology: str = "orders") -> tuple[int, Any]:
        """Exit code and JSON."""
        code = main(("audit", topology, "--json", *arguments))
        said = self._capsys.readouterr()
        return code, json.loads(said.out) if said.out else said.err

    def text(self, *arguments: str, topology: str = "orders") -> tuple[int, str]:
        """Exit code and text."""
        code = main(("audit", topology, *arguments))
        return code, self._capsys.readouterr().out

    def plant(self, *statements: str) -> None:
        """Change the database as a superuser can."""
        behind_the_back(self.dsn, *statements)

    def file(self, txid: int) -> Path:
        """The file of a batch of orders."""
        return self.folder / f"order_{txid:04}.csv"


def findings(report: Any, verdict: str = "MISMATCH") -> list[Any]:
    """Those with that verdict."""
    return [one for one in report["findings"] if one["verdict"] == verdict]


@contextmanager
def kept_as_they_are(folder: Path) -> Iterator[None]:
    """Puts the files of a folder back as they were, whatever a test made of them."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    yield
    for path in folder.iterdir():
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()
    for path, content in before.items():
        path.write_bytes(content)
