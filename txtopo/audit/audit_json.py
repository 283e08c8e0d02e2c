"""An audit's report as JSON."""

from __future__ import annotations

from txtopo.audit.verdicts import AuditReport
from txtopo.reports.as_json import document, plain


def audit_json(report: AuditReport) -> str:
    """Schema `txtopo.audit/1`; findings in the order of the text, batches by txid."""
    return document("txtopo.audit/1", {**plain(report), "exit_code": report.exit_code})
