"""Spark's settings that change results or guard them; no PySpark in here, so that they can be part of the code hash cheaply."""

from __future__ import annotations

from collections.abc import Mapping

RESULT_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.caseSensitive": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
}
"""Set by txtopo, asserted at start, and not for the user to change (R12, K3)."""
