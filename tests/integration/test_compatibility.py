"""What an earlier release left in both stores is taken over and finished by a driver of this one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests import kit
from tests.integration.test_audit_seals import RELEASED, schema_before
from tests.kit.audited import select
from tests.kit.audits import Audited
from tests.kit.drivers import World, zookeeper_client
from tests.kit.orders import recount, write_orders
from txtopo.client import connect
from txtopo.committers.postgres.migrate import migrate

OPEN = 7
"""The batch that release 0.1.0 left open: failed three times, with an order to retry it."""
FIRST_FILE = 5
"""Of the input that it had not committed; four files are in its ledger."""
FILES = 3


KEPT = ("ledger", "plan", "attempt", "committer_count", "edge_count", "source_file", "rejected_row", "action")
"""Tables whose rows no later release changes or removes."""
Values = frozenset[tuple[str, str]]


def rows_of(dsn: str) -> dict[str, list[Values]]:
    """All rows of these tables, by table: columns with their values."""
    found = {table: select(dsn, f"select to_jsonb(one) from txtopo.{table} one") for table in KEPT}
    return {
        table: [frozenset((name, json.dumps(value)) for name, value in row.items()) for (row,) in rows]
        for table, rows in found.items()
    }


@pytest.fixture
def written(empty_database: str) -> dict[str, list[Values]]:
    """The rows that release 0.1.0 wrote, in a database with its schema."""
    schema_before(empty_database, RELEASED)
    connection = psycopg2.connect(empty_database)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute((Path(kit.__file__).parent / "release_0_1_0.sql").read_text(encoding="utf-8"))
    finally:
        connection.close()
    return rows_of(empty_database)


@pytest.fixture
def released(
    empty_database: str, written: dict[str, list[Values]], zookeeper_root: str, tmp_path: Path
) -> Iterator[World]:
    """The database that release 0.1.0 wrote, migrated as an operator does it, and three files that are not counted."""
    migrate(empty_database)
    folder = tmp_path / "orders"
    write_orders(folder, FILES, first=FIRST_FILE)
    world = World(empty_database, zookeeper_root, folder, tmp_path)
    yield world
    world.close()


def node(value: Any) -> bytes:
    """JSON as release 0.1.0 wrote it, spelled here so that a change of the format is seen."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def open_plan(world: World) -> bytes:
    """The plan of the open batch, made of an earlier one of that release: it knows no ctime."""
    stored, digest, incarnation = select(
        world.dsn,
        "select convert_from(bytes, 'UTF8'), encode(ledger.digest, 'hex'), incarnation::text from txtopo.plan "
        "join txtopo.ledger using (topology, txid) where txid = 6",
    )[0]
    plan = json.loads(stored)
    (file,) = plan["metadata"]["files"]["files"]
    path = world.folder / f"order_{FIRST_FILE:04}.csv"
    found = path.stat()
    file.update(
        path=str(path),
        size=found.st_size,
        inode=found.st_ino,
        mtime_ns=found.st_mtime_ns,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    assert "ctime_ns" not in file
    plan.update(txid=OPEN, kind="cut", redo_of=None, request_id=None, previous=digest, incarnation=incarnation)
    return node(plan)


def left_in_zookeeper(world: World, plan: bytes) -> None:
    """The nodes of that release: batch 6 is the last one known committed, batch 7 was attempted three times."""
    (fence,) = select(
        world.dsn,
        "select epoch, incarnation::text, owner_nonce::text, system_identifier::text "
        "from txtopo.fence, pg_control_system()",
    )
    epoch = {"v": 1, "epoch": fence[0], "incarnation": fence[1], "owner": fence[2], "system_identifier": fence[3]}
    nodes = {
        "": b"",
        "/leader": b"",
        "/epoch": node(epoch),
        "/coordinator": b"",
        "/coordinator/currtx": node({"v": 1, "txid": OPEN - 1}),
        "/coordinator/currattempts": node({"v": 1, "attempts": {str(OPEN): 2}}),
        "/coordinator/meta": b"",
        f"/coordinator/meta/{OPEN:020d}": plan,
    }
    with zookeeper_client(world.zookeeper) as client:
        for path, data in nodes.items():
            client.create(f"/orders{path}", data)


@pytest.mark.parametrize("zookeeper", ["kept", "wiped"])
def test_a_driver_finishes_what_the_first_release_left_open(
    released: World,
    written: dict[str, list[Values]],
    zookeeper: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Promise: after an upgrade a driver takes the lead, answers the open order, finishes the open batch with the
    plan that the earlier release made where ZooKeeper has kept it, and goes on; counts are right and the audit agrees.
    What the earlier release wrote stays as it was: plans, ledger and seals, attempts, numbers, actions, and its
    description beside that of the new driver.
    """
    monkeypatch.setenv("TXTOPO_DSN", released.dsn)
    plan = open_plan(released)
    if zookeeper == "kept":
        left_in_zookeeper(released, plan)
    last = OPEN + FILES - 1

    driver = released.start()

    assert driver.wait() == 0, driver.output()
    write_orders(tmp_path / "every", FIRST_FILE + FILES - 1)
    assert released.totals() == recount(tmp_path / "every")
    finished = released.query(f"select txid, state, epoch from txtopo.ledger where txid >= {OPEN} order by txid")
    assert finished == [(txid, "applied", 2) for txid in range(OPEN, last + 1)]
    ((attempt, digest),) = released.query(f"select attempt, digest from txtopo.ledger where txid = {OPEN}")
    assert attempt == 3
    assert (bytes(digest) == hashlib.sha256(plan).digest()) == (zookeeper == "kept")
    # Without its plan there is nothing to try again: the batch is made anew, and the order says so.
    answered = "done" if zookeeper == "kept" else "refused"
    assert released.query("select state from txtopo.request where request_id = 4") == [(answered,)]
    audited = Audited(released.dsn, released.folder, capsys)
    code, report = audited.audit(f"{OPEN}..{last}")
    assert (code, report["findings"]) == (0, [])
    code, report = audited.audit("--no-recount")
    assert (code, report["findings"], report["committed_txid"]) == (0, [], last)
    now = rows_of(released.dsn)
    assert {table: len(rows) for table, rows in written.items() if not rows} == {}
    assert [(table, row) for table in KEPT for row in written[table] if not any(row <= one for one in now[table])] == []
    described = "select number, epoch, encode(code_hash, 'hex') from txtopo.description order by number"
    (first, second) = released.query(described)
    assert (first[:2], second[:2]) == ((1, None), (2, 2))
    assert first[2] == "63" * 32 != second[2]
    # And a program reads old and new batches as typed values.
    with connect(released.dsn) as client:
        assert client.status("orders").last_txid == last
        assert {batch.txid for batch in client.batches("orders", limit=100)} == set(range(1, last + 1))
        assert [len(client.batch("orders", txid).attempts) > 0 for txid in range(1, last + 1)] == [True] * last
        assert {event.txid for event in client.events("orders", limit=1000)} >= set(range(1, last + 1))
        assert len(client.orders("orders").to_arrow()) == len(client.orders("orders")) == 4
