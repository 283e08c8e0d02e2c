"""Errors of the operating system about a source: whose fault each is, wherever it comes, and that each comes to an end."""  # noqa: E501

from __future__ import annotations

import errno
import os
import socket
import ssl
import urllib.error
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.kit.applications import orders_topology
from tests.kit.machines import Hand, ready
from tests.kit.orders import recount, write_orders
from tests.kit.planted import NUMBERS, planted
from tests.simulation.test_crash_walk import totals
from txtopo.core import limits
from txtopo.core.events import AttemptEnded, CutFailed, End
from txtopo.core.health import health_of
from txtopo.core.os_errors import FAULTS, fault_of
from txtopo.core.state import Rules, State
from txtopo.core.unreadable import waiting_for
from txtopo.core.values import Failed, Failure, Outcome, Processed, TransactionAttempt
from txtopo.ports import Assignment
from txtopo.spouts.formats.csv import ranges as csv_ranges
from txtopo.testing.inprocess import InProcessExecutor
from txtopo.testing.simulated import SimulatedDriver, SimulatedStores
from txtopo.topology.components import SpoutContext, Topology

KIND_OF = {"gone": "data", "data": "data", "rights": "halt", "source": "infrastructure", "host": "infrastructure"}


WAITED_FOR = """EIO ESTALE ETIMEDOUT EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH ENETRESET ENOTCONN ECONNREFUSED ECONNRESET ECONNABORTED EPIPE
EREMOTEIO ENOLINK EAGAIN EINTR EBUSY ENOLCK EBADF"""  # noqa: E501
MEANT = {
    **dict.fromkeys(WAITED_FOR.split(), "source"),
    **dict.fromkeys(["EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "EDQUOT", "EROFS"], "host"),
    **dict.fromkeys(["ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG", "ENXIO", "ENODEV"], "gone"),
    **dict.fromkeys(["EACCES", "EPERM"], "rights"),
}
"""Written down once more, so that no number changes its meaning unnoticed."""


def test_each_number_is_in_one_list_and_a_number_in_none_is_data() -> None:
    """What is waited for, what is not there, what may not be read: by the number alone, and any other is data."""
    named = [name for names in FAULTS.values() for name in names]
    meant = {getattr(errno, name): fault for name, fault in MEANT.items() if hasattr(errno, name)}

    assert len(named) == len(set(named))
    assert {number: fault_of(OSError(number, "x")) for number in errno.errorcode} == {
        number: meant.get(number, "data") for number in errno.errorcode
    }


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (OSError("words alone"), "data"),
        (TimeoutError("no answer"), "source"),
        (ConnectionError("gone"), "source"),
        (ConnectionResetError(), "source"),
        (socket.gaierror(socket.EAI_AGAIN, "no name server"), "source"),
        (ssl.SSLError(1, "certificate verify failed"), "data"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "data"),
        (ssl.SSLEOFError(8, "eof"), "source"),
        (urllib.error.URLError(ConnectionRefusedError(errno.ECONNREFUSED, "refused")), "source"),
        (urllib.error.URLError("no such scheme"), "data"),
    ],
)
def test_an_error_without_a_number_of_the_system_is_judged_by_its_class(error: OSError, fault: str) -> None:
    """The number 1 of TLS is not EPERM."""
    assert fault_of(error) == fault


def test_an_error_of_a_library_is_judged_by_what_it_wraps() -> None:
    """As libraries for HTTP do: OSErrors of their own, without a number, raised over another."""

    class LibraryError(OSError):
        pass

    try:
        try:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        except OSError as refused:
            raise RuntimeError("no connection left") from refused
    except RuntimeError as error:
        wrapped = LibraryError("away")
        wrapped.__context__ = error
    assert fault_of(wrapped) == "source"
    wrapped.__cause__ = wrapped  # a ring ends
    assert fault_of(wrapped) == "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_orders(tmp_path / "orders", 3, rows=4)
    return tmp_path / "orders"


def batch_of(topology: Topology) -> Assignment:
    """All files as one planned batch."""
    now = [0.0]
    context = SpoutContext(topology="t", spout="s", consumed={}, once=True, monotonic=lambda: now[0], say=print)
    coordinator = topology.spouts[0].spout.open_coordinator(context)
    coordinator.is_ready()
    now[0] = 10.0
    assert coordinator.is_ready()
    return Assignment(attempt=TransactionAttempt(1, 0), metadata={"files": coordinator.initialize_transaction(1, None)})


@pytest.mark.parametrize("reading", ["in blocks", "window by window"])
def test_an_error_at_any_access_of_an_attempt_fails_it_by_its_kind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    """Open, stat, read, close: it names the file and the error, and never is a batch without these records."""
    path = folder / "order_0002.csv"
    if reading == "in blocks":
        monkeypatch.setattr(csv_ranges, "BLOCK_BYTES", 64)  # so that pyarrow reads the file itself
    else:
        path.write_text(path.read_text() + '9999,"a ""shop""",a1,1,1.00\n')
    topology = orders_topology(folder, files_per_batch=3)
    batch = batch_of(topology)

    def attempt() -> Outcome:
        (outcome,) = InProcessExecutor(topology, b"code").process([batch])
        return outcome

    good, clean = planted(monkeypatch, str(path), attempt)
    assert isinstance(good, Processed)
    assert clean.accesses[:2] == ["open", "fstat"] and clean.accesses[-2:] == ["fstat", "close"]
    everywhere = [(first, number) for first in range(len(clean.accesses)) for number in NUMBERS.values()]
    for first, number in [*everywhere, *((0, getattr(errno, name)) for names in FAULTS.values() for name in names)]:
        outcome, _ = planted(monkeypatch, str(path), attempt, number=number, first=first)

        at = (clean.accesses[first], errno.errorcode[number])
        assert isinstance(outcome, Failed), at
        failure = outcome.failure
        assert failure.kind == KIND_OF[fault_of(OSError(number, ""))], at
        assert str(path) in failure.message and os.strerror(number) in failure.message, at
        assert (failure.component, failure.position) == ("files", str(path)), at
        assert (failure.kind == "halt") == (failure.next_command is not None)


def run(topology: Topology, stores: SimulatedStores) -> tuple[End, list[str]]:
    driver = SimulatedDriver(topology=topology, stores=stores, seed=3, rules=Rules(workers=2, attempts_max=2))
    return driver.run(), driver.said


def test_a_run_over_nothing_halts_until_a_file_was_there_once(tmp_path: Path) -> None:
    """A cron job with a typo is never green; one whose files are counted and moved away is."""
    folder, stores = tmp_path / "in", SimulatedStores()
    folder.mkdir()
    topology = orders_topology(folder)
    for _ in range(2):
        end, _ = run(topology, stores)
        assert (end.kind, end.txid) == ("halted", 1)
        assert f"orders has no input: no file matches '{folder}'" in end.reason and end.next_command is not None

    (path,) = write_orders(folder, 1, rows=2)
    assert run(topology, stores)[0].kind == "finished"
    path.unlink()
    end, said = run(topology, stores)
    assert end.kind == "finished"
    assert any("all that did are counted" in line for line in said)
    folder.rmdir()
    end, _ = run(topology, stores)
    assert end.kind == "halted" and "No such file or directory" in end.reason


@pytest.mark.parametrize("times", [1, 10_000], ids=["once", "for ever"])
@pytest.mark.parametrize("name", ["ENOENT", "EACCES", "EIO", "EINVAL"])
def test_an_error_at_any_access_of_a_run_is_waited_out_or_told_and_never_endless(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, times: int
) -> None:
    """Planned, processed or neither: the counts are right, or the run halts over this file, or it says that the file is
    left for the next run.
    """
    path = str(folder / "order_0002.csv")
    (folder / "order_0003.csv").unlink()
    topology = orders_topology(folder)
    _, clean = planted(monkeypatch, path, lambda: run(topology, SimulatedStores()))
    assert {"stat", "open", "fstat", "read", "close"} == set(clean.accesses)

    for first in range(len(clean.accesses)):
        stores = SimulatedStores()
        (end, said), _ = planted(
            monkeypatch, path, partial(run, topology, stores), number=NUMBERS[name], first=first, times=times
        )

        if end.kind == "finished" and totals(stores) != recount(folder):
            assert any(path in line and "left for the next run" in line for line in said) or _hidden(
                name, clean.accesses[first]
            ), (first, said)
        elif end.kind != "finished":
            assert end.kind == "halted" and path in end.reason and os.strerror(NUMBERS[name]) in end.reason
        assert run(topology, stores)[0].kind == "finished"
        assert totals(stores) == recount(folder)


def test_a_once_run_does_not_end_without_a_file_that_changed_while_it_waited(folder: Path) -> None:
    """Promise: what had settled when the run began is counted by it, as it is when it has settled again."""
    stores, path = SimulatedStores(), folder / "order_0003.csv"
    changed: list[int] = []

    def change(state: State) -> None:
        if state.last_txid == 1 and not changed:
            changed.append(path.write_text(path.read_text() + "9999,shop 1,a1,4,1.25\n"))

    rules = Rules(workers=1, spout_pending_max=1)
    driver = SimulatedDriver(topology=orders_topology(folder), stores=stores, watch=change, rules=rules)

    assert driver.run().kind == "finished"
    assert changed and totals(stores) == recount(folder)


def _hidden(name: str, access: str) -> bool:
    """A path that the system says is not there is no input."""
    return access == "stat" and fault_of(OSError(NUMBERS[name], "")) == "gone"


def unreadable(txid: int) -> Failure:
    return Failure(
        kind="infrastructure",
        message=f"OSError: [Errno 5] Input/output error: '/in/{txid}'",
        component="s",
        position=f"/in/{txid}",
    )


def fail_often(hand: Hand, *txids: int, tries: int = limits.SOURCE_TRIES_MAX) -> None:
    for attempt in range(tries):
        for txid in txids:
            hand.tell(AttemptEnded(outcome=Failed(attempt=TransactionAttempt(txid, attempt), failure=unreadable(txid))))
        hand.tick(limits.BACKOFF_MAX_S)


def test_a_file_that_cannot_be_read_while_others_are_is_at_fault_itself_in_the_end() -> None:
    hand = ready(2)
    last = limits.SOURCE_TRIES_MAX - 1
    fail_often(hand, 1, tries=1)
    hand.succeed(2)
    for attempt in range(1, last):
        hand.tell(AttemptEnded(outcome=Failed(attempt=TransactionAttempt(1, attempt), failure=unreadable(1))))
        hand.tick(limits.BACKOFF_MAX_S)
    assert hand.state.halting is None

    hand.tell(AttemptEnded(outcome=Failed(attempt=TransactionAttempt(1, last), failure=unreadable(1))))

    (end,) = hand.of(End)
    assert end.txid == 1
    assert f"{limits.SOURCE_TRIES_MAX} attempts failed in s" in end.reason
    assert "while other batches could be read" in end.reason


def test_another_file_that_cannot_be_read_starts_the_count_anew() -> None:
    """A batch of many files that fails over one after the other gets on."""
    hand = ready(1)
    for attempt in range(3 * limits.SOURCE_TRIES_MAX):
        failure = replace(unreadable(1), position=f"/in/{attempt // (limits.SOURCE_TRIES_MAX - 1)}")
        hand.tell(AttemptEnded(outcome=Failed(attempt=TransactionAttempt(1, attempt), failure=failure)))
        hand.tick(limits.BACKOFF_MAX_S)

    assert hand.state.halting is None
    assert hand.state.batches[1].unread < limits.SOURCE_TRIES_MAX


def test_a_source_that_is_away_as_a_whole_is_waited_for() -> None:
    """Nothing else is read either, and more may come: no file is at fault."""
    hand = ready(2)
    fail_often(hand, 1, 2, tries=3 * limits.SOURCE_TRIES_MAX)

    assert hand.state.ended is None and hand.state.halting is None
    assert {batch.data_failures for batch in hand.state.batches.values()} == {0}
    hand.succeed(1, 3 * limits.SOURCE_TRIES_MAX)
    assert hand.state.batches[1].unread == 0


def test_the_last_file_of_a_run_that_cannot_be_read_halts_it() -> None:
    """Nothing is left that could tell whether the file or its source is at fault, and `--once` must not wait for ever."""  # noqa: E501
    hand = ready(2)
    hand.plans(exhausted=True)
    hand.succeed(1)
    fail_often(hand, 2)

    assert hand.state.halting is not None and hand.state.halting.txid == 2
    assert "no batch is at fault" in hand.state.halting.reason and "nothing else is left" in hand.state.halting.reason


def test_a_batch_that_is_still_read_is_waited_for_before_a_run_with_an_end_halts() -> None:
    """It will tell whether the file is at fault, or its source."""
    hand = ready(2, workers=2, message_timeout_s=1e9)
    hand.plans(exhausted=True)
    fail_often(hand, 2)
    assert hand.state.halting is None

    hand.succeed(1)
    hand.tell(
        AttemptEnded(outcome=Failed(attempt=TransactionAttempt(2, limits.SOURCE_TRIES_MAX), failure=unreadable(2)))
    )

    assert hand.state.halting is not None and "while other batches could be read" in hand.state.halting.reason


def test_trouble_of_something_else_starts_the_count_anew() -> None:
    """An executor that is lost says nothing about a file: what is counted are failures in a row."""
    hand = ready(2)
    hand.plans(exhausted=True)
    hand.succeed(1)
    for attempt in range(3 * limits.SOURCE_TRIES_MAX):
        lost = Failure(kind="infrastructure", message="executor lost")
        failure = unreadable(2) if attempt % (limits.SOURCE_TRIES_MAX - 1) else lost
        hand.tell(AttemptEnded(outcome=Failed(attempt=TransactionAttempt(2, attempt), failure=failure)))
        hand.tick(limits.BACKOFF_MAX_S)

    assert hand.state.halting is None


@pytest.mark.parametrize("named", [True, False])
def test_a_run_with_an_end_halts_where_all_that_is_left_cannot_be_read(named: bool) -> None:
    """A file server, or a broker whose errors name no file, that never comes back: several batches must not wait for
    each other for ever.
    """
    hand = ready(2)
    hand.plans(exhausted=True)
    for attempt in range(limits.SOURCE_TRIES_MAX + 1):
        for txid in (1, 2):
            if hand.state.ended is None and hand.state.batches[txid].attempt == attempt:
                failure = unreadable(txid) if named else replace(unreadable(txid), position=None)
                hand.tell(AttemptEnded(outcome=Failed(attempt=TransactionAttempt(txid, attempt), failure=failure)))
        hand.tick(limits.BACKOFF_MAX_S)

    end = hand.state.ended
    assert end is not None
    assert (end.kind, end.txid) == ("halted", 1)
    assert "no batch is at fault" in end.reason and "nothing else is left" in end.reason


def test_a_run_with_an_end_halts_where_spark_loses_its_tasks_again_and_again() -> None:
    """A worker whose disk is full for good: neither a file nor a spout is named, and nobody waits without end."""
    hand = ready(2)
    hand.plans(exhausted=True)
    hand.succeed(1)
    lost = Failure(kind="infrastructure", message="Spark lost a part of the job: No space left on device")
    for attempt in range(limits.SOURCE_TRIES_MAX):
        assert hand.state.halting is None
        hand.tell(AttemptEnded(outcome=Failed(attempt=TransactionAttempt(2, attempt), failure=lost)))
        problem = health_of(hand.state, hand.now).problem
        hand.tick(limits.BACKOFF_MAX_S)

    assert problem is not None and "the tasks of batch 2: Spark lost a part of the job" in problem
    assert hand.state.halting is not None and hand.state.halting.txid == 2
    assert "20 times in a row, and nothing else is left that could be processed" in hand.state.halting.reason


def test_trouble_that_names_no_file_is_no_batchs_fault_while_more_may_come() -> None:
    """A partition whose broker is away, beside others that are read: it is waited for, with its words in `status`."""
    hand = ready(2)
    for attempt in range(2 * limits.SOURCE_TRIES_MAX):
        failure = replace(unreadable(1), position=None)
        hand.tell(AttemptEnded(outcome=Failed(attempt=TransactionAttempt(1, attempt), failure=failure)))
        if attempt == 0:
            hand.succeed(2)
        hand.tick(limits.BACKOFF_MAX_S)

    assert hand.state.ended is None and hand.state.halting is None
    assert (hand.state.batches[1].data_failures, "the source of batch 1" in (waiting_for(hand.state) or "")) == (
        0,
        True,
    )


def test_what_cannot_be_read_is_waited_for_in_words() -> None:
    hand = ready(2)
    fail_often(hand, 1, tries=3)

    assert health_of(hand.state, hand.now).problem == f"the source of batch 1: {unreadable(1).message} (tried 3 times)"
    hand.succeed(1, 3)
    assert health_of(hand.state, hand.now).problem is None


def test_a_source_that_could_be_looked_at_again_is_no_longer_waited_for() -> None:
    hand = Hand()
    hand.tick()
    hand.tell(CutFailed(store="source", message="[Errno 5] Input/output error: '/in'"))
    assert health_of(hand.state, hand.now).problem == "source: [Errno 5] Input/output error: '/in'"

    hand.tick(limits.BACKOFF_MAX_S)
    hand.plans()
    assert health_of(hand.state, hand.now).problem is None
