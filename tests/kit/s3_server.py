"""A real server of the S3 protocol on loopback, in a process of its own, and a proxy before it that fails where a test
says.

`python -m tests.kit.s3_server` serves until its standard input ends, and prints its port first.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import quote

ACCESS_KEY, SECRET_KEY = "AKCANARYCANARYCANARY", "canary/secret/canary/secret"
_SIGNED = {
    "Host": "127.0.0.1",
    "Authorization": "AWS4-HMAC-SHA256 Credential=moto/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, "
    "Signature=0",
}
Fault = Literal["503", "403", "reset", "cut", "hang", "short"]
"""503, 403: this answer. reset: none. cut: half of the body, then the connection ends. hang: half of the body, then
nothing. short: half of the body, with a length that says that this is all.
"""


@dataclass(eq=False)
class S3:
    """A bucket, as a test sees it. Everything that txtopo asks goes through the proxy."""

    port: int
    bucket: str
    proxy: Proxy

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    def create(self, *, versions: bool = False) -> None:
        """Create the bucket."""
        self._ask("PUT", f"/{self.bucket}")
        if versions:
            body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
            self._ask("PUT", f"/{self.bucket}?versioning", body)

    def put(self, key: str, data: bytes) -> str:
        """Write an object; returns its URL."""
        self._ask("PUT", f"/{self.bucket}/{quote(key)}", data)
        return f"{self.url}/{key}"

    def delete(self, key: str) -> None:
        """Remove an object."""
        self._ask("DELETE", f"/{self.bucket}/{quote(key)}")

    def _ask(self, method: str, path: str, body: bytes = b"") -> None:
        status = _forwarded(self.port, method, path, _SIGNED, body)[0]
        assert status < 300, (method, path, status)


@dataclass(eq=False)
class Proxy:
    """Forwards requests, and notes them."""

    target: int
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each request."""
    conditions: list[str | None] = field(default_factory=list)
    """`If-Match` of each request."""
    on_request: Callable[[str, str, int], Fault | None] = lambda method, path, number: None
    """Called with method, path and number (from 1) of each request before it is forwarded."""
    released: threading.Event = field(default_factory=threading.Event)
    """Ends what hangs."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[int]:
        """Serve on a free port."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            self.released.set()
            server.shutdown()
            server.server_close()
            thread.join()

    def count(self, method: str) -> int:
        """Return the number of requests of this method."""
        return sum(1 for one, _ in self.asked if one == method)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy._serve(self)

            def do_HEAD(self) -> None:
                proxy._serve(self)

            def log_message(self, *arguments: Any) -> None:
                """Say nothing."""

        return Handler

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append((request.command, request.path))
        self.conditions.append(request.headers.get("If-Match"))
        fault = self.on_request(request.command, request.path, len(self.asked))
        request.close_connection = fault is not None
        if fault == "reset":
            _reset(request.connection)
            return
        if fault in ("503", "403"):
            request.send_response(int(fault))
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        status, headers, body = _forwarded(self.target, request.command, request.path, dict(request.headers))
        kept = body[: len(body) // 2] if fault else body
        request.send_response(status)
        for name, value in headers:
            if name.lower() == "content-length" and fault == "short":
                value = str(len(kept))
            if name.lower() not in ("connection", "transfer-encoding", "date", "server"):
                request.send_header(name, value)
        request.end_headers()
        with contextlib.suppress(OSError):
            request.wfile.write(kept)
            request.wfile.flush()
        if fault == "cut":
            _reset(request.connection)
        if fault == "hang":
            self.released.wait(60)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RD)
    connection.close()


def _forwarded(
    port: int, method: str, path: str, headers: dict[str, str], body: bytes = b""
) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body or None, {**headers, "Connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


@contextlib.contextmanager
def s3_server() -> Iterator[int]:
    """Serve from a process of its own, which ends with this one; returns its port."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.kit.s3_server"]
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "moto",
        "AWS_SECRET_ACCESS_KEY": "moto",
        "MOTO_S3_DEFAULT_MAX_KEYS": "10",
    }
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


def _main() -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    _main()
