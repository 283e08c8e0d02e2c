"""A separate Postgres server in a folder: real durability, loopback only, also if the caller is root."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import ClassVar

import psycopg2

from txtopo.errors import ConfigurationError, StoreUnavailable
from txtopo.errors import PostgresUnavailable as Unavailable
from txtopo.local.places import Account, make_place, service_account
from txtopo.local.postgres_binaries import PostgresBinaries, find_binaries
from txtopo.local.server import LocalServer

SOCKET_FOLDER_BYTES_MAX = 80
"""A socket's path may have 107 bytes on Linux and 103 on macOS, and its name takes up to 17 of them."""
INITDB_S = 120.0
"""Time limit in seconds for creating a data folder."""

SETTINGS = """\
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{sockets}'
unix_socket_permissions = 0700
max_connections = 100
shared_buffers = 32MB
max_prepared_transactions = 0
fsync = on
full_page_writes = on
synchronous_commit = on
jit = off
logging_collector = off
log_line_prefix = '%m [%p] %d '
lc_messages = 'C'
timezone = 'UTC'
log_timezone = 'UTC'
"""

WHO_MAY_CONNECT = """\
local all all              trust
host  all all 127.0.0.1/32 trust
"""


class LocalPostgres(LocalServer):
    """An embedded Postgres in `folder`.

    Example:
        with LocalPostgres(folder) as postgres:
            psycopg2.connect(postgres.dsn)
    """

    store: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT
    """Postgres' fast shutdown: sessions are ended, everything is written."""
    crash_signal: ClassVar[signal.Signals] = signal.SIGQUIT
    """Postgres' immediate shutdown: no checkpoint, the next start recovers from the log."""

    def __init__(self, folder: Path | str, *, detached: bool = False) -> None:
        super().__init__(folder, detached=detached)
        self._run_as = service_account()
        self._binaries: PostgresBinaries | None = None
        link = self.folder / "elsewhere"
        if link.is_symlink():
            self.place = link.readlink()

    @property
    def dsn(self) -> str:
        """URL of the database `postgres`, over TCP, as superuser."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def binaries(self) -> PostgresBinaries:
        """The Postgres programs used."""
        if self._binaries is None:
            self._binaries = find_binaries(self._run_as)
        return self._binaries

    @property
    def data(self) -> Path:
        """Postgres' data folder."""
        return self.place / "data"

    @property
    def socket_folder(self) -> Path:
        """Folder of the Unix socket; its path is short enough. Use it as `host=` in a DSN."""
        inside = self.place / "s"
        if len(os.fsencode(inside)) <= SOCKET_FOLDER_BYTES_MAX:
            return inside
        name = hashlib.sha256(os.fsencode(self.place)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"txtopo-{name}"

    @property
    def marker(self) -> str:
        """Text that only the command line of this server contains."""
        return str(self.data)

    def remove(self) -> None:
        """Stop the server and delete its folder with all data."""
        super().remove()
        shutil.rmtree(self.socket_folder, ignore_errors=True)

    def _account(self) -> Account | None:
        return self._run_as

    def _unavailable(self, message: str) -> StoreUnavailable:
        return Unavailable(message)

    def _prepare(self) -> None:
        self.place = make_place(self.folder, self._run_as)
        link = self.folder / "elsewhere"
        if self.place != self.folder and not link.is_symlink():
            # Another process must find the server from this folder without being root.
            link.symlink_to(self.place)
        self._make_socket_folder()
        if not (self.data / "PG_VERSION").exists():
            self._make_data()
        self._check_version()

    def _make_socket_folder(self) -> None:
        sockets = self.socket_folder
        sockets.mkdir(mode=0o700, exist_ok=True)
        found = sockets.lstat()
        if sockets.is_symlink() or found.st_uid not in (
            os.geteuid(),
            self._run_as.uid if self._run_as else os.geteuid(),
        ):
            raise ConfigurationError(f"{sockets} belongs to somebody else; remove it or set TMPDIR to your own folder")
        if self._run_as is not None:
            os.chown(sockets, self._run_as.uid, self._run_as.gid)

    def _make_data(self) -> None:
        """Run initdb in a working folder and rename it, so that an incomplete data folder is never used."""
        work = self.place / "data.new"
        shutil.rmtree(work, ignore_errors=True)
        account = self._run_as
        command = [
            str(self.binaries.folder / "initdb"),
            "-D",
            str(work),
            "-U",
            "postgres",
            "--encoding=UTF8",
            "--locale=C",
        ]
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                [*command, "--auth=trust", "--no-instructions"],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.place,
                env=self._environment(),
                timeout=INITDB_S,
                check=False,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
            if done.returncode != 0:
                said.seek(0)
                raise Unavailable(f"initdb failed in {self.folder}:\n{said.read().decode(errors='replace')}")
        work.rename(self.data)

    def _check_version(self) -> None:
        """Raise ConfigurationError if the data belongs to another major version. Postgres itself would only log an
        unclear error.
        """
        made_by = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        if made_by != self.binaries.version.split(".")[0]:
            raise ConfigurationError(
                f"the data in {self.folder} was made by Postgres {made_by}, but Postgres {self.binaries.version} is "
                f"installed; remove the folder"
            )

    def _command(self, port: int) -> list[str]:
        sockets = str(self.socket_folder).replace("'", "''")
        self._write("postgresql.conf", SETTINGS.format(port=port, sockets=sockets))
        self._write("pg_hba.conf", WHO_MAY_CONNECT)
        return [str(self.binaries.folder / "postgres"), "-D", str(self.data)]

    def _write(self, name: str, text: str) -> None:
        file = self.data / name
        file.write_text(text, encoding="utf-8")
        if self._run_as is not None:
            os.chown(file, self._run_as.uid, self._run_as.gid)

    def _answers(self, port: int) -> bool:
        # First the server's own file: while it recovers, another server may answer on the port.
        try:
            lines = (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, PermissionError):
            return False
        if len(lines) < 8 or lines[7].strip() != "ready" or lines[0].strip() != str(self.pid):
            return False
        try:
            connection = psycopg2.connect(
                host="127.0.0.1", port=port, user="postgres", dbname="postgres", connect_timeout=5
            )
        except psycopg2.OperationalError:
            return False
        with contextlib.closing(connection):
            return True
