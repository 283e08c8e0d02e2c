"""What every fault test starts from: both stores, an empty folder of input, and drivers that are always killed at the
end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.drivers import World


@pytest.fixture
def world(database: str, zookeeper_root: str, tmp_path: Path) -> Iterator[World]:
    """A database and a ZooKeeper root of the test's own."""
    folder = tmp_path / "orders"
    folder.mkdir()
    made = World(database, zookeeper_root, folder, tmp_path)
    yield made
    made.close()
