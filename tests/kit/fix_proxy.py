"""A TCP proxy between drivers and Postgres that cuts, withholds, silences or refuses exactly where a test says."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

import pytest
from sqlalchemy import make_url

_SSL_REQUEST, _GSS_REQUEST, _CANCEL_REQUEST = 80877103, 80877104, 80877102
_LEDGER_ROW = (b"insert into txtopo.ledger (", b"'applying'")
"""Both are in the statement that begins a batch; the row that begins a topology is not 'applying'."""
_LAST_WORDS_BYTES = 2_000
_CLOSE_S = 10.0


class AtCommit(Enum):
    """What happens to the COMMIT of a batch."""

    CUT_BEFORE = "cut before the bytes"
    """Both sides are cut; the server never sees COMMIT and rolls back."""
    CUT_AFTER = "cut after the bytes"
    """The server gets COMMIT and carries it out; the driver is cut once the server has answered, and never hears it.

    Cut any earlier, the driver could end the session before the server has read COMMIT: that is HOLD, the other truth.
    """
    HOLD = "hold the bytes"
    """The driver is cut, but the server is not told: its session keeps its locks, and COMMIT arrives later, at
    `release`.
    """


@dataclass(eq=False)
class _Link:
    """One connection of a driver, and the connection to the server that belongs to it."""

    client: socket.socket
    server: socket.socket
    has_ledger_row: bool = False
    """The open database transaction has inserted a ledger row: its COMMIT is that of a batch."""
    is_mute: bool = False
    last_words: bytes = b""
    answered: threading.Event = field(default_factory=threading.Event)
    """The server has said something while mute, or will say nothing more."""
    thread: threading.Thread = field(default_factory=threading.Thread)

    def cut(self) -> None:
        for side in (self.client, self.server):
            _shut(side)


class PostgresProxy:
    """Relays simple queries until told otherwise. Encryption is declined on the server's behalf, so that everything can
    be read.
    """

    def __init__(self, dsn: str) -> None:
        url = make_url(dsn)
        self._upstream = (url.host or "127.0.0.1", url.port or 5432)
        with socket.create_server(("127.0.0.1", 0)) as found:
            address = found.getsockname()
        self._listener = socket.create_server(address, backlog=64)  # a port bound by number is kept while refusing
        self.dsn = url.set(host=address[0], port=address[1]).render_as_string(hide_password=False)
        """The server as seen through this proxy."""
        self.batch_commits = 0
        """How many COMMITs of batches drivers have sent."""
        self.done: AtCommit | None = None
        """What was done to a COMMIT, once it was."""
        self.ended_with = b""
        """What the server said last on the connection whose COMMIT was touched."""
        self.far_s = 0.0
        """For so long each message of a driver is on its way to the server."""
        self._armed: tuple[AtCommit, int] | None = None
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._accepting, self._flowing, self._released = threading.Event(), threading.Event(), threading.Event()
        self._accepting.set()
        self._flowing.set()
        self._closed = False
        self._timers: list[threading.Timer] = []
        self._acceptor = threading.Thread(target=self._accept, name="proxy-accept", daemon=True)
        self._acceptor.start()

    # ------------------------------------------------------------------------------------------------------------------

    def arm(self, what: AtCommit, number: int) -> None:
        """Do it to the `number`-th COMMIT of a batch, counted from the start of the proxy; once."""
        with self._lock:
            self._armed = (what, number)

    def release(self) -> None:
        """Let the COMMIT that is held go on to the server, if that still listens."""
        self._released.set()

    def refuse(self, seconds: float | None = None) -> int:
        """Cut every connection and refuse new ones, until `accept` or for `seconds`. Return how many were cut."""
        with self._lock:
            self._accepting.clear()
            # On Linux this ends listening and keeps the port, so that nobody else can get it meanwhile.
            _shut(self._listener)
            links = list(self._links)
        for link in links:
            link.cut()
        self._later(seconds, self.accept)
        return len(links)

    def accept(self) -> None:
        """Take connections again."""
        with self._lock:
            if not self._closed and not self._accepting.is_set():
                self._listener.listen(64)
                self._accepting.set()

    def silence(self, seconds: float | None = None) -> None:
        """Take in everything and answer nothing, on old connections and new ones, until `speak` or for `seconds`."""
        self._flowing.clear()
        self._later(seconds, self.speak)

    def speak(self) -> None:
        """Relay again, what was withheld first."""
        self._flowing.set()

    @property
    def is_accepting(self) -> bool:
        """Are new connections taken?"""
        return self._accepting.is_set()

    @property
    def is_silent(self) -> bool:
        """Is everything withheld?"""
        return not self._flowing.is_set()

    def close(self) -> None:
        """Cut everything and wait for the threads."""
        for timer in self._timers:
            timer.cancel()
        with self._lock:
            self._closed = True
            links = list(self._links)
        _shut(self._listener)
        for event in (self._accepting, self._flowing, self._released):
            event.set()
        for link in links:
            link.cut()
        for thread in (self._acceptor, *(link.thread for link in links)):
            thread.join(_CLOSE_S)
            assert not thread.is_alive(), f"{thread.name} does not end"
        self._listener.close()

    # ------------------------------------------------------------------------------------------------------------------

    def _later(self, seconds: float | None, call: Callable[[], None]) -> None:
        if seconds is not None:
            timer = threading.Timer(seconds, call)
            timer.daemon = True
            timer.start()
            self._timers.append(timer)

    def _accept(self) -> None:
        while True:
            self._accepting.wait()
            if self._closed:
                return
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue  # it was told to refuse, or is being closed
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._upstream, timeout=_CLOSE_S)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        link = _Link(client, server)
        link.thread = threading.Thread(target=self._serve, args=(link,), name="proxy-link", daemon=True)
        with self._lock:
            if self._closed or not self._accepting.is_set():
                client.close()
                server.close()
                return
            self._links.add(link)
            link.thread.start()

    def _serve(self, link: _Link) -> None:
        down = threading.Thread(target=self._downwards, args=(link,), name="proxy-down", daemon=True)
        down.start()
        try:
            self._upwards(link)
        except (OSError, EOFError):
            pass
        with contextlib.suppress(OSError):
            link.server.shutdown(socket.SHUT_WR)  # the server carries out what it has got, then ends
        down.join()
        with self._lock:
            self._links.discard(link)
        link.client.close()
        link.server.close()

    def _upwards(self, link: _Link) -> None:
        for message in self._messages(link.client):
            what = self._look_at(link, message)
            if what is None:
                if self.far_s:
                    time.sleep(self.far_s)
                link.server.sendall(message)
                continue
            link.is_mute = True
            if what is AtCommit.CUT_BEFORE:
                _shut(link.server)
            if what is AtCommit.CUT_AFTER:
                link.server.sendall(message)
                link.answered.wait()
            _shut(link.client)
            self.done = what
            if what is AtCommit.HOLD:
                self._released.wait()
                link.server.sendall(message)
            return

    def _look_at(self, link: _Link, message: bytes) -> AtCommit | None:
        """What to do with a message; None: relay it."""
        if message[:1] != b"Q":
            return None
        sql = message[5:].rstrip(b"\0; \n").strip().lower()
        if all(part in sql for part in _LEDGER_ROW):
            link.has_ledger_row = True
        if sql in (b"begin", b"rollback"):
            link.has_ledger_row = False
        if sql != b"commit" or not link.has_ledger_row:
            return None
        link.has_ledger_row = False
        with self._lock:
            self.batch_commits += 1
            if self._armed is None or self._armed[1] != self.batch_commits:
                return None
            (what, _), self._armed = self._armed, None
            return what

    def _messages(self, client: socket.socket) -> Iterator[bytes]:
        """The driver's messages, whole, once they may flow."""
        while True:
            head = _exactly(client, 4)
            body = _exactly(client, struct.unpack("!i", head)[0] - 4)
            self._flowing.wait()
            kind = struct.unpack("!i", body[:4])[0]
            if kind not in (_SSL_REQUEST, _GSS_REQUEST):
                yield head + body
                break
            client.sendall(b"N")
        while kind != _CANCEL_REQUEST:
            head = _exactly(client, 5)
            message = head + _exactly(client, struct.unpack("!i", head[1:])[0] - 4)
            self._flowing.wait()
            yield message

    def _downwards(self, link: _Link) -> None:
        try:
            while data := link.server.recv(65_536):
                self._flowing.wait()
                if link.is_mute:
                    link.last_words = (link.last_words + data)[-_LAST_WORDS_BYTES:]
                    link.answered.set()
                else:
                    link.client.sendall(data)
        except OSError:
            pass
        link.answered.set()
        if link.is_mute:
            self.ended_with = link.last_words
            self._released.set()  # nobody is left to release it to
        _shut(link.client)


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _shut(side: socket.socket) -> None:
    """End both directions; wakes whoever waits on the socket."""
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def postgres_proxy(database: str) -> Iterator[PostgresProxy]:
    """A proxy in front of the server of `database`; the other fixtures go directly."""
    proxy = PostgresProxy(database)
    try:
        yield proxy
    finally:
        proxy.close()
