"""The ZooKeeper paths of one topology below the chroot, and the numbers in the names of their nodes."""

from __future__ import annotations

import re

from txtopo.core import limits
from txtopo.errors import ConfigurationError, Halted, invariant

TXID_DIGITS = 20
_TXID_NAME = re.compile(rf"[0-9]{{{TXID_DIGITS}}}")
_ATTEMPT_NAME = re.compile(r"0|[1-9][0-9]{0,9}")
_CANDIDATE_NAME = re.compile(
    r"candidate-(?P<nonce>[0-9a-f][0-9a-f-]{6,62}[0-9a-f])-(?P<sequence>[0-9]{10}|-[0-9]{9,10})"
)
_NONCE = re.compile(r"[0-9a-f][0-9a-f-]{6,62}[0-9a-f]")


class TopologyPaths:
    """The ZooKeeper paths of one topology. Raises ConfigurationError if the name is not valid.

    >>> TopologyPaths("flights").plan(7)
    '/flights/coordinator/meta/00000000000000000007'
    """

    __slots__ = ("attempts", "coordinator", "epoch", "leader", "mark", "plans", "root")

    def __init__(self, topology: str) -> None:
        if re.fullmatch(limits.NAME_PATTERN, topology) is None:
            raise ConfigurationError(f"{topology!r} is not the name of a topology: it must match {limits.NAME_PATTERN}")
        self.root = f"/{topology}"
        self.leader = f"{self.root}/leader"
        """Parent of the candidates' ephemeral nodes."""
        self.epoch = f"{self.root}/epoch"
        """The fencing token (R2, every write checks its version)."""
        self.coordinator = f"{self.root}/coordinator"
        self.mark = f"{self.coordinator}/currtx"
        """Highest txid known to be committed; may lag."""
        self.attempts = f"{self.coordinator}/currattempts"
        """Highest attempt id of each uncommitted txid."""
        self.plans = f"{self.coordinator}/meta"
        """Parent of the metadata nodes, which are create-only (R3): one for each batch. In opaque topologies each
        attempt has one, below the node of its batch.
        """

    def plan(self, txid: int) -> str:
        """Path of the metadata of one batch. Twenty digits, so that names sort like numbers."""
        invariant(0 < txid < 10**TXID_DIGITS, f"txid {txid} has no path")
        return f"{self.plans}/{txid:0{TXID_DIGITS}d}"

    def txid(self, name: str) -> int:
        """Return the txid of a child of `plans`. Raises Halted for any other name (Z14, unreadable data must halt)."""
        if _TXID_NAME.fullmatch(name) is None or int(name) == 0:
            raise self._foreign(f"{self.plans}/{name}", "is not a batch")
        return int(name)

    def cut(self, txid: int, attempt: int) -> str:
        """Path of the metadata of one batch of an opaque topology, as planned for `attempt`."""
        invariant(0 <= attempt < 10**10, f"attempt {attempt} of batch {txid} has no path")
        return f"{self.plan(txid)}/{attempt}"

    def attempt(self, txid: int, name: str) -> int:
        """Return the attempt of a child of `plan(txid)`. Raises Halted for any other name (Z14, unreadable data must
        halt).
        """
        if _ATTEMPT_NAME.fullmatch(name) is None:
            raise self._foreign(f"{self.plan(txid)}/{name}", "is not an attempt")
        return int(name)

    def candidate_prefix(self, nonce: str) -> str:
        """Path of a candidate's node, before ZooKeeper appends the sequence number."""
        invariant(_NONCE.fullmatch(nonce), f"nonce {nonce!r} is not a UUID in lower case")
        return f"{self.leader}/candidate-{nonce}-"

    def candidate(self, name: str) -> tuple[str, int]:
        """Return nonce and sequence number of a child of `leader`. The number may be negative after an overflow (Z10).
        Raises Halted for any other name (Z14, unreadable data must halt).
        """
        match = _CANDIDATE_NAME.fullmatch(name)
        if match is None:
            raise self._foreign(f"{self.leader}/{name}", "is not a candidate")
        return match["nonce"], int(match["sequence"])

    def _foreign(self, path: str, what: str) -> Halted:
        return Halted(
            f"ZooKeeper node {path} {what}; look at who wrote it and remove it",
            next_command=f"remove {path} below the chroot with ZooKeeper's own client (`delete`), and start `txtopo "
            f"run` "
            f"again",
        )
