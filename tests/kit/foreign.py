"""What a type checker sees of the installed product from a folder that has nothing to do with the checkout."""

from __future__ import annotations

import os
import re
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


def checked(folder: Path, *more: str, **environment: str) -> list[str]:
    """What `mypy --strict` says of `PROGRAM` with more lines, in a folder outside of the checkout; names without their
    modules.
    """
    program = folder / "use.py"
    program.write_text("\n".join([*more, PROGRAM]), encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={folder}/cache", str(program)],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    lines = re.findall(r"^[^:]*use\.py:\d+: (.*)$", done.stdout, re.MULTILINE)
    return [re.sub(r"\b(?:\w+\.)+(?=\w)", "", line) for line in lines] or [done.stdout + done.stderr]
