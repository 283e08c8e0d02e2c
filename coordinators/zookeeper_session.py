"""A CoordinatorSession on a real ZooKeeper: one kazoo client with one session, which is never used again afterwards."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from txtopo.coordinators.codec import check_size
from txtopo.core import limits
from txtopo.errors import ConfigurationError, InvariantBroken, ZooKeeperUnavailable, unreachable
from txtopo.ports import (
    CheckNode,
    CreateNode,
    DeleteNode,
    NodeExists,
    NodeMissing,
    Operation,
    SessionState,
    SetNode,
    VersionDiffers,
)

START_TIMEOUT_S = 5.0
_TRIES_MAX = 5
"""Times that a repeatable call is sent when its connection is lost, all within one session timeout."""
_RECONNECT_PAUSE_MAX_S = 1.0
READS_AT_ONCE = 32
"""Nodes that are read without waiting for each other's answers: 2 MiB at most, which a slow network carries in the time
of one call.
"""
SUSPENDED_SESSIONS_MAX = 2.0
"""Session timeouts without a connection after which the session counts as LOST. kazoo reports LOST only after a
reconnect (Z5), and a wiped or restored ZooKeeper silently refuses every client that has seen a later transaction than
its own last one.
"""
_HOSTS = re.compile(r"(?P<servers>[^/,\s]+(,[^/,\s]+)*)(?P<chroot>(/(?!\.{1,2}(/|$))[A-Za-z0-9_.-]+)*)/?")


def open_session(
    hosts: str, session_s: float = limits.ZOOKEEPER_SESSION_S, start_timeout_s: float = START_TIMEOUT_S
) -> ZooKeeperSession:
    """Connect to `h1:2181,h2:2181/chroot` and create the chroot if it is missing. Raises ZooKeeperUnavailable after
    about `start_timeout_s` seconds, ConfigurationError if the address is malformed.
    """
    match = _HOSTS.fullmatch(hosts)
    if match is None:
        raise ConfigurationError(f"ZooKeeper address {hosts!r} is not of the form host:port,host:port/chroot")
    deadline = time.monotonic() + start_timeout_s
    session = ZooKeeperSession(hosts.rstrip("/"), session_s)
    try:
        session._start(start_timeout_s)
        if match["chroot"] and session.get("/") is None:
            _create_chroot(match["servers"], match["chroot"], session_s, deadline - time.monotonic())
    except BaseException:
        session.close()
        raise
    return session


def _create_chroot(servers: str, chroot: str, session_s: float, start_timeout_s: float) -> None:
    """Create the chroot with a client at the root: below a missing chroot every kazoo call fails with NoNode."""
    root = ZooKeeperSession(servers, session_s)
    try:
        root._start(start_timeout_s)
        with contextlib.suppress(NodeExists):
            root.create(chroot, b"")
    finally:
        root.close()


class ZooKeeperSession:
    """See `txtopo.ports.CoordinatorSession`. Use `open_session` to create one."""

    def __init__(self, hosts: str, session_s: float) -> None:
        self._hosts = hosts
        self._session_s = session_s
        self._state = SessionState.SUSPENDED
        self._closed = False
        self._suspended_at: float | None = None
        self._condition = threading.Condition()
        self._watches: set[_NodeWatch] = set()
        # kazoo repeats no command. This only reconnects, and never into a second session (Z2, see _listen).
        reconnect = KazooRetry(
            max_tries=-1, delay=0.1, backoff=2, max_delay=_RECONNECT_PAUSE_MAX_S, ignore_expire=False
        )
        try:
            self._client = KazooClient(
                hosts=hosts, timeout=session_s, connection_retry=reconnect, logger=_quiet_logger()
            )
        except ValueError as error:
            raise ConfigurationError(f"ZooKeeper address {hosts!r}: {error}") from error
        self._client.add_listener(self._listen)
        self._note_negotiated_timeout()

    @property
    def session_s(self) -> float:
        """Negotiated session timeout in seconds."""
        return self._session_s

    def state(self) -> SessionState:
        """Return the state that is known now. Never blocks. SUSPENDED becomes LOST after `SUSPENDED_SESSIONS_MAX`."""
        with self._condition:
            if (
                self._state is SessionState.SUSPENDED
                and self._suspended_at is not None
                and time.monotonic() - self._suspended_at > SUSPENDED_SESSIONS_MAX * self._session_s
            ):
                # kazoo may still reconnect this session, and keeps it until `close`; but nothing uses it any more.
                self._state = SessionState.LOST
                self._condition.notify_all()
            return self._state

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False) -> str:
        """See the port. Repeated when the connection is lost, so NodeExists may mean a node that this call created:
        read it back and compare. A sequential create is never repeated (Z4, a lost reply leaves an orphan in the
        queue).
        """
        check_size([CreateNode(path, data)])

        def send(client: Any) -> Any:
            return client.create_async(path, data, ephemeral=ephemeral, sequence=sequential, makepath=True)

        try:
            return str(self._call(f"create {path}", send, tries=1 if sequential else _TRIES_MAX))
        except NodeExistsError:
            raise NodeExists(path) from None
        except NoNodeError as error:
            raise ZooKeeperUnavailable(f"{self._hosts}: the chroot no longer exists; was ZooKeeper wiped?") from error

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See the port."""
        try:
            data, stat = self._call(f"get {path}", lambda client: client.get_async(path), tries=_TRIES_MAX)
        except NoNodeError:
            return None
        return data, stat.version

    def get_all(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        """See the port. At most `READS_AT_ONCE` requests are sent before the first answer is awaited: answers may be
        large, and each part has the time limit of a call.
        """
        found: list[tuple[bytes, int] | None] = []
        for start in range(0, len(paths), READS_AT_ONCE):
            part = paths[start : start + READS_AT_ONCE]
            found += self._call(f"get {part[0]} …", partial(_Reads, paths=part), tries=_TRIES_MAX)
        return found

    def children(self, path: str) -> list[str]:
        """See the port."""
        try:
            return list(self._call(f"list {path}", lambda client: client.get_children_async(path), tries=_TRIES_MAX))
        except NoNodeError:
            return []

    def multi(self, operations: Sequence[Operation]) -> None:
        """See the port. Never repeated here: only the caller can tell its own write from that of another driver."""
        check_size(operations)
        results = self._call("multi", lambda client: _transaction(client, operations).commit_async(), tries=1)
        # Z3: kazoo returns the errors and raises none. The cause is the first one that is not the consequence of
        # another.
        failures = [(o, r) for o, r in zip(operations, results, strict=True) if isinstance(r, Exception)]
        for operation, failure in failures:
            if not isinstance(failure, RolledBackError | RuntimeInconsistency):
                raise self._refusal(operation, failure)
        if failures:
            raise ZooKeeperUnavailable(f"{self._hosts}: multi failed without a reason")

    def watch(self, path: str, changed: Callable[[], None]) -> bool:
        """See the port. SUSPENDED, LOST and `close` fire it too, since kazoo forgets watches then."""
        watch = _NodeWatch(changed)
        with self._condition:
            self._watches.add(watch)
        try:
            stat = self._call(
                f"watch {path}",
                lambda client: client.exists_async(path, watch=lambda event: self._fire([watch])),
                tries=_TRIES_MAX,
            )
        except BaseException:
            self._forget(watch)
            raise
        if stat is None:
            self._forget(watch)
        return stat is not None

    def close(self) -> None:
        """See the port. kazoo may take longer than the session timeout if a host does not answer, so it ends in another
        thread.
        """
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._state = SessionState.LOST
            self._condition.notify_all()
            watches = list(self._watches)
        ending = threading.Thread(target=self._end, name="txtopo-zookeeper-close", daemon=True)
        # A process without memory for a thread is about to end: the server closes the session after its timeout.
        with contextlib.suppress(RuntimeError, MemoryError):
            ending.start()
            ending.join(self._session_s)
        self._fire(watches)

    # Below: how one call is made, and what kazoo reports from its own thread.

    def _call(self, what: str, send: Callable[[Any], Any], *, tries: int) -> Any:
        """Send a call when connected and wait for its result, at most one session timeout in total (Z7: kazoo's
        synchronous calls have no time limit). Only errors that the server answered are raised as kazoo exceptions.
        """
        deadline = time.monotonic() + self._session_s
        while True:
            tries -= 1
            self._await_connection(what, deadline)
            try:
                return send(self._client).get(timeout=max(deadline - time.monotonic(), 0.001))
            except (NoNodeError, NodeExistsError, BadVersionError):
                raise
            except (NotEmptyError, NoChildrenForEphemeralsError) as error:
                unreachable(f"{what}: {type(error).__name__}")
            except ConnectionLoss as error:
                if tries <= 0:
                    raise self._unavailable(what, error) from error
            except (KazooException, KazooTimeoutError) as error:
                raise self._unavailable(what, error) from error

    def _await_connection(self, what: str, deadline: float) -> None:
        """Wait until the session is connected. kazoo receives nothing before, so nothing waits in its queue to happen
        later (Z6).
        """
        with self._condition:
            self._condition.wait_for(
                lambda: self._state is not SessionState.SUSPENDED, timeout=max(deadline - time.monotonic(), 0)
            )
            if self.state() is not SessionState.CONNECTED:
                words = "closed" if self._closed else self._state.value
                raise ZooKeeperUnavailable(f"{self._hosts}: {what}: the session is {words}")

    def _unavailable(self, what: str, error: Exception) -> ZooKeeperUnavailable:
        return ZooKeeperUnavailable(f"{self._hosts}: {what}: {type(error).__name__}; it may still have happened")

    def _refusal(self, operation: Operation, failure: Exception) -> Exception:
        match failure:
            case NodeExistsError():
                return NodeExists(operation.path)
            case NoNodeError():
                return NodeMissing(operation.path)
            case BadVersionError():
                return VersionDiffers(operation.path)
            case NotEmptyError() | NoChildrenForEphemeralsError():
                return InvariantBroken(f"multi at {operation.path}: {type(failure).__name__}")
            case _:
                return ZooKeeperUnavailable(f"{self._hosts}: multi at {operation.path}: {type(failure).__name__}")

    def _listen(self, state: str) -> None:
        """Called in kazoo's connection thread, which continues only after this returns."""
        with self._condition:
            if state == KazooState.LOST:
                # Z2: kazoo would now open a second session and send what is queued. This flag ends its loop instead.
                self._client._stopped.set()
                self._state = SessionState.LOST
            elif self._state is not SessionState.LOST:
                connected = state == KazooState.CONNECTED
                self._state = SessionState.CONNECTED if connected else SessionState.SUSPENDED
                self._suspended_at = None if connected else time.monotonic()
            watches = list(self._watches) if self._state is not SessionState.CONNECTED else []
            self._condition.notify_all()
        self._fire(watches)

    def _fire(self, watches: Sequence[_NodeWatch]) -> None:
        for watch in watches:
            if self._forget(watch):
                watch.changed()

    def _forget(self, watch: _NodeWatch) -> bool:
        """Remove a watch. True for the one caller that removed it, so that it fires once."""
        with self._condition:
            known = watch in self._watches
            self._watches.discard(watch)
            return known

    def _note_negotiated_timeout(self) -> None:
        """Read the timeout that the server granted from the connect reply, before CONNECTED is reported. kazoo does not
        offer it.
        """
        connection = self._client._connection
        invoke = connection._invoke

        def invoke_and_note(timeout: float, request: Any, xid: int | None = None) -> Any:
            reply = invoke(timeout, request, xid)
            if isinstance(request, Connect) and reply[0].time_out > 0:
                self._session_s = reply[0].time_out / 1000
            return reply

        connection._invoke = invoke_and_note

    def _start(self, timeout_s: float) -> None:
        self._client.start_async()
        with self._condition:
            self._condition.wait_for(lambda: self._state is not SessionState.SUSPENDED, timeout=max(timeout_s, 0))
            if self._state is not SessionState.CONNECTED:
                raise ZooKeeperUnavailable(
                    f"{self._hosts} does not answer within {timeout_s:.1f} s; is it running and reachable?"
                )

    def _end(self) -> None:
        """Stop kazoo's threads. After the session was lost `stop` does nothing, so the parts are stopped one by one
        too.
        """
        for step in (self._client.stop, self._client._safe_close, self._client.close):
            try:
                step()
            except Exception as error:
                _quiet_logger().info("closing the session: %s", type(error).__name__)


class _NodeWatch:
    """One call to `watch`, compared by identity."""

    __slots__ = ("changed",)

    def __init__(self, changed: Callable[[], None]) -> None:
        self.changed = changed


class _Reads:
    """Reads of several nodes that are under way, as one result: that of a missing node is None."""

    __slots__ = ("_results",)

    def __init__(self, client: Any, paths: Sequence[str]) -> None:
        self._results = [client.get_async(path) for path in paths]

    def get(self, timeout: float) -> list[tuple[bytes, int] | None]:
        """Return all results within `timeout` seconds. Raises the errors of kazoo."""
        deadline = time.monotonic() + timeout
        found: list[tuple[bytes, int] | None] = []
        for result in self._results:
            try:
                data, stat = result.get(timeout=max(deadline - time.monotonic(), 0.001))
            except NoNodeError:
                found.append(None)
            else:
                found.append((data, stat.version))
        return found


def _transaction(client: Any, operations: Sequence[Operation]) -> Any:
    transaction = client.transaction()
    for operation in operations:
        match operation:
            case CreateNode(path=path, data=data):
                transaction.create(path, data)
            case SetNode(path=path, data=data, version=version):
                transaction.set_data(path, data, version)
            case DeleteNode(path=path):
                transaction.delete(path)
            case CheckNode(path=path, version=version):
                transaction.check(path, version)
    return transaction


def _keep_from_debug(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.INFO


def _quiet_logger() -> logging.Logger:
    """The logger that kazoo uses here: no last-resort output to the console, and never DEBUG, where kazoo writes the
    session's password.
    """
    logger = logging.getLogger("txtopo.kazoo")
    for name in ("txtopo.kazoo", "kazoo"):
        if not logging.getLogger(name).handlers:
            logging.getLogger(name).addHandler(logging.NullHandler())
    if logging.NOTSET < logger.level < logging.INFO:  # if it is not set, the program's logging configuration decides
        logger.setLevel(logging.INFO)
    if _keep_from_debug not in logger.filters:
        logger.addFilter(_keep_from_debug)
    return logger
