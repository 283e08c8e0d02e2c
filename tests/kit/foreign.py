"""What a type checker sees of the installed product from a folder that has nothing to do with the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = """\
from txtopo import TopologyBuilder

builder = TopologyBuilder("orders")
reveal_type(builder)
reveal_type(builder.build())
builder.no_such_method()
"""
SEEN = [
    'note: Revealed type is "TopologyBuilder"',
    'note: Revealed type is "Topology"',
    'error: "TopologyBuilder" has no attribute "no_such_method"  [attr-defined]',
]
"""What mypy says of `PROGRAM`. Where it saw no types, everything would be Any and nothing an error."""
SETTINGS = """\
[mypy]
strict = True

[mypy-{unread}]
follow_imports = skip
follow_imports_for_stubs = True
ignore_missing_imports = True
"""
INSIDE = ("alembic", "click", "kazoo", "numpy", "pandas", "psycopg2", "py4j", "pyarrow", "sqlalchemy")
"""Packages that txtopo uses inside. None of them decides what a user's program may write, and to read them takes mypy
five times as long as all of txtopo.
"""
PARTS_OF_PYSPARK = ("pyspark.ml", "pyspark.mllib", "pyspark.pandas", "pyspark.sql.connect")
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("[a-z]*.py"))
"""Programs that use all of the public face."""


def with_programs(folder: Path) -> list[Path]:
    """Copies of them, in a folder outside of the checkout."""
    return [Path(shutil.copy(program, folder)) for program in PROGRAMS]


def mypy_says(folder: Path, *programs: Path, without: tuple[str, ...] = (), **environment: str) -> str:
    """What `mypy --strict` says of programs when it is started in a folder outside of the checkout, with nothing of
    the checkout's settings. It reads neither `INSIDE` nor what is named in `without`.
    """
    unread = ",".join(f"{package}.*" for package in (*INSIDE, *without))
    (folder / "mypy.ini").write_text(SETTINGS.format(unread=unread), encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file", str(folder / "mypy.ini"), "--no-error-summary"),
            *("--cache-dir", str(folder / "cache"), *(str(program) for program in programs)),
        ],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def pyright_says(folder: Path, installed: Path | None = None) -> list[tuple[str, int, str]]:
    """What pyright in its mode `strict` says of the programs in a folder outside of the checkout: file, line, and its
    rule. With `installed`, of a folder with another install, which then comes first.
    """
    programs = sorted(program.name for program in folder.glob("*.py"))
    settings = {"typeCheckingMode": "strict", "include": programs, "extraPaths": [str(installed)] if installed else []}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(folder)],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == len(programs)
    return [
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1, one.get("rule") or one["message"])
        for one in found["generalDiagnostics"]
    ]


def checked(folder: Path, *more: str, **environment: str) -> list[str]:
    """What `mypy --strict` says of `PROGRAM` with more lines; names without their modules."""
    program = folder / "use.py"
    program.write_text("\n".join([*more, PROGRAM]), encoding="utf-8")
    said = mypy_says(folder, program, without=("pyspark",), **environment)
    lines = re.findall(r"^[^:]*use\.py:\d+: (.*)$", said, re.MULTILINE)
    return [re.sub(r"\b(?:\w+\.)+(?=\w)", "", line) for line in lines] or [said]
