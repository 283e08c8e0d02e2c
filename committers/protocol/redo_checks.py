"""Checks of a redo before it reverses what its batch contributed; the same for every ledger. Pure."""

from __future__ import annotations

from txtopo.errors import BatchDataError


def check_reversed(committer: str, redo_of: int, found: int, lacking: int, expected: int | None) -> None:
    """Check that the reversed rows are the contribution of batch `redo_of`, and that the target contained all of it.

    `found` is the number of contribution rows that were reversed, `lacking` the number of those whose target row is
    missing or counts less. `expected` is the number that the ledger recorded, None if the batch did not have this
    committer. Raises BatchDataError if they disagree.
    """
    if found != (expected or 0):
        raise BatchDataError(
            f"committer {committer}: batch {redo_of} recorded {expected or 0} contributions, but {found} exist: "
            "they were changed by hand; run `txtopo audit`",
            component=committer,
        )
    if lacking:
        raise BatchDataError(
            f"committer {committer}: {lacking} of the {found} rows that batch {redo_of} contributed are missing in the "
            f"target, or count less there: "
            "it was changed by hand; run `txtopo audit`",
            component=committer,
        )


def no_contributions(committer: str, redo_of: int) -> BatchDataError:
    """The error for a committer without a contribution table."""
    return BatchDataError(
        f"committer {committer} keeps no contributions, so batch {redo_of} cannot be reversed",
        component=committer,
    )


def irreversible_code(committer: str, redo_of: int) -> BatchDataError:
    """The error for a custom committer: only its code knows what it wrote."""
    return BatchDataError(
        f"committer {committer} is custom code, so batch {redo_of} cannot be reversed",
        component=committer,
    )


def values_were_read(committer: str, redo_of: int) -> BatchDataError:
    """The error for a committer whose new values are read downstream."""
    return BatchDataError(
        f"committer {committer} passes on its values, and what followed from those of batch {redo_of} cannot be "
        f"reversed",
        component=committer,
    )
