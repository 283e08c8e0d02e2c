"""Backfills: rows of the ledger that count a committed batch into a committer that did not count it.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the SQL file of the same name unchanged."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.execute(sql.replace(":", r"\:"))  # a colon is no placeholder here


def downgrade() -> None:
    """Refuse: ledger rows are never removed."""
    raise NotImplementedError("the ledger is never removed; drop schema txtopo by hand if you mean it")
