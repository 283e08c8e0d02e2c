"""How a statement of a committer of one's own is read before it is sent."""

from __future__ import annotations

import pytest

from txtopo.committers.protocol.statement_guard import ALLOWED, objection

ENDS = [
    "commit",
    "COMMIT WORK",
    "rollback",
    "abort",
    "end",
    "begin",
    "start transaction",
    "savepoint s",
    "release savepoint s",
    "rollback to s",
    "prepare transaction 'x'",
    "prepare p as select 1",
    "execute p",
    "deallocate p",
    "set x = 1",
    "set local x = 1",
    "reset x",
    "discard all",
    "copy t to stdout",
    "listen x",
    "load 'x'",
    "vacuum",
    "checkpoint",
    "declare c cursor for select 1",
    "fetch c",
    "((commit))",
    "/*a*/--b\n commit",
]


@pytest.mark.parametrize("statement", ENDS)
def test_what_would_end_or_change_the_database_transaction_is_refused(statement: str) -> None:
    """P9: user code must not be able to end the database transaction or change its settings."""
    assert "would end or change" in str(objection(statement))


@pytest.mark.parametrize("word", sorted(ALLOWED))
def test_what_reads_writes_or_defines_passes(word: str) -> None:
    """Everything else is the user's own affair."""
    assert objection(f"{word} something") is None
    assert objection(f"{word.upper()} something;") is None


@pytest.mark.parametrize(
    "statement",
    [
        "select 1;select 2",
        "select ';' ; commit",
        "select E'\\'' ; commit; --'",
        "select '\\' ; commit --'",
        "select $a$ $b$ ; $a$; commit",
        'select ";"; commit',
        "select /* /* */ ; */ 1; commit",
        "select 1 -- x\n; commit",
        "select 1 -- x\r; commit",
        "select a$b$c; commit",
        "select U&'\\' ; commit --'",
        ";commit",
    ],
)
def test_more_than_one_statement_is_refused_however_it_is_hidden(statement: str) -> None:
    """One statement a call: what comes behind it would not be looked at."""
    assert objection(statement) == "it is more than one statement"


@pytest.mark.parametrize("statement", ["select 'a", 'select "a', "select $$a", "select /* /* */", "select e'\\'"])
def test_what_is_not_closed_is_refused(statement: str) -> None:
    """Where it ends is not known, so what it does is not either."""
    assert objection(statement) == "a quote or comment in it is not closed"


@pytest.mark.parametrize("statement", ["", "  -- nothing\n", "/* */;;", "()"])
def test_nothing_is_no_statement(statement: str) -> None:
    """Something has to be said."""
    assert objection(statement) is not None


@pytest.mark.parametrize(
    "statement", ["select set_config('a', 'b', true)", 'select "set_config"(1)', "select pg_catalog . SET_CONFIG (1)"]
)
def test_settings_are_not_changed_by_a_function_either(statement: str) -> None:
    """P8: nothing weakens the database transaction."""
    assert "set_config" in str(objection(statement))
