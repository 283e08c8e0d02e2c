"""What a redo may take back and what it may not: words and comparisons that every ledger shares. Pure."""

from __future__ import annotations

from txtopo.errors import BatchDataError


def check_taken(committer: str, redo_of: int, taken: int, lacking: int, expected: int | None) -> None:
    """Check that the reversed rows are the contribution of batch `redo_of`, and that the target had all of it.

    `taken` are contribution rows, `lacking` those whose target row is missing or counts less, `expected` what the
    ledger recorded, None if the batch did not have this committer.
    """
    if taken != (expected or 0):
        raise BatchDataError(
            f"committer {committer}: batch {redo_of} recorded {expected or 0} contributions, but {taken} are there: "
            "they were changed by hand; run `txtopo audit`",
            component=committer,
        )
    if lacking:
        raise BatchDataError(
            f"committer {committer}: the target lacks {lacking} of the {taken} rows that batch {redo_of} brought, or "
            f"counts less in them: "
            "it was changed by hand; run `txtopo audit`",
            component=committer,
        )


def keeps_none(committer: str, redo_of: int) -> BatchDataError:
    """A committer that cannot take anything back."""
    return BatchDataError(
        f"committer {committer} keeps no contributions, so what batch {redo_of} brought cannot be taken back",
        component=committer,
    )


def writes_own(committer: str, redo_of: int) -> BatchDataError:
    """The error for a committer of which only its code knows what it wrote."""
    return BatchDataError(
        f"committer {committer} writes by its own code, so what batch {redo_of} brought cannot be taken back",
        component=committer,
    )
