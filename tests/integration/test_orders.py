"""The commands that give orders, on a real database: what they show, what they refuse, what they leave, what they end
with.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.asked import Said, answering, everything, runner
from tests.kit.filled_ledger import CODE, INCARNATION, FilledLedger
from txtopo.cli.verbs import VERBS
from txtopo.committers.postgres.ledger import PostgresLedger
from txtopo.core.plan import canonical
from txtopo.core.short_inputs import in_short
from txtopo.core.values import Failure, Lead, TransactionAttempt
from txtopo.errors import Fenced, Halted, ZooKeeperUnavailable
from txtopo.operating.orders import NewOrder, place
from txtopo.ports import AttemptStart

Run = Callable[..., Said]
FAILURE = {
    "kind": "data",
    "component": "clean",
    "position": "/data/day_005.csv:17",
    "message": "flights.py:12 ValueError: no hour",
}
ORDERING = ("retry", "skip", "redrive", "replan", "replay")


@pytest.fixture
def ledger(database: str) -> Iterator[FilledLedger]:
    """Topology `flights`: 1, 2 and 4 committed, 3 quarantined, 5 failed twice, 6 planned only. Its last leader has
    stopped.
    """
    with contextlib.closing(FilledLedger(database)) as filled:
        filled.batch(1)
        filled.batch(2)
        filled.plan(3)
        filled.commit(3, quarantine="the file is gone")
        filled.batch(4)
        filled.plan(5)
        filled.plan(6)
        filled.attempt(5, 0, "failed", **FAILURE)
        filled.attempt(5, 1, "failed", **FAILURE)
        filled.lead("stopped", planned_txid=6, description=DESCRIPTION % "true")
        yield filled


DESCRIPTION = """{"name": "flights", "spouts": {"files": {}}, "bolts": {}, "committers": {"counts": {"kind": "count", "table": "public.flights_totals",
 "keys": ["carrier"], "count": "n", "sums": {}, "contributions": %s, "input": "files"}}}"""  # noqa: E501


@pytest.fixture
def run(database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line against this test's database."""
    monkeypatch.setenv("TXTOPO_DSN", database)
    monkeypatch.setenv("TXTOPO_ZK", "127.0.0.1:9/none")
    monkeypatch.setattr("txtopo.operating.orders.POLL_S", 0.02)
    monkeypatch.setattr("txtopo.operating.orders.LEADERLESS_S", 0.3)
    return runner(capsys)


def orders(ledger: FilledLedger) -> list[Any]:
    """(kind, arguments, reason, state) of all orders."""
    with ledger.connection:
        return ledger.execute("select kind, arguments, reason, state from txtopo.request order by request_id")


# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("led", [True, False])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("retry flights", "1 batch of flights would be tried again"),
        ("retry flights 5 6", "batch 6 has not failed"),
        ("retry flights 1..5", "1 batch of flights would be tried again"),
        ("retry flights 1..4,5 6..", "no batch of 1..4 is failed"),
        ("redrive flights ..4", "1 batch of flights would be redone under a new txid"),
        ("redrive flights 4..", "no batch of 4.. is quarantined"),
        ("skip flights 6", "batch 6 of flights would be quarantined"),
        ("skip flights 6", "failed before it, and next to commit: batch 5"),
        ("redrive flights 3", "1 batch of flights would be redone under a new txid"),
        ("replan flights", "Postgres knows of no plan of flights that could be dropped; ZooKeeper may"),
        ("replay flights 1..4 --recompute --execute", None),
        ("replay flights 1,2,4 --recompute --execute", "would process 3 batches again"),
        ("replay flights 1..4 --verify", "would read the files of 3 batches again"),
    ],
)
def test_a_dry_run_changes_nothing_at_all(
    ledger: FilledLedger, run: Run, command: str, words: str | None, led: bool
) -> None:
    """Promise: `--dry-run` on each changes nothing at all, beside a leader and without one."""
    if led:
        ledger.lead(planned_txid=6, description=DESCRIPTION % "true")
    before = everything(ledger.dsn)

    said = run(*command.split(), "--dry-run")

    assert everything(ledger.dsn) == before
    if words is None:
        assert (said.code, said.out) == (1, "")
        assert "batch 3 is quarantined and contributed nothing; `txtopo redrive flights 3` redoes it" in said.err
    else:
        assert said.code == 0
        assert words in said.out
        assert "nothing was changed" in said.err


def test_a_dry_run_says_which_batch_failed_how_and_what_would_be_tried(ledger: FilledLedger, run: Run) -> None:
    """Promise: txids, state, last failure, files, attempts so far, the next attempt's number, tables touched."""
    assert run("retry", "flights", "--dry-run").out == (
        "1 batch of flights would be tried again, with the stored plan.\n"
        "\n"
        "batch 5  failed\n"
        "  failed    attempt 1, data failure in clean at /data/day_005.csv:17: flights.py:12 ValueError: no hour\n"
        "  attempts  2 so far, the next is 5:2\n"
        "  file      /data/day_005.csv  500 B\n"
        "\n"
        "  table     public.flights_totals (counts)\n"
        "  on_poison halt (default)\n"
    )


def test_a_dry_run_as_json_has_the_same(ledger: FilledLedger, run: Run) -> None:
    """Promise: --json wherever there is something to read."""
    said = run("retry", "flights", "--dry-run", "--json").json

    assert said["schema"] == "txtopo.order/1"
    assert (said["txids"], said["batches"][0]["next_attempt"], said["is_led"]) == ([5], 2, False)
    assert said["batches"][0]["failure"]["message"] == FAILURE["message"]
    assert said["tables"] == {"counts": "public.flights_totals"}


def test_a_batch_whose_plan_is_only_in_zookeeper_can_be_retried(ledger: FilledLedger, run: Run) -> None:
    """A plan whose batch cannot be processed is never mirrored: its attempts alone tell that it failed."""
    ledger.attempt(7, 0, "failed", **FAILURE)
    ledger.attempt(8, 0, "cancelled")

    said = run("retry", "flights", "--dry-run")

    assert "batch 7  failed" in said.out
    assert "not known yet: no attempt has begun, and the plan is only in ZooKeeper" in said.out
    assert "batch 8" not in said.out


def test_a_batch_that_failed_and_was_cancelled_by_the_halt_of_another_is_retried_too(
    ledger: FilledLedger, run: Run
) -> None:
    """What `status` calls failed, what the dry run names and what the order is about are the same batches."""
    ledger.attempt(6, 0, "failed", **FAILURE)
    ledger.attempt(6, 1, "cancelled")
    ledger.attempt(7, 0, "cancelled")

    said = run("retry", "flights", "--dry-run")

    assert said.out.startswith("2 batches of flights would be tried again, with the stored plan.")
    assert f"batch 6  failed\n  failed    attempt 0, data failure in clean at {FAILURE['position']}" in said.out
    assert "attempts  2 so far, the next is 6:2" in said.out
    assert "failed    batches 5, 6" in run("status", "flights").out
    assert run("show", "flights", "6").out.startswith("batch 6 of flights  FAILED")
    assert run("batches", "flights", "6..6", "--state", "failed").code == 0


FILES = [{"path": f"/data/day_{number:03}.csv", "size": 700, "sha256": f"{number:064x}"} for number in range(7, 107)]
LINES = {"path": "access.log-20150518", "upto": 4711}


@pytest.mark.parametrize(
    ("planned", "words", "paths"),
    [
        ({"files": {"files": FILES[:1]}}, ["/data/day_007.csv"], [FILES[0]["path"]]),
        (
            {"files": {"files": FILES}},
            ["/data/day_007.csv", "and 90 more files"],
            [file["path"] for file in FILES[:10]],
        ),
        ({"lines": LINES}, ['lines {"path": "access.log-20150518", "upto": 4711}'], []),
        ({"lines": {"keys": ["k" * 90] * 90}}, ['lines {"keys": ["kkk'], []),
        (
            {"files": {"files": FILES[:1]}, "lines": LINES},
            ["/data/day_007.csv", "access.log-20150518"],
            [FILES[0]["path"]],
        ),
        ({"files": {"files": FILES[:1]}, "lines": {"$idle": {}}}, ["/data/day_007.csv"], [FILES[0]["path"]]),
        ({"lines": {"nul": "a\x00b"}}, ['lines {"nul": "a'], []),
    ],
    ids=["a file", "many files", "own metadata", "long metadata", "both", "an idle spout", "what Postgres cannot hold"],
)
def test_a_batch_that_failed_before_it_was_mirrored_says_what_it_reads(
    ledger: FilledLedger, run: Run, planned: dict[str, Any], words: list[str], paths: list[str]
) -> None:
    """Promise: which file? Its plan is in ZooKeeper alone, which no reading command needs: it stands beside the
    attempt, in short.
    """
    lead = Lead(topology="flights", incarnation=INCARNATION, epoch=3, owner_nonce=str(uuid.UUID(int=8)), code_hash=CODE)
    attempt = TransactionAttempt(7, 0)
    with contextlib.closing(PostgresLedger(ledger.dsn, "flights")) as leaders:
        leaders.begin_attempts(lead, [AttemptStart(attempt=attempt, inputs=in_short(planned))])
        begun = run("show", "flights", "7")
        leaders.end_attempt(lead, attempt, "failed", Failure(kind="data", message="no", component="clean"))
    ledger.lead("halted", planned_txid=7, halted_txid=7, reason="batch 7 of flights: 3 attempts failed")

    said = {
        "begun": begun,
        "show": run("show", "flights", "7"),
        "retry": run("retry", "flights", "7", "--dry-run"),
        "skip": run("skip", "flights", "7", "--dry-run"),
        "replan": run("replan", "flights", "--dry-run"),
        "status": run("status", "flights"),
    }

    for name, one in said.items():
        for word in words if name != "status" else words[:1]:
            assert word in one.out, (name, one.out)
        assert len(one.out) < 12_000
    shown, dry, status = (
        run("show", "flights", "7", "--json"),
        run("skip", "flights", "7", "--dry-run", "--json"),
        run("status", "flights", "--json"),
    )
    assert [file["path"] for file in shown.json["files"]] == paths
    assert [file["path"] for file in dry.json["batches"][0]["files"]] == paths
    assert (
        shown.json["metadata"].keys()
        == dry.json["batches"][0]["metadata"].keys()
        == {name for name in planned if name != "lines" or "$idle" not in planned[name]}
    )
    assert status.json["topologies"][0]["failed_inputs"]["7"]
    assert "batch 5: /data/day_005.csv" in said["status"].out  # mirrored, begun by a release that kept no inputs
    assert len(str(in_short(planned))) < 10_000
    assert ("and 97 more" in said["status"].out) == (len(planned.get("files", {}).get("files", [])) == 100)


def test_metadata_that_lies_in_pieces_is_found_from_the_attempt(ledger: FilledLedger, run: Run) -> None:
    """A long list of files is a pointer in the plan, and so it is beside the attempt."""
    data = canonical({"files": FILES})
    digest = hashlib.sha256(data).hexdigest()
    with ledger.connection:
        ledger.execute("insert into txtopo.plan_part (digest, bytes) values (%s, %s)", bytes.fromhex(digest), data)
    ledger.attempt(7, 0, "failed", **FAILURE, inputs=json.dumps({"files": {"$part": digest}}))

    assert len(run("show", "flights", "7", "--json").json["files"]) == 100
    ledger.attempt(8, 0, "failed", **FAILURE, inputs=json.dumps({"files": {"$part": "00" * 32}}))
    assert "00" * 32 in run("show", "flights", "8").out


def test_the_batch_that_the_topology_halted_on_can_be_retried(ledger: FilledLedger, run: Run) -> None:
    """A batch that ends its process leaves no attempt that failed: the halt names it."""
    ledger.attempt(5, 2, "begun")
    running = run("retry", "flights", "--dry-run")
    ledger.lead("halted", planned_txid=6, halted_txid=5, reason="batch 5 of flights ends its process")

    every, named = run("retry", "flights", "--dry-run"), run("retry", "flights", "5", "--dry-run")

    assert "Nothing to retry" in running.out
    assert "batch 5  planned\n  attempts  3 so far, the next is 5:3" in every.out
    assert named.out == every.out


def test_a_replan_names_the_batches_whose_plans_were_never_mirrored(ledger: FilledLedger, run: Run) -> None:
    """Promise: drops plans that were never mirrored; mirrored ones stay."""
    ledger.attempt(7, 0, "failed", **FAILURE)
    ledger.lead("halted", planned_txid=9, halted_txid=7, reason="batch 7 of flights: 3 attempts failed")

    said = run("replan", "flights", "--dry-run")

    assert "the plans of batches 7 to 9 of flights would be dropped" in said.out
    assert "batches up to 6 are mirrored in Postgres and keep their plans" in said.out


# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("retry flihgts", "no topology 'flihgts': did you mean flights?"),
        ("retry flights 7", "flights has not planned batch 7: its batches go from 1 to 6"),
        ("retry flights 4", "batch 4 of flights is committed at 20"),
        ("retry flights 4", "`txtopo replay flights 4 --recompute`"),
        ("retry flights 3", "batch 3 of flights is quarantined\n  next: txtopo redrive flights 3"),
        ("skip flights 4 --reason x", "batch 4 of flights is committed at 20"),
        ("skip flights 9 --reason x", "has not planned batch 9"),
        ("redrive flights 4", "batch 4 of flights is not quarantined, it is committed"),
        ("redrive flights 5", "it is failed\n  next: txtopo retry flights 5"),
        ("redrive flights 7", "has not planned batch 7"),
        ("replan flihgts --reason x", "no topology 'flihgts'"),
        ("replay flights 3..4 --recompute --execute --reason x", "batch 3 is quarantined"),
        ("replay flights 3..5", "batch 5 of flights is not committed: those from 1 to 4 are"),
        ("replay flihgts 1", "no topology 'flihgts'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_do(
    ledger: FilledLedger, run: Run, command: str, words: str
) -> None:
    """Promise: an error names the batch, the cause and the next command; nothing is left behind; exit code 1."""
    before = everything(ledger.dsn)

    said = run(*command.split())

    assert (said.code, said.out) == (1, "")
    assert words in said.err
    assert everything(ledger.dsn) == before


@pytest.mark.parametrize(
    "command", ["skip flights 5", "skip flights 5 --reason", "replan flights", "replay flights 1 --recompute --execute"]
)
def test_a_change_that_must_be_explained_needs_a_reason(ledger: FilledLedger, run: Run, command: str) -> None:
    """Promise: skip, replan and recompute refuse without --reason; 2 for usage."""
    said = run(*command.split(), *([" "] if command.endswith("--reason") else []))

    assert said.code == 2
    assert "--reason TEXT is needed" in said.err
    assert orders(ledger) == []


def test_a_batch_that_is_to_be_skipped_is_not_tried_again(ledger: FilledLedger, run: Run) -> None:
    """Two orders that contradict each other: the second is refused at once, not by the leader, and nothing is ordered."""  # noqa: E501
    ledger.lead("halted", planned_txid=6, halted_txid=5, reason="batch 5 of flights: 3 attempts failed")
    order = ledger.order("skip", 5)
    before = everything(ledger.dsn)

    named, every = run("retry", "flights", "5", "--no-run"), run("retry", "flights", "--no-run")

    words = f"batch 5 of flights is to be skipped by order {order}, which is open"
    assert (named.code, every.code) == (1, 0)
    assert f"{words}: it cannot be tried again\n  next: txtopo run flights.py:topology" in named.err
    assert f"{words}. Nothing to retry." in every.out
    assert everything(ledger.dsn) == before


@pytest.mark.parametrize("state", ["halted", "stopped", "finished"])
def test_after_an_order_that_was_left_the_next_command_is_the_run_that_carries_it_out(
    ledger: FilledLedger, run: Run, state: str
) -> None:
    """Promise: `next` is what helps. Another retry or skip would not."""
    ledger.lead(
        state,
        planned_txid=6,
        halted_txid=5 if state == "halted" else None,
        reason="batch 5 of flights: 3 attempts failed",
    )
    assert run("skip", "flights", "5", "--reason", "damaged", "--no-run").code == 0

    status, batch = run("status", "flights"), run("show", "flights", "5")

    for said in (status, batch):
        assert "txtopo retry" not in said.out
        assert "txtopo skip" not in said.out
        assert "txtopo run flights.py:topology" in said.out


def test_nothing_to_retry_says_so_and_is_0(ledger: FilledLedger, run: Run) -> None:
    """Promise: nothing to do says so and exits 0; nothing is written."""
    ledger.attempt(5, 2, "begun")
    before = everything(ledger.dsn)

    every, named = run("retry", "flights"), run("retry", "flights", "6")

    assert (every.code, named.code) == (0, 0)
    assert "flights has no failed batch. Nothing to retry." in every.out
    assert "batch 6 has not failed" in named.out
    assert everything(ledger.dsn) == before


def test_an_order_to_retry_that_is_open_is_told_where_nothing_has_failed(ledger: FilledLedger, run: Run) -> None:
    """The driver that took it up has begun the attempt, and died: nothing is failed, and the order is not answered."""
    order = ledger.order("retry", 5)
    ledger.attempt(5, 2, "begun")
    before = everything(ledger.dsn)

    said = [run("retry", "flights", *named) for named in ((), ("5",), ("4..6",))]
    other = run("retry", "flights", "6")

    words = f"order {order} to retry batch 5 is open and not answered yet: the next leader carries it out"
    assert [words in one.out for one in said] == [True, True, True]
    assert all("next: txtopo run flights.py:topology" in one.out for one in said)
    assert f"order {order}" not in other.out and "batch 6 has not failed" in other.out
    assert everything(ledger.dsn) == before


def test_a_batch_that_could_not_be_planned_is_no_batch_to_retry(ledger: FilledLedger, run: Run) -> None:
    """A halt while planning leaves no batch: running the topology plans it again."""
    ledger.attempt(5, 2, "begun")
    ledger.lead("halted", planned_txid=6, halted_txid=7, reason="/data/day_007.csv has no column hour")

    every, named, skipped = (
        run("retry", "flights"),
        run("retry", "flights", "7"),
        run("skip", "flights", "7", "--reason", "x"),
    )

    assert (every.code, named.code, skipped.code) == (0, 1, 1)
    assert "it halted before batch 7 could be planned (/data/day_007.csv has no column hour)" in every.out
    assert "next: txtopo run flights.py:topology" in every.out
    assert "halted before it could plan batch 7" in named.err
    assert "there is no batch to skip yet" in skipped.err


def test_what_was_done_before_is_said_and_is_0(ledger: FilledLedger, run: Run) -> None:
    """Promise: twice commits once; the second time says so and exits 0."""
    ledger.attempt(5, 2, "applied")
    ledger.commit(5, attempt=2)
    ledger.commit(6, quarantine="bad again", redo_of=3)
    ledger.plan(7)
    open_still = run("redrive", "flights", "3", "--dry-run")  # a redo that was quarantined leaves the place free
    ledger.commit(7, redo_of=3)
    before = everything(ledger.dsn)

    head, redo, skipped = (
        run("redrive", "flights", "3"),
        run("redrive", "flights", "6"),
        run("skip", "flights", "3", "--reason", "x"),
    )

    assert "batch 3  quarantined" in open_still.out
    assert (head.code, redo.code, skipped.code) == (0, 0, 0)
    assert "batch 3 was redone as batch 7" in head.out
    assert "batch 6 was redone as batch 7" in redo.out
    assert "batch 3 of flights is quarantined already: the file is gone; nothing to do" in skipped.out
    assert everything(ledger.dsn) == before


def test_recompute_is_refused_naming_a_committer_without_contributions(ledger: FilledLedger, run: Run) -> None:
    """Promise: refused, naming the committer, unless every committer keeps contributions."""
    ledger.lead(planned_txid=6, description=DESCRIPTION % "false")

    said = run("replay", "flights", "1..2", "--recompute", "--execute", "--reason", "x")
    shown = run("replay", "flights", "1..2")

    assert said.code == 1
    assert "committer counts keeps no contributions" in said.err
    assert orders(ledger) == []
    assert (shown.code, "is not possible: committer counts keeps no contributions" in shown.out) == (0, True)


# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "order"),
    [
        ("skip flights 5 --reason damaged", ("skip", {"txids": [5]}, "damaged", "done")),
        ("redrive flights 3", ("redrive", {"txids": [3]}, None, "done")),
        ("replan flights --reason schema", ("replan", {}, "schema", "done")),
        (
            "replay flights 4,1..2 --recompute --execute --reason fixed",
            ("recompute", {"txids": [1, 2, 4]}, "fixed", "done"),
        ),
    ],
)
def test_an_order_is_left_for_the_leader_and_followed(ledger: FilledLedger, run: Run, command: str, order: Any) -> None:
    """Promise: beside a live leader it is an order that the leader carries out, and the command follows along."""
    ledger.lead(planned_txid=6, description=DESCRIPTION % "true")

    with answering(ledger.dsn, "done", "so it was"):
        said = run(*command.split(), "--timeout", "30")

    assert said.code == 0
    assert said.out.endswith(" of flights: so it was\n")
    assert "the leader on box, pid 4711" in said.err
    assert orders(ledger) == [order]
    with ledger.connection:
        ((actor, host),) = ledger.execute("select actor, host from txtopo.request")
    assert actor
    assert host


def test_following_tells_what_happens_to_the_batch(
    ledger: FilledLedger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: the command follows along; what happened before it is not told again."""
    ledger.lead(planned_txid=6)
    looks = []

    def leader_at_work(*_: Any, **__: Any) -> Any:
        looks.append(1)
        if len(looks) == 2:
            ledger.attempt(5, 2, "applied")
            ledger.commit(5, attempt=2)
            with ledger.connection:
                ledger.execute(
                    "update txtopo.request set state = 'done', answer = 'batch 5 is committed', done_at = now()"
                )
        return look(*_, **__)

    from txtopo.operating import orders as module

    look = module._look
    monkeypatch.setattr(module, "_look", leader_at_work)

    said = run("retry", "flights", "5", "--timeout", "30")

    assert said.code == 0
    assert said.out == "retry of flights: batch 5 is committed\n"
    assert said.err.splitlines()[1:] == ["batch 5: committed"]


def test_a_retry_that_failed_again_is_1(ledger: FilledLedger, run: Run) -> None:
    """Promise: 1 refused or failed again, with the failure's words; also where the answer was `done` for others."""
    ledger.lead(planned_txid=6)
    with answering(ledger.dsn, "refused", "failed again: no hour"):
        refused = run("retry", "flights", "--timeout", "30")
    with answering(ledger.dsn, "done", "batch 9 is committed; failed again: no minute"):
        mixed = run("retry", "flights", "--timeout", "30")

    assert (refused.code, mixed.code) == (1, 1)
    assert "retry of flights: failed again: no hour\n  next: txtopo show flights 5" in refused.err
    assert "failed again: no minute; not committed: 5" in mixed.err
    assert mixed.out == ""


def test_an_order_that_takes_too_long_stands_and_is_not_doubled(ledger: FilledLedger, run: Run) -> None:
    """Promise: one open order of a kind about the same txids is not doubled; 3 when the time is up."""
    ledger.lead(planned_txid=6)

    first, second = run("retry", "flights", "--timeout", "0"), run("retry", "flights", "5", "--timeout", "0")
    other = run("skip", "flights", "5", "--reason", "x", "--timeout", "0")

    assert (first.code, second.code, other.code) == (3, 3, 3)
    assert (
        "not carried out within 0 s; the order to retry (order 1) is open\n  next: txtopo status flights" in first.err
    )
    assert "was open already; following" in second.err
    assert [order[0] for order in orders(ledger)] == ["retry", "skip"]


def test_a_leader_that_dies_leaves_the_order_to_the_next(
    ledger: FilledLedger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: 3 while it is not known, the order stands; 1 where the leader halted over it."""
    ledger.lead(planned_txid=6)
    monkeypatch.setattr("txtopo.operating.orders._user", meanwhile(lambda: ledger.lead("stopped")))
    died = run("retry", "flights", "--timeout", "30")
    ledger.lead(planned_txid=6)
    halt = meanwhile(lambda: ledger.lead("halted", reason="batch 7 of flights: no hour"))
    monkeypatch.setattr("txtopo.operating.orders._user", halt)
    halted = run("redrive", "flights", "3", "--timeout", "30")

    assert (died.code, halted.code) == (3, 1)
    assert "ended before it had carried the order out; the order to retry (order 1) is open" in died.err
    assert "next: txtopo run flights.py:topology" in died.err
    assert "batch 7 of flights: no hour; the order to redrive (order 2) is open" in halted.err
    assert [order[3] for order in orders(ledger)] == ["open", "open"]


def test_a_lead_that_is_taken_anew_is_waited_for(
    ledger: FilledLedger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: a live leader gives up its lead for a moment and takes it again; a standby may follow one that died."""
    ledger.lead(planned_txid=6)
    monkeypatch.setattr("txtopo.operating.orders.LEADERLESS_S", 60.0)
    monkeypatch.setattr("txtopo.operating.orders._user", meanwhile(lambda: ledger.lead("stopped")))

    with answering(ledger.dsn, "done", "by the next one", after_s=0.5):
        said = run("replan", "flights", "--reason", "schema", "--timeout", "60")

    assert (said.code, said.out) == (0, "replan of flights: by the next one\n")


def meanwhile(do: Callable[[], None]) -> Callable[[], str]:
    """Something happens just before the order is written, when the actor's name is looked up."""

    def who() -> str:
        do()
        return "me"

    return who


def test_eight_commands_at_once_leave_one_order(ledger: FilledLedger) -> None:
    """Promise: one open order of a kind about the same txids is not doubled."""
    barrier, found = threading.Barrier(8), []

    def give() -> None:
        barrier.wait()
        found.append(place(ledger.dsn, NewOrder(topology="flights", kind="redrive", txids=(3,))))

    threads = [threading.Thread(target=give) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {placed.order_id for placed in found} == {1}
    assert sum(placed.is_new for placed in found) == 1
    assert len(orders(ledger)) == 1


def test_no_run_only_leaves_the_order(ledger: FilledLedger, run: Run) -> None:
    """Promise: `--no-run` only leaves the order, whether a leader is there or not."""
    without = run("retry", "flights", "--no-run")
    again = run("retry", "flights", "--no-run")
    ledger.lead(planned_txid=6)
    led = run("redrive", "flights", "3", "--no-run")

    assert (without.code, again.code, led.code) == (0, 0, 0)
    assert without.out == "retry of flights (order 1) is recorded: the next leader carries it out.\n"
    assert again.out == "retry of flights (order 1) was recorded already: the next leader carries it out.\n"
    assert "is recorded: the leader on box, pid 4711 carries it out." in led.out


def test_a_reason_in_another_encoding_is_kept_readable(ledger: FilledLedger, run: Run) -> None:
    """What a terminal hands over as bytes that are no UTF-8 must not end in a trace."""
    assert run("skip", "flights", "5", "--reason", "d\udcffmaged", "--no-run").code == 0

    assert orders(ledger)[0][2] == "d\\udcffmaged"


# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def application(ledger: FilledLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An application that can be loaded and is the topology `flights`; it stands in `txtopo.topology`."""
    name = f"flights_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(
        "from pathlib import Path\nfrom tests.kit.applications import orders_topology\n"
        "topology = orders_topology(Path('/none'), name='flights')\nother = orders_topology(Path('/none'), "
        "name='trains')\n"
    )
    monkeypatch.chdir(tmp_path)
    with ledger.connection:
        ledger.execute("update txtopo.topology set application = %s", f"{name}.py:topology")
    return f"{name}.py:topology"


class Ran:
    """Stands in for the runtime: remembers the call, does what the test wants."""

    def __init__(
        self,
        ledger: FilledLedger,
        *,
        answer: tuple[str, str] | None = None,
        error: Exception | None = None,
        code: int = 0,
    ) -> None:
        self.calls: list[Any] = []
        self._ledger, self._answer, self._error, self._code = ledger, answer, error, code

    def __call__(self, application: str, settings: Any, *, cut: bool = True, is_wanted: Callable[[], bool]) -> int:
        self.calls.append((application, settings.zookeeper, cut))
        self.settings = settings
        assert is_wanted()
        if self._answer is not None:
            with self._ledger.connection:
                self._ledger.execute(
                    "update txtopo.request set state = %s, answer = %s, done_at = now()", *self._answer
                )
            assert not is_wanted()  # a driver that still waits for the lead has nothing to do
        if self._error is not None:
            raise self._error
        return self._code


def test_without_a_leader_the_command_runs_the_application_itself(
    ledger: FilledLedger, run: Run, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: no new input is planned; what is planned is processed, open orders are carried out, and the answer is
    told.
    """
    ran = Ran(ledger, answer=("done", "batch 3 is redone as batch 7"))
    monkeypatch.setattr("txtopo.app.run_application", ran)

    said = run("redrive", "flights", "3")

    assert (said.code, said.out) == (0, "redrive of flights: batch 3 is redone as batch 7\n")
    assert ran.calls == [(application, "127.0.0.1:9/none", False)]
    assert "no leader is alive; running" in said.err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            Halted("batch 5 of flights: no hour", txid=5, next_command="txtopo show flights 5"),
            1,
            "batch 5 of flights: no hour\n  next: txtopo show flights 5",
        ),
        (ZooKeeperUnavailable("away"), 3, "zookeeper: away"),
        (Fenced("another driver"), 3, "another driver; the order to redrive (order 1) is open"),
    ],
)
def test_a_run_that_ends_badly_leaves_the_order(
    ledger: FilledLedger,
    run: Run,
    application: str,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
    words: str,
) -> None:
    """Promise: Halted when a batch fails again is 1, a store that is away 3, and the order stands."""
    monkeypatch.setattr("txtopo.app.run_application", Ran(ledger, error=error))

    said = run("redrive", "flights", "3", "--app", application)

    assert said.code == code
    assert words in said.err
    assert "the order to redrive (order 1) is open" in said.err
    assert orders(ledger)[0][3] == "open"


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("refused", 1)])
def test_an_answered_order_decides_even_if_the_run_halted_afterwards(
    ledger: FilledLedger, run: Run, application: str, monkeypatch: pytest.MonkeyPatch, state: str, code: int
) -> None:
    """The order's own end is what was asked for; what halted the run is told."""
    halt = Halted("batch 6 of flights: no hour", txid=6, next_command="txtopo show flights 6")
    ran = Ran(ledger, answer=(state, "so it ended"), error=halt)
    monkeypatch.setattr("txtopo.app.run_application", ran)

    said = run("skip", "flights", "5", "--reason", "damaged")

    assert said.code == code
    assert "so it ended" in said.out + said.err
    if code == 0:
        assert "the run then ended: batch 6 of flights: no hour\n  next: txtopo show flights 6\n" in said.err


def test_a_retry_after_which_the_topology_halts_again_is_1_with_the_next_command(
    ledger: FilledLedger, run: Run, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that retries and goes on must not take a topology that stands still for one that runs."""
    ledger.attempt(5, 2, "applied")
    ledger.commit(5, attempt=2)
    ledger.attempt(6, 0, "failed", **FAILURE)
    halt = Halted("batch 7 of flights: no hour", txid=7, next_command="txtopo show flights 7")

    def commit_and_halt(*arguments: Any, **more: Any) -> int:
        ledger.attempt(6, 1, "applied")
        ledger.commit(6, attempt=1)
        return Ran(ledger, answer=("done", "batch 6 is committed"), error=halt)(*arguments, **more)

    monkeypatch.setattr("txtopo.app.run_application", commit_and_halt)

    said = run("retry", "flights")

    assert (said.code, said.out) == (1, "retry of flights: batch 6 is committed\n")
    assert "the run then ended: batch 7 of flights: no hour\n  next: txtopo show flights 7\n" in said.err


@pytest.mark.parametrize(
    ("stored", "given", "runs_with", "where"),
    [
        ({"on_poison": "dead_letter_rows"}, (), "dead_letter_rows", "the last run"),
        ({"on_poison": "dead_letter_rows"}, ("--on-poison", "halt"), "halt", "flag --on-poison"),
        ({}, ("--on-poison", "quarantine_batch"), "quarantine_batch", "flag --on-poison"),
        ({"on_poison": "a word of another release"}, (), "halt", "default"),
        ({}, (), "halt", "default"),
    ],
)
def test_an_order_runs_as_the_last_run_was_set_and_says_how(
    ledger: FilledLedger,
    run: Run,
    application: str,
    monkeypatch: pytest.MonkeyPatch,
    stored: dict[str, str],
    given: tuple[str, ...],
    runs_with: str,
    where: str,
) -> None:
    """A recompute of a batch with dead letters failed three times and halted: the order ran with another on_poison than
    the run.
    """
    ran = Ran(ledger, answer=("done", "so it is"))
    monkeypatch.setattr("txtopo.app.run_application", ran)
    with ledger.connection:
        ledger.execute("update txtopo.topology set settings = %s", json.dumps(stored))

    shown = [
        run("redrive", "flights", "3", "--dry-run", *given).out,
        run("replay", "flights", "1", *given).out,
        run("redrive", "flights", "3", "--dry-run", "--json", *given).json["on_poison"],
    ]
    said = run("redrive", "flights", "3", *given)

    assert all(f"{runs_with} ({where})" in one for one in shown), shown
    assert (said.code, ran.settings.on_poison) == (0, runs_with)
    assert f"on_poison={runs_with}, {where}" in said.err


def test_a_plan_of_a_recompute_tells_dead_letters_and_changed_files(
    ledger: FilledLedger, run: Run, tmp_path: Path
) -> None:
    """What a recompute would meet is known beforehand: rows that a bolt fails on, files that are not as they were
    planned.
    """
    whole, changed = tmp_path / "whole.csv", tmp_path / "changed.csv"
    for file in (whole, changed):
        file.write_text("x" * 700)
    digest = hashlib.sha256(whole.read_bytes()).hexdigest()
    files = [{"path": str(file), "size": 700, "sha256": digest} for file in (whole, changed)]
    for txid in (5, 6):
        ledger.commit(txid)
    ledger.plan(7, metadata={"files": {"files": files}})
    ledger.commit(7, dead_letters=2)
    changed.write_text("y" * 700)

    said, as_json = run("replay", "flights", "7"), run("replay", "flights", "7", "--json")

    assert "note: batch 7 has 2 dead letters" in said.out
    assert f"note: batch 7: {changed} has other content than was planned" in said.out
    assert str(whole) not in said.out.partition("note:")[2]
    assert len(as_json.json["notes"]) == 2
    whole.unlink()
    assert f"{whole} cannot be read here: No such file" in run("replay", "flights", "7").out


def test_a_second_reason_for_the_same_order_is_refused_aloud(ledger: FilledLedger, run: Run) -> None:
    """One order, one reason: whoever gives another one is told which is kept."""
    run("skip", "flights", "5", "--reason", "damaged", "--no-run")

    again, other = (
        run("skip", "flights", "5", "--reason", "damaged", "--no-run"),
        run("skip", "flights", "5", "--reason", "ticket 4711", "--no-run", "-q"),
    )

    assert "the same order is open already" not in again.err
    assert "with the reason 'damaged': that reason remains, 'ticket 4711' is ignored" in other.err
    assert [one[2] for one in orders(ledger)] == ["damaged"]


@pytest.mark.parametrize(("code", "ends"), [(0, 3), (130, 130)])
def test_a_run_that_ends_without_an_answer_is_not_done(
    ledger: FilledLedger, run: Run, application: str, monkeypatch: pytest.MonkeyPatch, code: int, ends: int
) -> None:
    """Promise: 3 while it is not known; an interrupted run keeps its exit code; the order stands."""
    monkeypatch.setattr("txtopo.app.run_application", Ran(ledger, code=code))

    said = run("redrive", "flights", "3")

    assert said.code == ends
    assert "the order to redrive (order 1) is open" in said.err


@pytest.mark.parametrize(
    ("stored", "flags", "words"),
    [
        ("python job.py", [], "python job.py cannot be started from here\n  next: python job.py"),
        (
            "python a/job.py x  # in /srv/b",
            [],
            "python a/job.py x cannot be started from here\n  next: cd /srv/b && python a/job.py x",
        ),
        ("gone.py:topology", [], "gone.py: no such file\n  next: txtopo run gone.py:topology"),
        ("python job.py", ["--app", "gone_too.py"], "gone_too.py: no such file\n  next: txtopo run gone_too.py"),
    ],
)
def test_an_application_that_cannot_be_run_from_here_leaves_the_order(
    ledger: FilledLedger, run: Run, stored: str, flags: list[str], words: str
) -> None:
    """Promise: says how to start it; the order stands; exit 3."""
    with ledger.connection:
        ledger.execute("update txtopo.topology set application = %s", stored)

    said = run("redrive", "flights", "3", *flags)

    assert said.code == 3
    assert words in said.err
    assert [order[3] for order in orders(ledger)] == ["open"]


def test_an_application_that_is_another_topology_is_refused(ledger: FilledLedger, run: Run, application: str) -> None:
    """Nothing may run that was not meant: no order is given."""
    said = run("redrive", "flights", "3", "--app", application.replace(":topology", ":other"))

    assert said.code == 2
    assert "is the topology trains, not flights" in said.err
    assert orders(ledger) == []


def test_without_zookeeper_nothing_is_ordered(ledger: FilledLedger, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command cannot be the leader without it, and says so before it leaves an order; leaving one needs none."""
    monkeypatch.delenv("TXTOPO_ZK")

    said = run("redrive", "flights", "3")
    assert (said.code, orders(ledger)) == (2, [])
    assert "but no ZooKeeper" in said.err

    assert run("redrive", "flights", "3", "--no-run").code == 0


@pytest.mark.parametrize("name", ORDERING)
def test_the_examples_of_the_help_are_understood(ledger: FilledLedger, run: Run, name: str) -> None:
    """Promise: every command's help has an example that works as written."""
    ledger.lead(planned_txid=6)

    said = run(*shlex.split(VERBS[name].example)[1:], "--timeout", "0")

    # Batch 17 is not there yet; a replan needs no batch and takes longer than no time at all.
    assert said.code == (3 if name == "replan" else 1), said.err
    assert "batch 17" in said.err or "not carried out within 0 s" in said.err or "batch 42" in said.err
