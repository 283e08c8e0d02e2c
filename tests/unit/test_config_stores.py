"""Settings of the stores: passwords stay hidden, and local services fill in what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.test_config import load
from txtopo.core.connect_strings import masked
from txtopo.errors import ConfigurationError


@dataclass
class Found:
    """Local services."""

    dsn: str = "postgresql://me@127.0.0.1:5555/dev"
    zookeeper: str = "127.0.0.1:2222"


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:hush@h/d",
        "postgresql://me:hu:sh@hush@h/d",
        "host=h password=hush dbname=d",
        "host=h password='hu sh hush' dbname=d",
        "postgresql://h/d?user=me&password=hush&sslmode=require",
    ],
)
def test_a_password_is_never_shown(tmp_path: Path, dsn: str) -> None:
    """Promise: passwords never in repr, nor in errors."""
    settings = load(tmp_path, flags={"dsn": dsn})

    assert "hush" not in repr(settings) + str(settings)
    assert "hush" not in masked(f"cannot reach {dsn}")
    assert settings.dsn == dsn


def test_local_services_fill_in_what_is_missing(tmp_path: Path) -> None:
    """Promise: a newcomer types no connection string; a shorter session makes restarts quick."""
    settings = load(tmp_path).with_services(Found)

    assert (settings.dsn, settings.zookeeper) == (Found.dsn, "127.0.0.1:2222/txtopo")
    assert settings.zookeeper_session_s == 4
    assert settings.source("dsn") == "local services"


def test_a_session_that_was_given_stays(tmp_path: Path) -> None:
    """Promise: what was given is stronger than what was found."""
    assert load(tmp_path, TXTOPO_ZOOKEEPER_SESSION_S="10").with_services(Found).zookeeper_session_s == 10


def test_nothing_given_and_nothing_found_names_the_ways_out(tmp_path: Path) -> None:
    """Promise: no Postgres given: pass --dsn, set TXTOPO_DSN, or start local services with `txtopo dev up`."""
    with pytest.raises(
        ConfigurationError, match="pass --dsn, set TXTOPO_DSN, or start local services with `txtopo dev up`"
    ):
        load(tmp_path).with_services(lambda: None)


def test_stores_of_different_places_are_never_mixed(tmp_path: Path) -> None:
    """Promise: somebody's Postgres is not run with a local ZooKeeper, nor the other way round."""
    with pytest.raises(ConfigurationError, match="Postgres is given, but no ZooKeeper"):
        load(tmp_path, TXTOPO_DSN="postgresql://h/d").with_services(Found)
    with pytest.raises(ConfigurationError, match="ZooKeeper is given by environment TXTOPO_ZK, Postgres is not"):
        load(tmp_path, TXTOPO_ZK="zk").with_services(Found)


def test_reading_needs_no_zookeeper(tmp_path: Path) -> None:
    """Promise: reading commands work with Postgres alone."""
    settings = load(tmp_path, TXTOPO_DSN="postgresql://h/d")

    assert settings.with_services(Found, zookeeper=False) == settings
