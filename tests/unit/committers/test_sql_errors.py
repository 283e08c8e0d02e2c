"""What an error of the database driver means: surely aborted, or unknown, or the batch's own fault (P1, P2, P10, P14)."""  # noqa: E501

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg2
import pytest

from txtopo.committers.postgres.sql_errors import (
    is_unknown,
    one_line,
    translate,
    translate_apply,
    translate_commit,
    translate_kept,
    translate_user,
)
from txtopo.committers.postgres.sqlstates import Owner, verdict_on
from txtopo.errors import (
    BatchDataError,
    ConfigurationError,
    Fenced,
    Halted,
    InvariantBroken,
    NoBatchAtFault,
    PostgresUnavailable,
)


def error(state: str | None, message: str = "no", **diagnosis: str) -> psycopg2.Error:
    """Return an error as psycopg2 raises it, with this SQLSTATE, and with these parts of the server's diagnosis."""
    members: dict[str, Any] = {"pgcode": state}
    kind = type(
        "Coded", (psycopg2.OperationalError,), members | ({"diag": SimpleNamespace(**diagnosis)} if diagnosis else {})
    )
    made = kind(message)
    assert isinstance(made, psycopg2.Error)
    return made


@pytest.mark.parametrize(
    "state", [None, "08000", "08003", "08006", "40003", "57P01", "57P02", "57P03", "XX000", "XX002"]
)
def test_a_commit_that_ended_so_may_have_happened(state: str | None) -> None:
    """P2: no SQLSTATE means a broken connection; these mean that the server did not say."""
    found = translate(error(state), "COMMIT", committing=True)

    assert is_unknown(error(state))
    assert isinstance(found, PostgresUnavailable) and not found.definite


@pytest.mark.parametrize("state", ["40001", "40P01", "55P03", "57014", "53100", "53300"])
def test_a_commit_that_ended_so_did_not_happen(state: str) -> None:
    """P10, P11: definite aborts are tried again, without a question."""
    found = translate(error(state), "COMMIT", committing=True)

    assert not is_unknown(error(state))
    assert isinstance(found, PostgresUnavailable) and found.definite


@pytest.mark.parametrize("state", [None, "08006", "57P01"])
def test_before_commit_was_sent_a_broken_connection_is_an_abort(state: str | None) -> None:
    """R7: nothing was asked for that could have happened."""
    found = translate(error(state), "locking")

    assert isinstance(found, PostgresUnavailable) and found.definite


@pytest.mark.parametrize("state", ["21000", "22003", "23505", "23514", "44000", "54000", "HV000", "P0001", "ZZ999"])
def test_rows_that_the_table_refuses_are_the_fault_of_the_batch(state: str) -> None:
    """K8, W3: data failures are counted, and stop in the end. Whatever code is not known to be something else is one:
    nothing is waited for without end.
    """
    found = translate_apply(error(state), "totals", 7, ledger_held=False)

    assert isinstance(found, BatchDataError)
    assert found.component == "totals"


@pytest.mark.parametrize("state", ["3F000", "42P01", "42501"])
@pytest.mark.parametrize("translated", [translate_apply, translate_user])
def test_a_table_that_is_not_there_is_no_fault_of_any_batch(state: str, translated: Any) -> None:
    """It would be the same for every batch: were it a data failure, `quarantine_batch` would leave out one after the
    other.
    """
    found = translated(error(state), "totals", 7, ledger_held=False)

    assert isinstance(found, Halted)
    assert found.txid == 7
    assert "committer totals of batch 7" in str(found)
    assert found.next_command is not None


@pytest.mark.parametrize("state", ["25006", "42703", "42804", "42P10", "58P01", "XX001"])
def test_a_table_of_another_shape_is_no_fault_of_any_batch(state: str) -> None:
    """W2: a dropped column, a changed type, a server that only reads, corruption."""
    found = translate_apply(error(state), "totals", 7, ledger_held=False, compare=lambda: "n is text, not bigint")

    assert isinstance(found, NoBatchAtFault)
    assert str(found).endswith("; n is text, not bigint")


@pytest.mark.parametrize("state", ["08000", "08006", "57000", "57P01", "57P03", None])
@pytest.mark.parametrize("translated", [translate_apply, translate_user])
def test_a_code_of_connections_is_believed_only_of_a_connection_that_is_broken(
    state: str | None, translated: Any
) -> None:
    """W1: a trigger of the user's may raise any code."""
    whole = translated(error(state), "totals", 7, ledger_held=False, answers=lambda: True)
    lost = translated(error(state), "totals", 7, ledger_held=False, answers=lambda: False)

    assert isinstance(whole, BatchDataError)
    assert isinstance(lost, PostgresUnavailable)


@pytest.mark.parametrize("state", ["08000", "57000", None])
def test_of_kept_records_and_of_deferred_triggers_too(state: str | None) -> None:
    """W1: rejected records, dead letters, counts of edges; at COMMIT a broken connection says nothing, and only a code
    that is sure is judged.
    """

    def both(is_whole: bool) -> list[Exception]:
        kept = translate_kept(error(state), "rejected records", "files", 7, answers=lambda: is_whole)
        return [kept, translate_commit(error("57000"), "totals", 7, answers=lambda: is_whole)]

    assert all(isinstance(one, BatchDataError) for one in both(True))
    assert all(isinstance(one, PostgresUnavailable) for one in both(False))


@pytest.mark.parametrize(
    ("state", "patience"),
    [("55P03", "lock"), ("57014", "time"), ("0A000", "once"), ("26000", "once"), ("53100", "store")],
)
def test_what_is_waited_for_says_for_how_long(state: str, patience: str) -> None:
    """W5: locks without a bound, a statement's time a few times, a stale plan of the server's once."""
    found = translate_apply(error(state), "totals", 7, ledger_held=False)

    assert isinstance(found, PostgresUnavailable)
    assert found.patience == patience


@pytest.mark.parametrize("state", ["22001", "23502", "54000", "0L000", "P0001", "38000", "ZZ999"])
def test_txtopos_own_statements_are_never_a_batchs_fault(state: str) -> None:
    """W2: no value of a batch is in them, so an error that does not pass halts."""
    assert isinstance(translate(error(state), "finishing"), Halted)


@pytest.mark.parametrize("translated", ["apply", "kept"])
def test_what_txtopos_own_triggers_refuse_in_an_apply_is_no_fault_of_any_batch(translated: str) -> None:
    """W2: the ledger, or txtopo itself, is wrong; counted as data it would be quarantined. Who raised it is known by
    the function, not by words that a user's trigger may quote from a value of the batch.
    """

    def judged(message: str, function: str) -> Exception:
        raised = error(
            "P0001", message, context=f"Fonction PL/pgSQL {function} ligne 4 à RAISE\nSQL statement txtopo.x()"
        )
        match translated:
            case "apply":
                return translate_apply(raised, "totals", 7, ledger_held=False, answers=lambda: True)
            case _:
                return translate_kept(raised, "rejected records", "files", 7, answers=lambda: True)

    outside = judged("txtopo: contributions of batch 9, which is not being applied", "txtopo.contributes()")
    assert isinstance(outside, Halted) and outside.txid == 7 and "batch 9, which" in str(outside)
    assert isinstance(judged("txtopo: attempt 7:1 may not change its identity", "txtopo.attempts()"), InvariantBroken)
    assert isinstance(judged("txtopo: is a bad name", "public.checked()"), BatchDataError)
    assert isinstance(judged("bad name txtopo: x", "txtopo.contributes()"), BatchDataError)


@pytest.mark.parametrize("ledger_held", [False, True])
def test_what_they_refuse_of_a_users_statement_is_the_fault_of_the_users_code(ledger_held: bool) -> None:
    """W3: whoever writes to the ledger in a custom committer is named with his line, and no other topology has it."""
    raised = error("P0001", "txtopo: ledger row 3 is final", context="PL/pgSQL function txtopo.final() line 2 at RAISE")

    judged = translate_user(raised, "totals", 7, ledger_held=ledger_held, answers=lambda: True)

    assert isinstance(judged, BatchDataError) and judged.component == "totals" and "is final" in str(judged)


def test_a_refusal_at_commit_is_of_the_user_unless_it_is_of_txtopo() -> None:
    """R7: a deferred constraint of the user's table is data; txtopo's own halt."""
    theirs = translate_commit(error("23514"), "totals", 7)

    assert isinstance(theirs, BatchDataError) and theirs.component == "totals"
    assert isinstance(
        translate_commit(error("P0001", "txtopo: COMMIT before batch 7 was complete"), "totals", 7), Halted
    )
    constraint = error("23503", schema_name="txtopo", table_name="count")
    assert isinstance(translate_commit(constraint, "totals", 7), Halted)
    foreign = error("23503", schema_name="public", table_name="totals")
    assert isinstance(translate_commit(foreign, "totals", 7), BatchDataError)
    unknown = translate_commit(error("08006"), "totals", 7)
    assert isinstance(unknown, PostgresUnavailable) and not unknown.definite


@pytest.mark.parametrize("state", [None, "40001", "40P01", "55P03", "53100", "57P01"])
def test_trouble_of_the_server_while_rows_are_applied_is_not(state: str | None) -> None:
    """K8: infrastructure never counts."""
    assert isinstance(translate_apply(error(state), "totals", 7, ledger_held=False), PostgresUnavailable)


@pytest.mark.parametrize("raised", [ValueError("A string literal cannot contain NUL"), OverflowError("too large")])
def test_what_the_client_refuses_is_the_fault_of_the_batch(raised: Exception) -> None:
    """P14: these come from Python and have no SQLSTATE."""
    assert isinstance(translate_apply(raised, "totals", 7, ledger_held=False), BatchDataError)


def test_a_plan_of_an_older_epoch_means_fenced_and_a_misplaced_one_a_halt() -> None:
    """R2, R9: the database refuses both; only one of them is another driver's doing."""
    words = "txtopo: plan 3 of epoch {}, but the fence has epoch 2, last 4"

    assert isinstance(translate(error("P0001", words.format(1)), "mirroring"), Fenced)
    assert isinstance(translate(error("P0001", words.format(2)), "mirroring"), Halted)


def test_a_database_that_was_not_migrated_says_so() -> None:
    """The next command is in the message."""
    assert isinstance(translate(error("42P01"), "reading"), ConfigurationError)
    assert isinstance(translate(error("42501"), "reading"), ConfigurationError)


def test_no_password_comes_out_in_an_error() -> None:
    """Secrets: never in logs or errors."""
    line = one_line(error(None, "could not connect to postgresql://app:hunter2@db:5432/x\nIs it running?"))

    assert "hunter2" not in line
    assert "app" in line and "\n" not in line


MEANINGS = """
00001 bug data data | 02000 bug data data | 24000 bug data data | 26000 once once data | 08006 store broken broken | 08P01 bug data data
38000 halt data data | P0001 halt data data | 0A000 once once data | 25001 bug data data | 25006 halt halt data | 25P03 store store data
57P05 store store data | 0L000 halt halt halt | 28000 halt halt halt | 3D000 halt halt halt | 3F000 halt halt halt | 21000 halt data data
22003 halt data data | 23505 halt data data | 40001 store store store | 40P01 store store store | 40002 halt data data | 42703 halt halt data
42P01 halt halt halt | 42501 halt halt halt | 44000 halt data data | 53100 store store store | 54000 halt data data | 54001 halt data data
55P03 lock lock lock | 55000 halt halt data | 57014 store time data | 57P01 store broken broken | 57P04 halt halt halt | 58030 store store store
58P01 halt halt halt | 72000 halt data data | HV000 halt data data | F0000 store store data | XX000 store store data | XX001 halt halt halt
ZZ999 halt data data
"""  # noqa: E501


@pytest.mark.parametrize("row", [row.split() for line in MEANINGS.split("\n") for row in line.split(" | ") if row])
def test_each_class_of_errors_has_one_meaning_by_owner(row: list[str]) -> None:
    """W1 to W3, for txtopo's own statements, those on a user's table, and a custom committer's."""
    code, *meanings = row

    assert [verdict_on(code, owner).value for owner in Owner] == meanings
