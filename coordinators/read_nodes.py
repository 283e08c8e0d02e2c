"""Reads what ZooKeeper holds of one topology. A node that is missing, foreign or unreadable halts with its path (Z13, a
store that was restored in part; Z14, unreadable data).
"""

from __future__ import annotations

from txtopo.coordinators import codec
from txtopo.coordinators.codec import EpochNode
from txtopo.coordinators.paths import TopologyPaths
from txtopo.core.plan import read_plan
from txtopo.core.remedies import rebuild_zookeeper
from txtopo.errors import Halted
from txtopo.ports import CoordinatorSession, CoordinatorView


class TopologyReader:
    """The half of `TopologyCoordinator` that reads. It writes nothing, so any driver or command may use it at any
    time.
    """

    def __init__(self, session: CoordinatorSession, topology: str) -> None:
        self._session = session
        self._topology = topology
        self._paths = TopologyPaths(topology)

    def read(self, plans_above: int = 0) -> CoordinatorView:
        """Return what ZooKeeper holds; see `txtopo.ports.Coordinator.read`."""
        epoch = self.epoch()
        if epoch is None:
            return CoordinatorView(incarnation=None, epoch=0, system_identifier=None, mark=0)
        plans, cuts = self._read_plans(epoch.incarnation, plans_above)
        mark, attempts = self.counters()
        return CoordinatorView(
            incarnation=epoch.incarnation,
            epoch=epoch.epoch,
            system_identifier=epoch.system_identifier,
            mark=mark,
            plans=plans,
            cuts=cuts,
            attempts=attempts,
        )

    def epoch(self) -> EpochNode | None:
        """Return the epoch node, or None if ZooKeeper holds nothing of the topology. Raises Halted if there are batches
        without an epoch (Z13).
        """
        found = self._session.get(self._paths.epoch)
        if found is None and self._session.get(self._paths.coordinator) is not None:
            # One multi creates both, maybe between the two reads; so look once more before reporting damage.
            found = self._session.get(self._paths.epoch)
            if found is None:
                raise Halted(
                    f"ZooKeeper holds {self._paths.coordinator} and no {self._paths.epoch}; it was changed by hand "
                    f"or restored in part",
                    next_command=rebuild_zookeeper(self._topology),
                )
        return None if found is None else codec.decode_epoch(found[0], self._paths.epoch)

    def _read_plans(self, incarnation: str, above: int) -> tuple[dict[int, bytes], dict[int, dict[int, bytes]]]:
        plans: dict[int, bytes] = {}
        cuts: dict[int, dict[int, bytes]] = {}
        txids = [txid for txid in self.txids() if txid > above]
        for txid, found in zip(txids, self._session.get_all([self._paths.plan(txid) for txid in txids]), strict=True):
            if found is None:
                continue  # Cleaned by the leader between the two reads (R8).
            if found[0] == codec.CUTS:
                cuts[txid] = self._read_cuts(incarnation, txid)
            else:
                self._check(found[0], self._paths.plan(txid), incarnation, txid)
                plans[txid] = found[0]
        return plans, {txid: by_attempt for txid, by_attempt in cuts.items() if by_attempt}

    def _read_cuts(self, incarnation: str, txid: int) -> dict[int, bytes]:
        cuts: dict[int, bytes] = {}
        paths = {attempt: self._paths.cut(txid, attempt) for attempt in self.attempts(txid)}
        for (attempt, path), found in zip(paths.items(), self._session.get_all([*paths.values()]), strict=True):
            if found is not None:
                self._check(found[0], path, incarnation, txid, attempt)
                cuts[attempt] = found[0]
        return cuts

    def _check(self, data: bytes, path: str, incarnation: str, txid: int, cut: int = 0) -> None:
        try:
            plan = read_plan(data, f"ZooKeeper node {path}")
        except Halted as error:
            raise Halted(error.reason, txid=txid, next_command=rebuild_zookeeper(self._topology)) from error
        if (plan.topology, plan.incarnation, plan.txid, plan.cut) != (self._topology, incarnation, txid, cut):
            raise Halted(
                f"ZooKeeper node {path} holds the plan of {plan.topology} {plan.txid}, cut {plan.cut}, incarnation "
                f"{plan.incarnation}",
                txid=txid,
                next_command=rebuild_zookeeper(self._topology),
            )

    def attempts(self, txid: int) -> list[int]:
        """Return the attempts of a batch that have a metadata node, ascending. Only batches of opaque topologies have
        any.
        """
        return sorted(self._paths.attempt(txid, name) for name in self._session.children(self._paths.plan(txid)))

    def txids(self) -> list[int]:
        """Return the txids that have a metadata node, ascending."""
        return sorted(self._paths.txid(name) for name in self._session.children(self._paths.plans))

    def counters(self) -> tuple[int, dict[int, int]]:
        """Return the mark, and the highest attempt id of each uncommitted txid. They must exist if the epoch exists:
        raises Halted if one is missing.
        """
        paths = (self._paths.mark, self._paths.attempts)
        mark, attempts = (
            self._required(path, found) for path, found in zip(paths, self._session.get_all(paths), strict=True)
        )
        return codec.decode_mark(mark, paths[0]), codec.decode_attempts(attempts, paths[1])

    def _required(self, path: str, found: tuple[bytes, int] | None) -> bytes:
        if found is None:
            raise Halted(
                f"ZooKeeper node {path} is missing although there is an epoch; it was removed by hand or restored in "
                f"part",
                next_command=rebuild_zookeeper(self._topology),
            )
        return found[0]
