"""The places that txtopo brings, and one that has only what the interface asks for, on the contract of places."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.place_contract import PlaceContract
from tests.kit.places import Held, HeldBucket, HeldFolder, MemoryStore
from tests.kit.s3_server import S3
from txtopo.spouts.places import object_place


class TestFolder(PlaceContract):
    """A file stays readable for whoever has opened it, whatever happens to its name."""

    @pytest.fixture
    def held(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Held:
        return HeldFolder(tmp_path, monkeypatch)


class TestBucket(PlaceContract):
    """A real server on loopback, which gives ten objects a page."""

    @pytest.fixture
    def held(self, s3: S3, monkeypatch: pytest.MonkeyPatch) -> Held:
        pytest.importorskip("obstore")
        monkeypatch.setattr(object_place, "RETRIES_MAX", 2)
        return HeldBucket(s3)


class TestMemory(PlaceContract):
    """A place that somebody else writes."""

    @pytest.fixture
    def held(self) -> Held:
        return MemoryStore()
