"""Databases to audit: an empty one, and copies of two that were filled once a run by real commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.audited import Leader, run_batches
from tests.kit.audits import Audited, kept_as_they_are
from tests.kit.fix_postgres import fresh_database
from tests.kit.orders import write_orders
from txtopo.local.postgres import LocalPostgres

BATCHES = 6
FilledDatabase = tuple[str, Path]
"""Name of a database to copy, and the folder of its input."""


@pytest.fixture
def audited(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Audited:
    """A database in which nothing has run; its input folder is empty."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    folder = tmp_path / "in"
    folder.mkdir()
    return Audited(database, folder, capsys)


@contextmanager
def filled(
    server: LocalPostgres, template: str, folder: Path, fill: Callable[[str, Path], None]
) -> Iterator[FilledDatabase]:
    """A database that `fill` fills, to be copied."""
    with fresh_database(server, template) as dsn:
        fill(dsn, folder)
        yield dsn.rpartition("/")[2], folder


@contextmanager
def copied(
    server: LocalPostgres, source: FilledDatabase, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Audited]:
    """A copy for one test; the input files are put back afterwards."""
    name, folder = source
    with fresh_database(server, name) as dsn, kept_as_they_are(folder):
        monkeypatch.setenv("TXTOPO_DSN", dsn)
        yield Audited(dsn, folder, capsys)


def _fill_orders(dsn: str, folder: Path) -> None:
    write_orders(folder, BATCHES)
    assert run_batches(dsn, orders_topology(folder)) == BATCHES


def _fill_redone(dsn: str, folder: Path) -> None:
    write_orders(folder, BATCHES)
    with (folder / "order_0002.csv").open("a") as out:
        out.write("no/such,price\n")  # two columns too few
    third = folder / "order_0003.csv"
    with closing(Leader(dsn, orders_topology(folder))) as leader:
        leader.cut(quarantined={4: "its supplier withdrew it"})
        assert leader.redo(4, "redrive") == 7
        third.write_text(third.read_text().replace("shop 1", "shop 9"))
        assert leader.redo(3) == 8
        assert leader.redo(8) == 9


@pytest.fixture(scope="session")
def filled_with_orders(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FilledDatabase]:
    """See `orders`."""
    with filled(postgres_server, migrated_template, tmp_path_factory.mktemp("orders"), _fill_orders) as database:
        yield database


@pytest.fixture(scope="session")
def filled_with_redos(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FilledDatabase]:
    """See `redone`."""
    with filled(postgres_server, migrated_template, tmp_path_factory.mktemp("redone"), _fill_redone) as database:
        yield database


@pytest.fixture
def orders(
    postgres_server: LocalPostgres,
    filled_with_orders: FilledDatabase,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Audited]:
    """Six batches of twenty orders, committed without any fault."""
    with copied(postgres_server, filled_with_orders, capsys, monkeypatch) as database:
        yield database


@pytest.fixture
def redone(
    postgres_server: LocalPostgres,
    filled_with_redos: FilledDatabase,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Audited]:
    """Six files. Batch 2 has a rejected record; 4 is quarantined, 7 redoes it; 8 redoes 3 after its file was corrected;
    9 redoes 8.
    """
    with copied(postgres_server, filled_with_redos, capsys, monkeypatch) as database:
        yield database
