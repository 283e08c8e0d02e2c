"""Folders of local services, and the account that they run under if the caller is root."""

from __future__ import annotations

import hashlib
import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from txtopo.errors import ConfigurationError

SHELTER = Path("/var/lib/txtopo")
"""Used by root only: for files that an unprivileged account must read although the requested folder is inside a closed
one such as /root.
"""


def home() -> Path:
    """Return the folder for txtopo's state: `$TXTOPO_HOME`, else `$XDG_STATE_HOME/txtopo`, else
    `~/.local/state/txtopo`. Does not create it.
    """
    explicit = os.environ.get("TXTOPO_HOME")
    if explicit:
        return Path(explicit).expanduser().absolute()
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # unset, empty or relative: the XDG specification says to ignore it
        state = Path.home() / ".local" / "state"
    return state / "txtopo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An unprivileged account of this machine."""

    name: str
    uid: int
    gid: int


def service_account() -> Account | None:
    """Return the account for Postgres if the caller is root, since Postgres refuses to run as root; None for an
    ordinary user. Raises ConfigurationError if there is no such account.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError as error:
        raise ConfigurationError(
            "Postgres does not run as root and this machine has no account 'nobody'; run as an ordinary user"
        ) from error
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


def can_enter(folder: Path, account: Account) -> bool:
    """True if the account may enter an existing folder. The system is asked, since permission bits alone do not decide
    it.
    """
    question = ["/bin/sh", "-c", 'test -x "$1"', "sh", str(folder)]
    answer = subprocess.run(
        question, user=account.uid, group=account.gid, extra_groups=[], cwd="/", check=False, capture_output=True
    )
    return answer.returncode == 0


def shelter_for(path: Path) -> Path:
    """Return a folder below `SHELTER` that is used for `path` only. `SHELTER` exists on return, and every account can
    enter it. Raises ConfigurationError if it cannot be created.
    """
    try:
        SHELTER.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        message = (
            f"an unprivileged Postgres cannot enter {path} and {SHELTER} cannot be made ({error.strerror}); set "
            f"TXTOPO_HOME to a folder that all may enter"
        )
        raise ConfigurationError(message) from error
    return SHELTER / hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]


def make_place(folder: Path, account: Account | None) -> Path:
    """Create `folder` for the account; if the account cannot enter it, a sheltered folder instead. Returns the folder.
    May be repeated.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if account is None:
        folder.chmod(0o700)
        return folder
    place = folder if can_enter(folder.parent, account) else shelter_for(folder)
    place.mkdir(exist_ok=True)
    os.chown(place, account.uid, account.gid)
    place.chmod(0o700)
    return place
