"""Counts round trips to Postgres: a process between driver and server that relays bytes, and counts how often the
driver speaks after the server did.
"""

from __future__ import annotations

import multiprocessing
import select
import socket
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

from sqlalchemy import make_url

PIECE = 65_536


class CountingProxy:
    """A server on a free port of 127.0.0.1 that leads to the Postgres of `dsn`, in a separate process."""

    def __init__(self, dsn: str) -> None:
        url = make_url(dsn)
        self._upstream = (url.host or "127.0.0.1", url.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.dsn: str = url.set(port=self._listener.getsockname()[1]).render_as_string(hide_password=False)
        """The same database, through the proxy."""
        self._here, self._there = multiprocessing.Pipe()
        self._process: BaseProcess | None = None

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=_relay, args=(self._listener, self._upstream, self._there), daemon=True)
        self._process.start()
        self._listener.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.join()

    def count(self) -> int:
        """Return the number of round trips until now."""
        self._here.send(None)
        return int(self._here.recv())


class Turns:
    """Counts the turns of one conversation.

    >>> turns = Turns()
    >>> [turns.said(by_client) for by_client in (True, True, False, False, True)]
    [1, 0, 0, 0, 1]
    """

    def __init__(self) -> None:
        self._client_spoke = False

    def said(self, by_client: bool) -> int:
        """Note who sent bytes; returns 1 if a round trip begins with them."""
        begins = by_client and not self._client_spoke
        self._client_spoke = by_client
        return int(begins)


def _relay(listener: socket.socket, upstream: tuple[str, int], asked: Connection) -> None:
    """Relay all connections until the process is ended."""
    other: dict[socket.socket, socket.socket] = {}
    clients: set[socket.socket] = set()
    turns: dict[socket.socket, Turns] = {}
    trips = 0
    while True:
        waited: list[Any] = [listener, asked, *other]
        ready, _, _ = select.select(waited, [], [])
        for one in ready:
            if one is asked:
                asked.recv()
                asked.send(trips)
            elif one is listener:
                client, server = listener.accept()[0], socket.create_connection(upstream)
                for side in (client, server):
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                other |= {client: server, server: client}
                clients.add(client)
                turns[client] = turns[server] = Turns()
            elif one in other:
                trips += _pass_on(one, other, turns, one in clients)


def _pass_on(
    one: socket.socket, other: dict[socket.socket, socket.socket], turns: dict[socket.socket, Turns], by_client: bool
) -> int:
    """Relay what one side sent; close both sides if it ended. Returns the round trips that begin."""
    try:
        if piece := one.recv(PIECE):
            other[one].sendall(piece)
            return turns[one].said(by_client)
    except OSError:
        pass
    for side in (one, other[one]):
        side.close()
        del turns[side]
    del other[other[one]], other[one]
    return 0
