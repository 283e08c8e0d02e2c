"""`txtopo.connect` and `txtopo.run` on a real database: what programs read, what they order, and how a run ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg2
import pytest

import txtopo
from tests.kit.applications import orders_topology
from tests.kit.filled_ledger import FilledLedger
from tests.kit.orders import write_orders
from txtopo import Client, Halted, NotFoundError, NotOrderedError, OrderOpenError, RefusedError, RunResult
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.topology.components import Topology


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    """Topology `flights`: 1 and 3 committed, 2 quarantined, 4 failed. Nobody leads."""
    with contextlib.closing(FilledLedger(database)) as filled, txtopo.connect(database) as client:
        filled.batch(1)
        filled.plan(2)
        filled.commit(2, quarantine="the file is gone")
        filled.batch(3)
        filled.plan(4)
        filled.attempt(4, 0, "failed", kind="data", component="clean", message="no hour")
        yield client


def test_a_program_reads_what_the_commands_show(client: Client) -> None:
    """Promise: status, batches, one batch, events and the audit as typed values."""
    status, report = client.status("flights"), client.audit("flights", recount=False)

    assert [one.topology for one in client.topologies()] == ["flights"]
    assert (status.last_txid, status.quarantined, status.failed_txids) == (3, 1, (4,))
    assert [(row.txid, row.state) for row in client.batches("flights")] == [
        (4, "failed"),
        (3, "committed"),
        (2, "quarantined"),
        (1, "committed"),
    ]
    assert [row.txid for row in client.batches("flights", (1, 1), (3, None), limit=2)] == [4, 3]
    assert client.batches("flights", state="quarantined").to_pandas()["txid"].tolist() == [2]
    assert client.batch("flights", 4).attempts[0].message == "no hour"
    assert {event.kind for event in client.events("flights", 4)} == {"planned", "attempt_begun", "attempt_failed"}
    assert client.events("flights").to_arrow().num_rows == len(client.events("flights")) > 4
    assert (report.topology, report.last_txid, report.holes) == ("flights", 3, (2,))


def test_what_is_not_there_is_an_error_of_its_own(client: Client) -> None:
    """Promise: a misspelt name is never an empty list."""
    with pytest.raises(NotFoundError, match="no topology 'flight': did you mean flights"):
        client.status("flight")
    for method in (client.batches, client.events, client.orders):
        with pytest.raises(NotFoundError, match="no topology 'flight'"):
            method("flight")
    with pytest.raises(NotFoundError, match="flights has no batch 9"):
        client.batch("flights", 9)
    with pytest.raises(txtopo.ConfigurationError, match=r"no topology 'flight'.*did you mean flights"):
        client.audit("flight")


def test_an_order_is_given_once_and_stands_without_a_leader(client: Client) -> None:
    """Promise: a program that is run twice gives no second order; waiting ends where nobody leads."""
    order, again = client.retry("flights", reason="fixed"), client.retry("flights")

    assert order is not None
    assert order == again
    assert (order.kind, order.txids, order.state, order.reason) == ("retry", (4,), "open", "fixed")
    assert list(client.orders("flights", state="open")) == [order]
    assert list(client.orders("flights", state="done")) == []
    with pytest.raises(OrderOpenError, match=rf"no leader of flights is alive; .*order {order.order_id}\) is open"):
        client.wait("flights", order, timeout_s=0)
    assert client.stop("flights") is None
    assert len(client.orders("flights")) == 1


def test_an_order_that_makes_no_sense_is_not_given(client: Client) -> None:
    """Promise: nothing is changed, and None says that there is nothing to do."""
    with pytest.raises(NotOrderedError, match="batch 3"):
        client.skip("flights", 3, reason="to see")
    with pytest.raises(NotOrderedError, match="a reason is needed"):
        client.skip("flights", 4, reason=" ")
    assert client.skip("flights", 2, reason="to see") is None
    assert list(client.orders("flights")) == []


def test_an_answered_order_is_returned_or_raised(client: Client, database: str) -> None:
    """Promise: what the leader answered reaches the program that waits."""
    order, other = client.retry("flights"), client.redrive("flights", (2, 2))
    assert order is not None
    assert other is not None
    _answer(database, order.order_id, "done", "1 batch was tried again")
    _answer(database, other.order_id, "refused", "its file is gone")

    assert client.wait("flights", order).answer == "1 batch was tried again"
    with pytest.raises(RefusedError, match="redrive of flights: its file is gone"):
        client.wait("flights", other)


def _answer(database: str, order_id: int, state: str, answer: str) -> None:
    """As the leader answers."""
    with contextlib.closing(psycopg2.connect(database)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            "update txtopo.request set state = %s, answer = %s, done_at = clock_timestamp() where request_id = %s",
            (state, answer, order_id),
        )


# ----------------------------------------------------------------------------------------------------------------------


def test_a_run_returns_what_it_committed_and_raises_where_it_halts(
    database: str, zookeeper_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: each run counts its own batches, those without effect apart, and a halt is an error with its batch."""
    bad: set[int] = set()

    def fail(attempt: TransactionAttempt) -> None:
        if attempt.txid in bad:
            raise BatchDataError("clean.py:3 ValueError: no price", component="clean")

    def make(topology: Topology, digest: bytes, _: Any) -> InProcessExecutor:
        return InProcessExecutor(topology, digest, faults=fail)

    monkeypatch.setattr("txtopo.app.spark_executor", make)
    topology = orders_topology(tmp_path / "in")

    def run(**more: Any) -> RunResult:
        return txtopo.run(
            topology, once=True, quiet=True, dsn=database, zookeeper=zookeeper_root, spout_poll_s=0.05, **more
        )

    write_orders(tmp_path / "in", 3)
    first = run()
    bad |= {5}
    write_orders(tmp_path / "in", 6)
    with pytest.raises(Halted) as halted:
        run(attempts_max=1)
    last = run(attempts_max=1, on_poison="quarantine_batch")

    assert first.ended == last.ended == "finished"
    assert (first.last_txid, first.batches, first.quarantined, first.exit_code) == (3, 3, 0, 0)
    assert (halted.value.txid, halted.value.exit_code) == (5, 1)
    assert (last.last_txid, last.batches, last.quarantined) == (6, 1, 1)
    with txtopo.connect(database) as client:
        assert client.status("orders").last_txid == 6
        assert [row.txid for row in client.batches("orders", state="quarantined")] == [5]
