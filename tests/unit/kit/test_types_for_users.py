"""An editable install shows its types to users' programs, as the wheel does."""

from __future__ import annotations

from pathlib import Path

from tests.kit.foreign import SEEN, checked


def test_a_type_checker_sees_the_types_of_an_editable_install(tmp_path: Path) -> None:
    """Promise: in what `make setup` installs, mypy --strict finds every type from a foreign folder; an install whose
    import hook hides them would make all of it Any, and no slip an error.
    """
    assert checked(tmp_path) == SEEN
