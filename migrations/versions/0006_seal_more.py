"""Seal more: times, attempts, rejected records, the description of the topology and the action log.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the SQL file of the same name unchanged."""
    sql = Path(__file__).with_suffix(".sql").read_text("utf-8")
    op.execute(sql.replace(":", r"\:"))  # a colon is no placeholder here


def downgrade() -> None:
    """Refuse: ledger rows are never removed."""
    raise NotImplementedError("the ledger is never removed; drop schema txtopo by hand if you mean it")
