"""Growing files on the real stores: counted by one driver after another, recounted by the audit from wherever rotation
put them, and read by the commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.kit.audits import Audited, findings
from tests.kit.driver import in_process
from tests.kit.tails import Log
from txtopo import CountCommitter, TailSpout, TopologyBuilder
from txtopo.app import drive
from txtopo.cli import main
from txtopo.config import load_settings
from txtopo.formats import Json
from txtopo.testing import TopologyHarness


def run(audited: Audited, zookeeper: str, log: Log) -> int:
    """To the end of what is there; in the same stores each time."""
    builder = TopologyBuilder("growing")
    spout = TailSpout(log.path, "level string, _line bigint", format=Json(), settled_s=0, rotated_s=0, rejected_max=0.5)
    builder.set_spout("log", spout)
    committer = CountCommitter("levels", ["level"], count="n", sums={"_line": "lines"})
    builder.set_committer_bolt("levels", committer).fields_grouping("log", ["level"])
    flags: dict[str, Any] = {"once": True, "dsn": audited.dsn, "zookeeper": zookeeper, "quiet": True}
    settings = load_settings(flags, cwd=Path.cwd(), environment={}, target=None)
    return drive(builder.build(), "growing.py:topology", settings, in_process)


def counts(audited: Audited) -> dict[str, tuple[int, int]]:
    with psycopg2.connect(audited.dsn) as connection, connection.cursor() as cursor:
        cursor.execute("select level, n, lines from public.levels")
        found = {level: (n, lines) for level, n, lines in cursor.fetchall()}
    connection.close()
    return found


def test_a_log_that_is_rotated_is_counted_and_recounted(
    audited: Audited, zookeeper_root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """MATCH wherever the lines are now; MISMATCH for other bytes in their place; UNVERIFIED when they are gone."""
    log = Log(audited.folder / "app.log")
    info, warn = '{"level": "INFO"}', '{"level": "WARN"}'
    log.write(info, warn, "no json")
    assert run(audited, zookeeper_root, log) == 0
    log.write(info)
    log.rename()
    log.write(warn, warn)
    assert run(audited, zookeeper_root, log) == 0
    log.copytruncate()
    log.compress(2)
    log.write(info, *['{"level": "DEBUG"}'] * 200)
    assert run(audited, zookeeper_root, log) == 0
    assert counts(audited) == {"INFO": (3, 1 + 4 + 1), "WARN": (3, 2 + 1 + 2), "DEBUG": (200, sum(range(2, 202)))}

    code, report = audited.audit(topology="growing")
    assert (code, report["verdict"]) == (0, "MATCH"), report["findings"]
    for command in (["show", "growing", "1"], ["trace", "growing", "--table", "levels", "--key", "level=WARN"]):
        assert main((*command, "--dsn", audited.dsn)) == 0
    assert "app.log:3" in capsys.readouterr().out

    text = log.path.read_text()
    log.path.write_text(text[:1900] + text[1900:].replace("DEBUG", "OTHER", 1))
    code, report = audited.audit(topology="growing")
    assert code == 1
    assert ["are not those that were planned" in one["message"] for one in findings(report)] == [True]

    log.name(2, ".gz").unlink()
    log.path.unlink()
    code, report = audited.audit(topology="growing")
    assert (code, report["verdict"]) == (3, "UNVERIFIED")
    assert "are in no file any more" in str(report["findings"])


def test_a_log_that_grows_is_counted_by_spark_tasks(spark_session: Any, tmp_path: Path) -> None:
    """Every range is read by a task of its own, also in a wave, wherever its file is when the task begins."""
    logs = [Log(tmp_path / name) for name in ("a.log", "b.log")]
    builder = TopologyBuilder("growing")
    spout = TailSpout(tmp_path / "*.log", "line string, _line bigint", settled_s=0, rotated_s=0, bytes_per_batch=40)
    builder.set_spout("log", spout)
    committer = CountCommitter("lines", ["line"], count="n", sums={"_line": "number"})
    builder.set_committer_bolt("lines", committer).fields_grouping("log", ["line"])
    expected: dict[tuple[str], tuple[int, int]] = {}
    with TopologyHarness(builder.build(), session=spark_session, once=False) as harness:
        for round_ in range(3):
            for log in logs:
                log.write(*(f"{log.path.name} {round_} {at}" for at in range(10)))
                first = 10 * (round_ % 2)
                expected |= {(line,): (1, first + at) for at, line in enumerate(log.written[-10:], 1)}
            harness.run()
            if round_ == 1:
                logs[0].rename()
                logs[1].copytruncate()
    assert harness.table("lines") == expected
    assert len(harness.batches) > 3
