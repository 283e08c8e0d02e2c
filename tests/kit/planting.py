"""Plants faults in one filled database and audits them in the same database transaction, which is then rolled back:
each costs milliseconds.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.kit.applications import orders_topology
from tests.kit.audited import Leader
from tests.kit.orders import write_orders
from txtopo.audit.run_audit import Range, audit
from txtopo.audit.verdicts import AuditReport
from txtopo.committers.postgres.connect import make_engine

BATCHES = 7


def fill(dsn: str, folder: Path) -> None:
    """Five files; each first attempt fails; batch 2 has a rejected record; 4 is quarantined by order 1, 6 redoes it by
    order 2, 7 redoes 3 by order 3.
    """
    write_orders(folder, 5)
    with (folder / "order_0002.csv").open("a") as out:
        out.write("no/such,price\n")  # two columns too few
    with closing(Leader(dsn, orders_topology(folder))) as leader:
        leader.cut(fail_first=True, quarantined={4: "its supplier withdrew it"})
        leader.redo(4, "redrive")
        assert leader.redo(3) == BATCHES


class Planted:
    """One filled database for many plants."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder

    def audit(self, *statements: str, guarded: bool = False, recount: bool = False) -> AuditReport:
        """The report with these statements sent before; nothing of them stays. `guarded`: triggers fire as for anybody,
        and keys hold.
        """
        engine = make_engine(self.dsn, "txtopo/test", pooled=False)
        try:
            with engine.connect() as connection:
                if not guarded:
                    connection.exec_driver_sql("set local session_replication_role = replica")
                for statement in statements:
                    assert connection.exec_driver_sql(statement).rowcount != 0, f"planted nothing: {statement}"
                report = audit(connection, "orders", Range(), recount=recount, say=lambda _: None)
                connection.rollback()
                return report
        finally:
            engine.dispose()
