"""The benchmark's own arithmetic: ratios, targets, processes, counts of its input. No system is measured."""

from __future__ import annotations

import doctest
import gzip
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import (
    cases,
    formats,
    history,
    inputs,
    kafka,
    led,
    memory,
    pace,
    processes,
    rejected_rows,
    report,
    round_trips,
    run_protocol,
    takeover,
    words,
)
from benchmarks.cases import PASSES, STREAMING, TARGETS, TRIDENT, TXTOPO, Job, Target
from benchmarks.inputs import Folder
from benchmarks.led import Led
from benchmarks.one import PROTOCOL
from benchmarks.processes import Process
from txtopo import KafkaSpout
from txtopo.local.services import ServicesState
from txtopo.spouts.kafka.messages import MessageRows
from txtopo.topology.components import Tally

STORES = ServicesState(dsn="dsn", zookeeper="127.0.0.1:2181", postgres_pid=7, zookeeper_pid=8, folder="/services")


def rows_of(case: str, peer: str, *paces: int) -> list[dict[str, Any]]:
    """Rows of a case, one a pass."""
    return [
        {"case": case, "pass": number, "peer": peer, "rows_per_s": pace, "wall_s": 1.0, "batches": 5}
        for number, pace in enumerate(paces, 1)
    ]


ROWS = [
    *rows_of("daily-1", TXTOPO, 300, 500, 450),
    *rows_of("daily-1", STREAMING, 10, 10, 5),
    *rows_of("daily-1", TRIDENT, 250, 200, 180),
]


@pytest.mark.parametrize(
    "module", [cases, inputs, memory, processes, report, round_trips], ids=lambda module: module.__name__
)
def test_examples_in_docstrings(module: ModuleType) -> None:
    found = doctest.testmod(module)

    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize(
    "module",
    [command, pace, takeover, words, rejected_rows, formats, kafka, memory],
    ids=lambda module: module.__name__,
)
def test_help_is_printed_and_nothing_is_measured(module: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        module.main(["--help"])

    assert ended.value.code == 0
    assert "usage: python -m benchmarks" in capsys.readouterr().out


def test_a_ratio_compares_each_pass_with_the_same_pass_of_the_peer() -> None:
    found = report.ratio(ROWS, "daily-1", STREAMING)

    assert found == report.Ratio("daily-1", STREAMING, first=30, last=90, lowest=30, highest=90, passes=3)
    assert report.ratio(ROWS, "daily-5", STREAMING) is None


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target("daily-1", "first", 30, STREAMING), ("reached", 30.0)),
        (Target("daily-1", "first", 31, STREAMING), ("not reached", 30.0)),
        (Target("daily-1", "last", 2.5, TRIDENT), ("reached", 2.5)),
        (Target("daily-5", "last", 2.5, TRIDENT), ("not measured", None)),
    ],
)
def test_a_target_is_reached_not_reached_or_not_measured(target: Target, expected: tuple[str, float | None]) -> None:
    assert report.reached(target, ROWS, PASSES) == expected


def test_fewer_passes_do_not_measure_a_target_of_the_last_one() -> None:
    """The second pass of a process is not as warm as the third."""
    short = [row for row in ROWS if row["pass"] < PASSES]

    assert report.reached(Target("daily-1", "last", 1, STREAMING), short, PASSES) == ("not measured", None)
    assert report.reached(Target("daily-1", "first", 1, STREAMING), short, PASSES) == ("reached", 30.0)


def test_every_target_is_of_a_case_and_a_system_that_is_measured_with_it() -> None:
    measured = {(case.name, peer) for case in cases.CASES for peer in (*case.peers, *case.more_peers)}

    beside = {(target.case, target.peer) for target in TARGETS if target.peer != cases.LOOP}
    assert beside <= measured
    assert all(TXTOPO in case.peers for case in cases.CASES)


def test_the_report_names_every_pass_every_target_and_what_the_protocol_adds() -> None:
    used = dict.fromkeys(processes.ROLES, 1.0)
    more = {
        "cpu_s_per_million_rows": used,
        "wal_bytes_per_batch": 9000,
        "zookeeper_proposals_per_batch": 0.25,
        "peak_memory_mib": {"driver": 100},
    }
    ms = {"p50": 4.0, "p99": 9.0}
    protocol = {"lone_batch_ms": ms, "batch_in_a_wave_ms": ms, "round_trips_per_batch": 0.5}

    text = report.whole([row | more for row in ROWS], protocol, None, PASSES)

    assert "30.00 to 90.00" in text
    assert "9,000" in text
    assert "lone batch: p50 4.00 ms, p99 9.00 ms (goal 5 ms): reached" in text
    assert "batch in a wave: p50 4.00 ms, p99 9.00 ms (goal 1 ms): not reached" in text
    assert sum(line.endswith(("reached", "not measured")) for line in text.splitlines()) == len(TARGETS) + 2


def test_rows_of_different_numbers_of_passes_make_one_table() -> None:
    """A system that failed half way must not hide what the others did."""
    text = report.whole([*rows_of("daily-1", TXTOPO, 10, 20), *rows_of("daily-1", STREAMING, 5)], None, None, PASSES)

    assert "2.00 to 2.00" in text


def test_processes_have_the_role_of_their_place_below_the_driver() -> None:
    """Sessions of Postgres and workers that have ended count with their parent; a program of the driver that is not
    Java, and what the JVM was started by, are neither.
    """
    found = {
        one.pid: one
        for one in (
            Process(1, "python", 0, 1.0, 50.0),
            Process(2, "bash", 1, 0.5, 0.0),
            Process(3, "java", 2, 8.0, 30.0),
            Process(4, "python3", 3, 2.0, 4.0),
            Process(5, "python3", 4, 1.0, 0.0),
            Process(7, "postgres", 0, 1.0, 2.0),
            Process(8, "postgres", 7, 3.0, 0.0),
            Process(9, "java", 0, 0.25, 0.0),
        )
    }

    assert processes.cpu_s(1, 7, 9, found) == {
        "driver": 1.0,
        "jvm": 8.0,
        "workers": 7.0,
        "postgres": 6.0,
        "zookeeper": 0.25,
    }


def test_batches_of_one_commit_share_the_time_since_the_one_before() -> None:
    found = run_protocol.steps_ms(Led(0.0, [(0.5, 2), (0.51, 3), (0.53, 7)]))

    assert found == pytest.approx([10.0, 5.0, 5.0, 5.0, 5.0])


def test_the_input_is_counted_file_by_file(tmp_path: Path) -> None:
    folder = tmp_path / "days"
    folder.mkdir()
    for name, rows in (("a", "AA,JFK,10\nAA,JFK,5\n"), ("b", 'UA,"EWR",7\n')):
        (folder / f"{name}.csv").write_text(f"carrier,origin,distance\n{rows}")

    whole = Folder.counted(folder)
    first = whole.first(1)

    assert (whole.files, whole.rows) == (2, 3)
    assert whole.counts == {("AA", "JFK"): (2, 15), ("UA", "EWR"): (1, 7)}
    assert (first.files, first.rows, first.counts) == (1, 2, {("AA", "JFK"): (2, 15)})
    assert whole.first(2) is whole


def test_a_wrong_count_is_seen_whichever_side_has_it() -> None:
    right = {("AA", "JFK"): (2, 15)}

    assert inputs.difference(right, dict(right)) is None
    for wrong in ({}, {("AA", "JFK"): (2, 16)}, right | {("UA", "EWR"): (1, 7)}):
        assert inputs.difference(wrong, right)


def test_a_run_of_commits_that_failed_fails_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts are right, but not as fast as they could be, for ever: nobody else would see it."""
    (job, *_) = command.jobs(command.options([]), tmp_path, STORES)
    counts = {("AA", "JFK"): (2, 15)}
    monkeypatch.setattr(led, "read_table", lambda dsn, query: counts)

    monkeypatch.setattr(led, "failed_runs", lambda job, name: 0)
    led.check_run(job, "daily", Led(0.0, [(1.0, 3)]), 3, counts)
    monkeypatch.setattr(led, "failed_runs", lambda job, name: 2)

    with pytest.raises(led.WrongResult, match="2 runs of commits failed"):
        led.check_run(job, "daily", Led(0.0, [(1.0, 3)]), 3, counts)
    with pytest.raises(led.WrongResult, match="committed 3 batches instead of 4"):
        led.check_run(job, "daily", Led(0.0, [(1.0, 3)]), 4, counts)
    with pytest.raises(led.WrongResult, match="1 of 1 keys are wrong"):
        led.check_run(job, "daily", Led(0.0, [(1.0, 3)]), 3, {("AA", "JFK"): (2, 16)})


def test_a_case_alone_needs_neither_the_others_nor_the_protocol(tmp_path: Path) -> None:
    asked = command.options(["--case", "daily-1", "--passes", "1"])
    everything = command.options([])
    with_peers = command.options(["--case", f"daily-1,{PROTOCOL}", "--peers"])

    def names(options: Any) -> list[tuple[str, str]]:
        return [(job.case, job.peer) for job in command.jobs(options, tmp_path, STORES)]

    assert names(asked) == [("daily-1", TXTOPO), ("daily-1", STREAMING)]
    assert names(everything)[-1] == (PROTOCOL, TXTOPO)
    assert {case for case, _ in names(everything)} == {case.name for case in cases.CASES} | {PROTOCOL}
    assert names(with_peers)[-2:] == [("daily-1", cases.TRANSACTIONAL), (PROTOCOL, TXTOPO)]
    with pytest.raises(SystemExit, match="2"):
        command.options(["--case", "daily-2"])


def test_a_job_is_the_same_in_its_own_process(tmp_path: Path) -> None:
    (job, *_) = command.jobs(command.options([]), tmp_path, STORES)

    assert Job(**json.loads(job.as_json())) == job


def test_a_process_that_fails_fails_the_benchmark(tmp_path: Path) -> None:
    """With its last words: an input that is not there, in this case."""
    (job, *_) = command.jobs(command.options(["--case", "daily-73"]), tmp_path, STORES)
    job = Job(**json.loads(job.as_json()) | {"peer": "nobody"})

    with pytest.raises(ChildProcessError, match="nothing measures nobody"):
        list(command.measured(job))


def test_what_is_written_is_one_row_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    command.write(ROWS, {PROTOCOL: {"round_trips_per_batch": 1.0}})

    written = json.loads((tmp_path / "build" / "bench.json").read_text())
    assert written == ROWS
    assert all(row.keys() >= set(report.KEYS) for row in written)


def test_the_pace_is_told_as_ratios_of_the_last_mark_to_the_first() -> None:
    """Alone and in runs, with the counts first to last; a start is one line."""
    counted = ("server_us", "client_us", "wal_bytes", "buffers", "rows_fetched", "rows_scanned", "statements")
    rows = [
        {"after": after, "commits": commits, **dict.fromkeys(counted, cost)}
        for after, cost in ((100, 100.0), (1_000, 90.0), (10_000, 104.0))
        for commits in ("alone", "in runs of 64")
    ]

    told = pace.report(rows, [{"step": "start", "cpu_s": 1.5}], {"ledger": [8192, 4096]})

    assert "alone, batch 10,000 to batch 100: server_us 1.04, client_us 1.04, wal_bytes 1.04, buffers 1.04" in told
    assert "step: start, cpu_s: 1.5" in told and "ledger: 8,192 bytes, indexes 4,096" in told


def test_files_of_a_history_are_named_in_order() -> None:
    """A batch has the files that sort after those of the batch before."""
    files = history.named_files("/in")
    names = [next(files).path for _ in range(12)]
    assert names == sorted(names) and len(set(names)) == 12


@pytest.mark.parametrize("case", formats.CASES, ids=lambda case: case.name)
def test_the_files_of_each_format_hold_the_rows_that_are_measured(case: formats.Case, tmp_path: Path) -> None:
    """Every row parses, and none is there twice."""
    formats.write_files(tmp_path, [case], 400)
    metadata = formats.planned(case, tmp_path)
    source = formats.source_of(case, tmp_path)
    tally = Tally()
    rows = sum(batch.num_rows for part in source.parts(metadata) for batch in source.emit_part(metadata, part, tally))
    assert (len(metadata["files"]), rows, tally.rejects) == (formats.FILES, 400, [])


@pytest.mark.parametrize("name", kafka.CASES)
def test_the_messages_of_each_case_are_rows(name: str) -> None:
    """As a bare consumer reads them."""
    value, settings, pair = kafka.CASES[name]
    spout = KafkaSpout("t", servers="127.0.0.1:1", **settings)
    messages = [FakeMessage(number, value(number)) for number in range(100)]
    found, _ = MessageRows("t/0", spout.fields, spout.layout()["value"]).emit(messages)
    totals: kafka.Totals = {}
    assert found.batch is not None
    assert (found.batch.num_rows, found.rejects) == (100, [])
    if pair is not None:
        kafka.add(totals, found.batch)
        pairs = [pair(message.value()) for message in messages]
        assert totals == {
            shop: (sum(one == shop for one, _ in pairs), sum(number for one, number in pairs if one == shop))
            for shop in {shop for shop, _ in pairs}
        }


@dataclass
class FakeMessage:
    """A message without key, headers and timestamp."""

    number: int
    body: bytes

    def offset(self) -> int:
        return self.number

    def value(self) -> bytes:
        return self.body

    def key(self) -> None:
        """None."""

    def headers(self) -> None:
        """None."""

    def timestamp(self) -> tuple[int, int]:
        return 0, -1


@pytest.mark.parametrize("kind", memory.KINDS)
def test_the_file_whose_memory_is_measured_holds_the_rows_that_are_expected(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted with other code, after it was unpacked with other code."""
    path = tmp_path / f"in.{kind}"
    monkeypatch.setattr(memory, "BLOCK_ROWS", 500)
    expected = memory.write_file(path, 40_000)
    data = path.read_bytes()
    lines = (gzip.decompress(data) if kind == "csv.gz" else data).decode().splitlines()
    found = Counter(tuple(line.split(",")[:2]) for line in lines[1:])
    assert found == {key: number for key, (number, _) in expected.items()}
    assert sum(miles for _, miles in expected.values()) == sum(int(line.split(",")[2]) for line in lines[1:])
    assert len(lines) == 1 + 2 * memory.BLOCK_ROWS
