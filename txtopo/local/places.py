"""Where local services keep their files, and as whom they run when the caller is root."""

from __future__ import annotations

import hashlib
import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from txtopo.errors import ConfigurationError

SHELTER = Path("/var/lib/txtopo")
"""Used by root only: files that an unprivileged account must reach although the asked-for folder lies in a closed one
such as /root.
"""


def home() -> Path:
    """The folder of txtopo's own state: `$TXTOPO_HOME`, else `$XDG_STATE_HOME/txtopo`, else `~/.local/state/txtopo`.
    Not created here.
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
    """The account Postgres runs under when the caller is root, since Postgres refuses root; None for an ordinary
    user.
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
    """Whether the account may walk into an existing folder; asked of the system itself, since modes alone do not
    tell.
    """
    question = ["/bin/sh", "-c", 'test -x "$1"', "sh", str(folder)]
    answer = subprocess.run(
        question, user=account.uid, group=account.gid, extra_groups=[], cwd="/", check=False, capture_output=True
    )
    return answer.returncode == 0


def shelter_for(path: Path) -> Path:
    """A place below `SHELTER` that belongs to `path` alone; the shelter exists and can be entered by all on return."""
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
    """Make `folder`, owned by the account; where the account cannot enter it, a sheltered folder instead. Safe to
    repeat.
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
