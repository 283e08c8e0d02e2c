"""Finds plans and remembered files that belong to no batch, and holds what is remembered ahead of the commits against
its plans.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from txtopo.audit import audit_statements as sql
from txtopo.audit.check_plan import DIGEST
from txtopo.audit.check_source import FILES, Source
from txtopo.audit.verdicts import Findings
from txtopo.reports.cursors import InStep
from txtopo.reports.text import counted


def check_strays(findings: Findings, connection: Connection, topology: str, committed: int, source: Source) -> None:
    """Everything planned that is not committed. `committed`: the last batch that is. A stray file would never be read
    as new input.
    """
    bound = {"topology": topology, "committed": committed}
    for row in connection.execute(text(sql.STRAY_PLANS), bound):
        findings.wrong(
            DIGEST,
            f"it has a plan, but the last batch committed is {committed}, and no plans lead from there to it",
            row.txid,
        )
    for row in connection.execute(text(sql.STRAY_FILES), bound):
        findings.wrong(
            FILES,
            f"it is remembered as the batch of {counted(row.number, 'file')}, first {row.path} of spout {row.spout}, "
            "but it is neither in the ledger nor planned",
            row.txid,
        )
    _check_ahead(connection, topology, committed, source)


def _check_ahead(connection: Connection, topology: str, committed: int, source: Source) -> None:
    ahead = {"topology": topology, "first": committed + 1, "last": 2**63 - 1}
    plans, files = InStep(connection, sql.PLANS, **ahead), InStep(connection, sql.FILES, **ahead)
    while (txid := plans.next_txid) is not None:
        cuts: list[Any] = plans.take(txid)
        consumed = files.take(txid)
        if len(cuts) == 1:  # of a batch that was cut again nobody knows yet which cut counts
            source.check_planned(cuts[0], consumed)
