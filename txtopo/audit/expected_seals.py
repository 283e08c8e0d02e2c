"""Seals stored outside of the database, on paper or in an earlier report, and their comparison with the stored ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from txtopo.audit.check_seal import Chain
from txtopo.audit.verdicts import Findings
from txtopo.errors import ConfigurationError

CHECK = "kept.seals"
_SEAL = re.compile(r"(\d{1,18}):([0-9a-fA-F]{64})")
_SEALS = (
    "select txid, encode(seal, 'hex') as seal from txtopo.ledger where topology = :topology and txid = "
    "any(cast(:txids as bigint[]))"
)


@dataclass(slots=True)
class Expected:
    """Earlier seals of batches and actions, hex."""

    batches: dict[int, str] = field(default_factory=dict)
    actions: dict[int, str] = field(default_factory=dict)

    def add(self, where: dict[int, str], number: int, seal: str) -> None:
        """Add a seal. Raises ConfigurationError if two seals contradict each other."""
        if where.setdefault(number, seal.lower()) != seal.lower():
            raise ConfigurationError(f"--expect: two seals of {number} are given: {where[number]} and {seal}")


def read_expected(topology: str, given: Iterable[str]) -> Expected:
    """Return what `--expect` names: TXID:SEAL, or the file of an earlier `audit --json` of the same topology. Raises
    ConfigurationError.
    """
    expected = Expected()
    for one in given:
        if found := _SEAL.fullmatch(one):
            expected.add(expected.batches, int(found[1]), found[2])
        else:
            _read_report(topology, one, expected)
    return expected


def _read_report(topology: str, name: str, expected: Expected) -> None:
    try:
        report = json.loads(Path(name).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"--expect {name}: neither TXID:SEAL, a seal of 64 hexadecimal digits as the report prints it, nor a "
            f"report of `audit --json` ({error})"
        ) from error
    if not isinstance(report, Mapping) or report.get("schema") != "txtopo.audit/1":
        raise ConfigurationError(f"--expect {name}: this is not a report of `txtopo audit --json`")
    if report.get("topology") != topology:
        raise ConfigurationError(f"--expect {name}: this is a report about {report.get('topology')}, not {topology}")
    try:
        for batch in [*report["batches"], *([report["head"]] if report["head"] else [])]:
            if batch["seal"] is not None:
                expected.add(expected.batches, int(batch["txid"]), str(batch["seal"]))
        if report["last_action"]:
            expected.add(expected.actions, int(report["last_action"]["number"]), str(report["last_action"]["seal"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"--expect {name}: this report has no seals; it is of an older release ({error!r})"
        ) from error


def check_expected(
    findings: Findings, connection: Connection, topology: str, expected: Expected, actions: Chain, first: int
) -> None:
    """Check that the stored seals, which the audit recomputes for its range, are the expected ones. `first`: the first
    batch of the range.
    """
    bound: Mapping[str, Any] = {"topology": topology, "txids": sorted(expected.batches)}
    stored = {row.txid: row.seal for row in connection.execute(text(_SEALS), bound)}
    wrong = sorted(txid for txid, seal in expected.batches.items() if stored.get(txid) != seal)
    findings.compared(CHECK, len(expected.batches) - bool(wrong))
    if wrong:
        txid = wrong[0]
        now = stored.get(txid)
        has = "the ledger has no such batch" if txid not in stored else f"the ledger has seal {now or 'nothing'}"
        later = f"; of {len(wrong)} seals expected the first that differs" if len(wrong) > 1 else ""
        findings.equal(
            CHECK,
            False,
            f"expected is seal {expected.batches[txid]}, {has}{later}: it or an earlier batch was sealed again",
            txid,
        )
    for number, seal in sorted(expected.actions.items()):
        found = actions.seal(number)
        findings.equal(
            CHECK, found == seal, f"of action {number} seal {seal} is expected, the log has {found or 'no such action'}"
        )
    if first > 1:
        findings.by_design(
            CHECK,
            f"only seals from batch {first} on were recomputed: the kept seal proves nothing about earlier batches",
            0,
        )
