"""Completes ZooKeeper's connect strings, and hides passwords in any text. Pure."""

from __future__ import annotations

import re

CHROOT = "/txtopo"
"""Chroot for a ZooKeeper whose address names none."""
_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::(?P<port>\d{1,5}))?")


def zookeeper_address(text: str) -> str:
    """Return ZooKeeper's complete connect string: every host with its port, and a chroot. Raises ValueError."""
    hosts, slash, chroot = text.partition("/")
    matches = [_HOST.fullmatch(host.strip()) for host in hosts.split(",")]
    ports_fit = all(0 < int(match["port"] or 2181) < 65_536 for match in matches if match is not None)
    if not (all(matches) and ports_fit) or any(
        segment in ("", ".", "..") for segment in chroot.rstrip("/").split("/") if chroot
    ):
        raise ValueError(f"must be hosts with ports and a chroot such as zk1:2181,zk2:2181/txtopo, not {text!r}")
    joined = ",".join(f"{match['host']}:{match['port'] or 2181}" for match in matches if match is not None)
    return joined + (f"/{chroot.rstrip('/')}" if slash else CHROOT)


_SECRET = re.compile(
    r"(?P<before>://[^\s:/@]*:)[^\s]*(?=@)|(?P<word>\b(?:password|sslpassword|passfile)\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&']+)",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """Return `text` with every password of a connection string replaced by `***`."""
    return _SECRET.sub(lambda match: f"{match['before'] or match['word']}***", text)
