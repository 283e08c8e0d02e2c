"""A server that lists very many objects with the protocol of S3, and has nothing else: pages are made when they are
asked for.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000
"""Number of names on a page, as S3 has it."""


@dataclass(eq=False)
class LongListing:
    """The keys of a bucket, and what was asked of it."""

    keys: Sequence[str]
    """In the order of their bytes."""
    pages: int = 0
    others: list[str] = field(default_factory=list)
    """Requests for anything but a page."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[int]:
        """Serve on a free port."""
        listing = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                listing._answer(self)

            def do_HEAD(self) -> None:
                listing.others.append(self.path)
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        if asked.get("list-type") != "2":
            self.others.append(request.path)
        self.pages += 1
        body = self._page(asked).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/xml")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _page(self, asked: dict[str, str]) -> str:
        after = asked.get("continuation-token", asked.get("start-after", ""))
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        names: dict[str, bool] = {}
        """Key or common prefix -> whether it is a prefix."""
        last = ""
        for at in range(bisect_right(self.keys, after), len(self.keys)):  # A copy would count as memory of the client.
            key = self.keys[at]
            if not key.startswith(prefix):
                continue
            below, slash, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
            name = f"{prefix}{below}{slash}" if slash else key
            if slash and after.startswith(name):
                continue
            if name not in names and len(names) == PAGE:
                return self._xml(names, last)
            names[name] = bool(slash)
            last = key
        return self._xml(names, None)

    def _xml(self, names: dict[str, bool], token: str | None) -> str:
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-11-01T10:00:00.000Z</LastModified>"
            f"<ETag>&quot;{hash(name) & 0xFFFFFFFF:032x}&quot;</ETag><Size>7</Size></Contents>"
            for name, is_prefix in names.items()
            if not is_prefix
        )
        prefixes = "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            for name, is_prefix in names.items()
            if is_prefix
        )
        more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        return (
            f'<?xml version="1.0"?><ListBucketResult><IsTruncated>{"true" if token else "false"}</IsTruncated>{more}'
            f"{contents}{prefixes}</ListBucketResult>"
        )
