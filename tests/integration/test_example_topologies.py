"""The examples on real Spark, Postgres and ZooKeeper, in one Spark session: their tables are what the tests count in
another way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from tests.kit.examples import WORDS, example, initials, lengths, words, write_log, write_message
from tests.kit.files import settle_soon
from tests.kit.pages import run_page
from txtopo.app import drive, spark_executor
from txtopo.cli import main
from txtopo.config import load_settings
from txtopo.topology.components import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Run = Callable[[Topology], None]
Query = Callable[[str], Sequence[tuple[Any, ...]]]


@pytest.fixture
def run(
    spark_session: SparkSession,
    database: str,
    zookeeper_root: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Runs a topology to the end of its input, as `txtopo run --once` does, in the session that is there."""
    settle_soon(monkeypatch)
    folder = tmp_path_factory.mktemp("logs")
    flags = {"dsn": database, "zookeeper": zookeeper_root, "once": True, "quiet": True, "log_folder": folder}

    def to_the_end(topology: Topology) -> None:
        settings = load_settings(flags, cwd=folder, environment={}, target=None)
        assert drive(topology, f"{topology.name}.py:topology", settings, spark_executor) == 0

    return to_the_end


@pytest.fixture
def query(database: str) -> Query:
    """Rows of a statement, seen from outside."""

    def rows(statement: str) -> Sequence[tuple[Any, ...]]:
        with contextlib.closing(psycopg2.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    return rows


def test_word_count_and_its_audit(
    run: Run, query: Query, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Word count with tuple bolts over real text: the table, and the ledger as the audit sees it."""
    run(example(monkeypatch, "word_count"))

    assert dict(query("SELECT word, n FROM words")) == words()
    assert query("SELECT txid, state, attempt FROM txtopo.ledger WHERE txid > 0 ORDER BY txid") == [
        (txid, "applied", 0) for txid in (1, 2, 3)
    ]
    monkeypatch.setenv("TXTOPO_DSN", database)
    assert main(["audit", "word_count", "--json"]) in (0, 3), capsys.readouterr().out


def test_words_as_a_stream_and_the_query_of_their_counts(
    run: Run, query: Query, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a program and from the command line; the answer names the last batch."""
    topology = example(monkeypatch, "trident_words")
    run(topology)
    counted = words()
    common = counted["the"] + counted["and"]

    assert dict(query("SELECT word, times FROM trident_words")) == counted
    answer = topology.query("words", "The unheardof AND", dsn=database)
    assert (answer.rows, answer.txid) == ([{"total": common}], 3)
    monkeypatch.setenv("TXTOPO_DSN", database)
    assert main(["query", "examples/trident_words.py", "words", "the and"]) == 0
    assert capsys.readouterr().out == f"total\n{common:>5}\nas of batch 3\n"


def test_global_count(run: Run, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """TT-09 (ii): global count 19, written by code of one's own; words by a second committer."""
    run(example(monkeypatch, "global_count"))

    assert query("SELECT id, n FROM global_count") == [(1, 19)]
    assert dict(query("SELECT word, n FROM global_words")) == WORDS


def test_transactional_words_downstream_of_a_committer(
    run: Run, query: Query, database: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """TT-09 (ii): bucket 0 to 9 holds 5 words. Counts, edges, contributions and `trace` are those of any counting
    committer; nothing is recomputed or called right that only the commit phase could make again.
    """
    run(example(monkeypatch, "transactional_words"))
    monkeypatch.setenv("TXTOPO_DSN", database)

    assert dict(query("SELECT word, n FROM word_counts")) == WORDS
    assert query("SELECT bucket, changes, words FROM buckets") == [(0, 5, 5)]
    assert query("SELECT txid, changes FROM buckets_contribution ORDER BY txid") == [(1, 4), (2, 1)]
    assert query(
        "SELECT txid, arrived, counted FROM txtopo.committer_count WHERE committer = 'buckets' ORDER BY txid"
    ) == [
        (1, 4, 4),
        (2, 1, 1),
        (3, 0, 0),
    ]
    edges = query("SELECT edge, sent, received FROM txtopo.edge_count WHERE txid = 1 ORDER BY edge")
    assert edges == [("bucketize -> buckets", 4, 4), ("count -> bucketize", 4, 4), ("words -> count", 9, 9)]
    assert main(["audit", "transactional_words"]) == 3
    audited = capsys.readouterr().out
    assert "MISMATCH" not in audited.replace("MISMATCHES", "")
    assert main(["trace", "transactional_words", "--table", "buckets", "--key", "0"]) == 0
    assert "MATCH     the contributions add up to the row" in capsys.readouterr().out
    assert main(["replay", "transactional_words", "1..3", "--recompute", "--execute", "--reason", "try"]) == 1
    assert "cannot be reversed" in capsys.readouterr().err
    assert query("SELECT changes, words FROM buckets") == [(5, 5)]


def test_diamond(run: Run, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ways that meet, a named stream and two committers."""
    run(example(monkeypatch, "diamond"))

    assert {(seen, length): n for seen, length, n in query("SELECT seen, length, words FROM word_lengths")} == lengths()
    assert dict(query("SELECT initial, words FROM word_initials")) == initials()


def test_partitioned(run: Run, query: Query, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Logs that have grown and a log that is new between two runs: only what is new is counted."""
    write_log(tmp_path, 0, "INFO started", "WARN disk is full")
    run(example(monkeypatch, "partitioned", LOGS_FOLDER=tmp_path))
    write_log(tmp_path, 0, "INFO still here")
    write_log(tmp_path, 1, *["INFO new"] * 1001)

    run(example(monkeypatch, "partitioned", LOGS_FOLDER=tmp_path))

    assert sorted(query("SELECT service, level, lines FROM log_levels")) == [
        ("service 0", "INFO", 2),
        ("service 0", "WARN", 1),
        ("service 1", "INFO", 1001),
    ]
    assert query("SELECT read FROM txtopo.ledger WHERE txid > 0 ORDER BY txid") == [(2,), (1001,), (1,)]


def test_reliable(run: Run, query: Query, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Messages are acked once committed; one that comes again under its id counts once, by the user's own table in the
    batch's database transaction.
    """
    for name, text in [("1", "hello"), ("2", "bye"), ("3", "hello")]:
        write_message(tmp_path, name, text)
    run(example(monkeypatch, "reliable", QUEUE_FOLDER=tmp_path))
    assert list(tmp_path.iterdir()) == []
    write_message(tmp_path, "3", "hello")
    write_message(tmp_path, "4", "hello")

    run(example(monkeypatch, "reliable", QUEUE_FOLDER=tmp_path))

    assert dict(query("SELECT text, n FROM message_texts")) == {"hello": 3, "bye": 1}
    assert sorted(query("SELECT id FROM message_seen")) == [("1.msg",), ("2.msg",), ("3.msg",), ("4.msg",)]
    assert list(tmp_path.iterdir()) == []


def test_blocks_of_the_page_of_bolts_that_need_spark_or_postgres(
    spark_session: SparkSession, run: Run, query: Query, database: str
) -> None:
    """docs/bolts.md: every block runs and prints what stands below it, also where it needs a session; its committers
    write to real tables.
    """
    names: dict[str, Any] = {"spark": spark_session}
    for block, printed in run_page("bolts.md", names):
        assert printed == (block.shown or ""), f"docs/bolts.md:{block.line}"
    with contextlib.closing(psycopg2.connect(database)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE word_counts (word text PRIMARY KEY, n bigint NOT NULL)")
        cursor.execute("CREATE TABLE milestones (word text, n bigint, txid bigint)")
        cursor.execute("INSERT INTO word_counts VALUES ('what', 9), ('tyger', 7)")

    run(names["milestones"])

    assert query("SELECT word, n, txid FROM milestones") == [("what", 11, 1)]
    assert query("SELECT word, n FROM word_counts WHERE word IN ('what', 'tyger') ORDER BY n") == [
        ("tyger", 9),
        ("what", 12),
    ]


def test_new_ids_of_the_page_of_spouts(run: Run, query: Query, database: str) -> None:
    """docs/spouts.md: a message that comes again, in its batch or in another one, is kept once, by the user's own
    table.
    """
    names: dict[str, Any] = {}
    for _ in run_page("spouts.md", names):
        pass
    with contextlib.closing(psycopg2.connect(database)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE seen (id bigint PRIMARY KEY)")
        cursor.execute("CREATE TABLE messages (id bigint, text text)")

    run(names["once"])

    assert query("SELECT id, text FROM messages ORDER BY id") == [(1, "a"), (2, "b"), (3, "c")]
    assert query("SELECT read FROM txtopo.ledger WHERE txid > 0 ORDER BY txid") == [(3,), (2,)]
