"""The examples run on the harness, without services, and count what the tests count in another way."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kit.examples import TEXTS, WORDS, example, initials, lengths, words, write_log, write_message
from txtopo.errors import Halted
from txtopo.testing import TopologyHarness
from txtopo.testing.simulated import KillAt, Killed, SimulatedDriver, SimulatedStores

waves = pytest.mark.parametrize("waves", [False, True])


@waves
def test_word_count_counts_every_word_of_the_texts(monkeypatch: pytest.MonkeyPatch, waves: bool) -> None:
    """Word count with tuple bolts over real text: one text a batch."""
    with TopologyHarness(example(monkeypatch, "word_count"), waves=waves) as harness:
        harness.run()

        assert {word: n for (word,), (_, n) in harness.table("words").items()} == words()
        assert [batch.read for batch in harness.batches] == [
            len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(TEXTS.glob("*.txt"))
        ]


def test_word_count_goes_on_with_texts_that_come_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also with one whose name stands before what was counted, and for another driver."""
    (tmp_path / "b.txt").write_text("one two\n")
    stores = SimulatedStores()
    topology = example(monkeypatch, "word_count", TEXTS_FOLDER=tmp_path)
    SimulatedDriver(topology=topology, stores=stores).run()
    (tmp_path / "a.txt").write_text("two\n")

    SimulatedDriver(topology=topology, stores=stores, seed=1).run()

    assert stores.postgres.tables["public.words"] == {("one",): (1, 1), ("two",): (2, 2)}


def test_global_count_counts_nineteen_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """TT-09 (ii): batch sizes 9, 7, 3, global count 19; words cat 8, dog 7, apple 2, chicken 1, banana 1; bucket 0 to 9
    holds 5 words.
    """
    with TopologyHarness(example(monkeypatch, "global_count")) as harness:
        harness.run()

        executed = [one for one in harness.stores.postgres.executed if one.statement.startswith("INSERT")]
        assert [one.parameters for one in executed] == [(9,), (7,), (3,)]
        assert [batch.read for batch in harness.batches] == [9, 7, 3]
        assert {word: n for (word,), (n,) in harness.table("global_words").items()} == WORDS
        assert Counter(n // 10 for (n,) in harness.table("global_words").values()) == {0: 5}
        assert [edge.sent for edge in harness.edges(3) if edge.edge == "partial -> total"] == [3], "every task tells"


def counting(word_counts: Counter[str]) -> Callable[[str, Sequence[Any] | Mapping[str, Any]], Sequence[Sequence[Any]]]:
    """Stands in for the table `word_counts`."""

    def answer(statement: str, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        if not statement.startswith("INSERT"):
            return []
        word, more = parameters
        word_counts[str(word)] += int(more)
        return [(word_counts[str(word)],)]

    return answer


@pytest.mark.parametrize("size", [10, 3, 1])
def test_transactional_words_keeps_words_in_buckets(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """TT-09 (ii): words cat 8, dog 7, apple 2, chicken 1, banana 1; bucket 0 to 9 holds 5 words. With smaller buckets
    they move.
    """
    topology, table = example(monkeypatch, "transactional_words"), Counter[str]()
    monkeypatch.setattr(sys.modules["transactional_words"], "BUCKET_SIZE", size)
    with TopologyHarness(topology) as harness:
        harness.stores.postgres.answers = counting(table)
        harness.run()

        assert table == WORDS
        found = {bucket: words for (bucket,), (_, words) in harness.table("buckets").items()}
        assert {bucket: words for bucket, words in found.items() if words} == Counter(n // size for n in WORDS.values())
        edges = {edge.edge: (edge.sent, edge.received) for edge in harness.edges(1)}
        assert edges["count -> bucketize"] == (4, 4)
        moves = len(harness.values("bucketize", txid=1))
        assert edges["bucketize -> buckets"] == (moves, moves)


@waves
def test_diamond_counts_alike_on_both_ways(monkeypatch: pytest.MonkeyPatch, waves: bool) -> None:
    """A diamond with two committers: both see all, in one database transaction."""
    with TopologyHarness(example(monkeypatch, "diamond"), waves=waves) as harness:
        harness.run()

        assert {key: n for key, (n,) in harness.table("word_lengths").items()} == lengths()
        assert {initial: n for (initial,), (n,) in harness.table("word_initials").items()} == initials()
        assert len(harness.batches) > 1


def test_partitioned_follows_logs_that_grow_and_logs_that_are_new(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files grow and a partition is added; a line that is still being written waits for its end."""
    write_log(tmp_path, 0, "INFO started", "WARN disk is full")
    with (tmp_path / "0.log").open("a") as log:
        log.write("ERROR no mo")
    topology = example(monkeypatch, "partitioned", LOGS_FOLDER=tmp_path)
    with TopologyHarness(topology, once=False) as harness:
        harness.run()
        assert _levels(harness) == {("service 0", "INFO"): 1, ("service 0", "WARN"): 1}

        write_log(tmp_path, 0, "re space")
        write_log(tmp_path, 1, *["INFO still here"] * 1001)
        harness.run()

        assert _levels(harness) == {
            ("service 0", "INFO"): 1,
            ("service 0", "WARN"): 1,
            ("service 0", "ERROR"): 1,
            ("service 1", "INFO"): 1001,
        }
        assert ("service 0", "ERROR no more space") in harness.values("logs", txid=2)
        assert [batch.read for batch in harness.batches] == [2, 1001, 1]


def test_partitioned_loses_no_log_that_is_replaced_without_a_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that is shorter than what was read of it would give nothing for ever; and only a line feed ends a line."""
    write_log(tmp_path, 0, "INFO one", "WARN form\x0cfeed \u2028 within")
    with TopologyHarness(example(monkeypatch, "partitioned", LOGS_FOLDER=tmp_path), once=False) as harness:
        harness.run()
        assert _levels(harness) == {("service 0", "INFO"): 1, ("service 0", "WARN"): 1}
        (tmp_path / "0.log").write_text("INFO two\n")

        with pytest.raises(Halted, match=r"0\.log is shorter than what was read of it"):
            harness.run()


def test_partitioned_names_a_line_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The bolt raises, and the error says on which line of which log."""
    write_log(tmp_path, 0, "INFO started", "oops")
    with TopologyHarness(example(monkeypatch, "partitioned", LOGS_FOLDER=tmp_path), attempts_max=1) as harness:
        with pytest.raises(
            Halted, match=r"partitioned\.py:\d+: ValueError: a log line is .* not 'oops'; on .* partition 0 tuple 2"
        ):
            harness.run()


def test_reliable_acks_after_the_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A message is removed from the queue once its batch is committed, not before."""
    write_message(tmp_path, "1", "hello")
    write_message(tmp_path, "2", "hello")
    topology = example(monkeypatch, "reliable", QUEUE_FOLDER=tmp_path)
    with TopologyHarness(topology, by_hand=True) as harness:
        harness.stores.postgres.answers = _seen(harness.stores)
        committed: list[list[int]] = []
        queue: Any = type(topology.spouts[0].spout)
        ack = queue.ack

        def ack_and_look(spout: Any, name: str) -> None:
            committed.append([batch.txid for batch in harness.batches])
            ack(spout, name)

        monkeypatch.setattr(queue, "ack", ack_and_look)
        harness.run()
        assert (list(harness.held_processing), _left(tmp_path)) == ([1], ["1.msg", "2.msg"])

        harness.fail_commit()
        harness.release_processing(1)
        harness.release_commit(1)

        assert committed == [[1], [1]], "each message once, with its batch in the ledger"
        assert _left(tmp_path) == []
        assert _texts(harness.stores) == {"hello": 2}


def test_reliable_counts_once_what_comes_again_after_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was planned and not yet acked comes again, wherever the driver dies, and counts once by the table of what
    was seen.
    """
    again = 0
    for nth in range(1, 40):
        for number, text in enumerate(["a", "b", "a"]):
            write_message(tmp_path, f"{nth}_{number}", text)
        stores = SimulatedStores()
        stores.postgres.answers = _seen(stores)
        topology = example(monkeypatch, "reliable", QUEUE_FOLDER=tmp_path)
        with KillAt(nth) as kill:
            try:
                SimulatedDriver(topology=topology, stores=stores, seed=nth).run()
            except Killed:
                pass

        SimulatedDriver(topology=topology, stores=stores, seed=nth + 1).run()

        assert (_texts(stores), _left(tmp_path)) == ({"a": 2, "b": 1}, []), (
            f"killed at {kill.killed_at}, the {nth}-th time"
        )
        again += (
            sum(len(_ids(one.parameters)) for one in stores.postgres.executed if "INTO message_seen" in one.statement)
            > 3
        )
        if kill.killed_at is None:
            break
    assert nth > 5
    assert again, "no crash made a message come again"


def _levels(harness: TopologyHarness) -> Mapping[tuple[Any, ...], int]:
    return {key: n for key, (n,) in harness.table("log_levels").items()}


def _left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _ids(parameters: Any) -> Sequence[str]:
    return list(parameters[0])


def _seen(stores: SimulatedStores) -> Callable[[str, Any], Sequence[Sequence[Any]]]:
    """Answers as a table with a unique key does, by what was committed so far."""

    def answer(statement: str, parameters: Any) -> Sequence[Sequence[Any]]:
        if "INTO message_seen" not in statement:
            return []
        inserted = [one for one in stores.postgres.executed if "INTO message_seen" in one.statement]
        seen = {name for one in inserted for name in _ids(one.parameters)}
        return [(name,) for name in _ids(parameters) if name not in seen]

    return answer


def _texts(stores: SimulatedStores) -> Counter[str]:
    counts: Counter[str] = Counter()
    for one in stores.postgres.executed:
        if "INTO message_texts" in one.statement:
            parameters: Any = one.parameters
            counts[parameters[0]] += parameters[1]
    return counts
