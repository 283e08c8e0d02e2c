"""`txtopo explain`: what a topology is, in text and JSON, without a service and without Spark where it has no
DataFrames.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.cli import main
from txtopo.cli.explain import explain_text
from txtopo.cli.explaining import WavesExplained, explained
from txtopo.config import Settings

TUPLES = """
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.bolts import ArrowBolt, BasicBolt, BatchBolt, BatchCommitter, CustomStreamGrouping, RichBolt, Stream

class Split(BasicBolt):
    outputs = ["word string not null", Stream("line string", name="odd"), Stream("word string", name="named", direct=True)]
    def execute(self, tup, collector): ...

class Count(BatchBolt):
    outputs = ["word string", "n bigint"]
    def execute(self, tup): ...
    def finish_batch(self): ...

class Tell(RichBolt):
    def execute(self, tup): ...

class Twice(ArrowBolt):
    outputs = ["word string", "`n times` bigint"]
    def execute(self, batch, collector): ...

class ByLength(CustomStreamGrouping):
    def choose_tasks(self, task, values): return [len(values[0]) % 2]

class Kept(BatchCommitter):
    effects = "outside"
    outputs = ["word string"]
    def commit(self, transaction, rows, collector): ...

class Later(BatchCommitter):
    def commit(self, transaction, rows, collector): ...

builder = TopologyBuilder(
    "words", acking="tuple", guarantee="at_least_once", config={"topology.acker.executors": 2, "wave_bytes_max": 1000}
)
builder.set_spout("lines", FileSpout("lines", "line string"))
builder.set_spout("more", FileSpout("more", "line string"), parallelism_hint=3)
builder.set_bolt("split", Split(), parallelism_hint=2).shuffle_grouping("lines").all_grouping("more")
builder.set_bolt("tell", Tell()).shuffle_grouping("split", stream="odd").direct_grouping("split", stream="named")
builder.set_bolt("count", Count(), parallelism_hint=2).fields_grouping("split", ["word"])
builder.set_bolt("twice", Twice()).custom_grouping("split", ByLength())
builder.set_committer_bolt("counts", CountCommitter("s.counts", ["word"], sums={"n": "total"}, contributions=False)).fields_grouping("count", "word")
builder.set_committer_bolt("kept", Kept()).shuffle_grouping("twice")
builder.set_committer_bolt("later", Later()).shuffle_grouping("kept")
topology = builder.build()
"""  # noqa: E501

GOLDEN = """\
words
  runtime    tuples go from task to task, level by level
  acking     by tuple: counts between tasks, and the tree of every spout tuple
  waves      yes, up to 64 batches or 1000 bytes of input share a Spark job
  commits    one by one: committer kept is a Kept, which commits batches one by one
  JVM        computes with no rows: starts with -XX:TieredStopAtLevel=1, unless you name a compiler

Components:
  lines: spout FileSpout, transactional, a task a part
    emits line string
  more: spout FileSpout, transactional, 3 tasks
    emits line string
  split: basic bolt Split, 2 tasks (numbers 1 to 2) at level 1
    reads lines by shuffle
    reads more by all
    emits word string not null
    emits on odd line string
    emits on named (direct) word string
  tell: rich bolt Tell, 1 task (number 3) at level 2
    reads split:odd by shuffle
    reads split:named by direct
  count: batch bolt Count, 2 tasks (numbers 4 to 5) at level 2
    reads split by fields(word)
    emits word string, n bigint
  twice: Arrow bolt Twice, 1 task (number 6) at level 2
    reads split by custom(ByLength)
    emits word string, `n times` bigint
  counts: committer CountCommitter, 1 task (number 7) at level 3
    reads count by fields(word)
    counts one tuple at a time: every tuple is tracked
  kept: committer Kept, 1 task (number 8) at level 3, writes outside of the database transaction too
    reads twice by shuffle
    emits word string
  later: committer Later, 1 task (number 9) at level 4, in the commit phase, in the driver
    reads kept by shuffle
  $acker: acker, 2 tasks (numbers 10 to 11) at level 5

Guarantees (the topology asks for at_least_once):
  lines -> counts: exactly_once (transactional spout)
  more -> counts: exactly_once (transactional spout)
  lines -> kept: at_least_once (transactional spout, effects outside)
  more -> kept: at_least_once (transactional spout, effects outside)
  lines -> later: exactly_once (transactional spout)
  more -> later: exactly_once (transactional spout)

Tables:
  counts makes what is not there yet:
    create table "s"."counts" ("word" text, "count" bigint not null, "total" numeric not null, unique nulls not distinct ("word"));
  kept makes none: its code writes to its own tables
  later makes none: its code writes to its own tables

What can be done with committed batches:
  counts: none of these
    no recompute, audit by key, trace, backfill: contributions=False keeps nothing of a batch
  kept: none of these
    no recompute, audit by key, trace, backfill: only its own code knows what it writes
  later: none of these
    no recompute, audit by key, trace, backfill: only its own code knows what it writes
"""  # noqa: E501

FRAMES = """
from txtopo import CountCommitter, FileSpout, TopologyBuilder

def clean(frame):
    raise RuntimeError("explain --no-spark calls no bolt")

builder = TopologyBuilder("flights")
builder.set_spout("departures", FileSpout("flights", "carrier string"))
builder.set_bolt("clean", clean, "departures", fields="carrier string")
builder.set_bolt("loose", clean, "departures")
builder.set_bolt("again", clean, "loose", fields="carrier string")
builder.set_committer_bolt("counts", CountCommitter("counts", ["carrier"])).fields_grouping("clean", "carrier")
builder.set_committer_bolt("others", CountCommitter("others", ["carrier"]), "again")
topology = builder.build()
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither this machine's settings nor its services are seen."""
    for name in [name for name in os.environ if name.startswith("TXTOPO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TXTOPO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], source: str, name: str, *flags: str) -> str:
    """What `txtopo explain` prints of an application, which must leave nothing behind and say nothing else."""
    Path(f"{name}.py").write_text(source)
    before = sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts)
    code = main(["explain", f"{name}.py:topology", *flags])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts) == before
    return out


def test_a_topology_of_tuples_is_told_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise: graph, committers with their DDL, guarantee of each pair, acking, waves; needs neither a service nor
    Spark.
    """
    monkeypatch.setitem(sys.modules, "txtopo.spark.session.spark_session", None)  # an import of it would fail
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)  # the tests' own JVM

    assert said(capsys, TUPLES, "explained_words") == GOLDEN


def test_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: --json; one document with its schema version."""
    document = json.loads(said(capsys, TUPLES, "words_as_json", "--json"))

    by_name = {item["name"]: item for item in document["components"]}
    assert (document["schema"], document["topology"], document["ackers"]) == ("txtopo.explain/2", "words", 2)
    assert document["waves"] == {"shared": True, "reason": None, "txids_max": 64, "bytes_max": 1000}
    assert by_name["split"]["inputs"][1] == {
        "source": "more",
        "stream": "default",
        "grouping": "all",
        "fields": [],
        "class": None,
    }
    assert document["commit_runs"] == {
        "shared": False,
        "reason": "committer kept is a Kept, which commits batches one by one",
        "txids_max": 64,
    }
    assert (by_name["count"]["level"], by_name["count"]["task_ids"]) == (2, [4, 5])
    assert [item["ddl"] == [] for item in document["committers"]] == [False, True, True]


def test_commit_runs_that_are_switched_off_are_told_with_the_setting(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Promise: whether batches are committed together, and if not, why."""
    Path("txtopo.toml").write_text("[default]\nrun_txids_max = 1\n")

    out = said(capsys, FRAMES, "explained_frames", "--no-spark")

    assert f"commits    one by one: run_txids_max is 1 ({tmp_path}/txtopo.toml [default])\n" in out


def test_without_spark_dataframe_bolts_leave_waves_open(capsys: pytest.CaptureFixture[str]) -> None:
    """Promise: --no-spark starts none and calls no bolt; everything else is told."""
    out = said(capsys, FRAMES, "explained_frames", "--no-spark")

    assert "waves      not known: whether clean, loose, again depends on other rows is seen in Spark's plan" in out
    assert "runtime    DataFrames" in out
    assert "commits    batches that are ready at the same time together, up to 64, unless a target table has a" in out
    assert "  clean: DataFrame bolt clean, rows any\n    reads departures\n    emits carrier string\n" in out
    assert "  loose: DataFrame bolt clean, rows any\n    reads departures\n    emits what Spark infers\n" in out
    assert "  counts: committer CountCommitter\n    reads clean by fields(carrier)\n" in out
    assert (
        'create table "public"."counts_contribution" ("txid" bigint not null, "reverses" bigint, "carrier" text' in out
    )
    assert "create trigger frozen before update or delete" in out
    assert (
        "  counts: recompute, trace, backfill\n    no audit by key: bolts stand between the source and its rows\n"
        in out
    )


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("wave_bytes_max = 0", "wave_bytes_max is 0 ({folder}/txtopo.toml [default])"),
        ("wave_txids_max = 1", "wave_txids_max is 1 ({folder}/txtopo.toml [default])"),
    ],
)
def test_waves_that_are_switched_off_are_told_with_the_setting(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, setting: str, words: str
) -> None:
    """Promise: whether it runs in waves, and if not, why; also of DataFrame bolts, without Spark."""
    Path("txtopo.toml").write_text(f"[default]\n{setting}\n")

    out = said(capsys, FRAMES, f"off_{setting[:9]}")

    assert f"waves      no, each batch has its own Spark job: {words.format(folder=tmp_path)}\n" in out


def test_a_bolt_that_is_the_reason_is_told() -> None:
    """What Spark says of a bolt is passed on as it is."""
    builder = TopologyBuilder("one")
    builder.set_spout("lines", FileSpout("lines", "line string"))
    builder.set_committer_bolt("counts", CountCommitter("counts", ["line"]), "lines")

    text = explain_text(
        explained(builder.build(), Settings(), WavesExplained.refused("clean: Aggregate depends on other rows"))
    )

    assert "waves      no, each batch has its own Spark job: clean: Aggregate depends on other rows\n" in text
    assert WavesExplained.refused(None) == WavesExplained(True, None)


def test_what_cannot_be_explained_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2: no such application, no such setting."""
    assert main(["explain", "nowhere.py:topology"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_committers_that_share_a_job_are_named() -> None:
    """Promise: explain says whose input is read once for several committers."""
    builder = TopologyBuilder("fan")
    builder.set_spout("flights", FileSpout("flights", "carrier string, tail string"))
    builder.set_bolt("known", lambda frame: frame, "flights", fields="carrier string, tail string")
    for name, keys, stream in (
        ("one", ["carrier"], "flights"),
        ("two", ["tail"], "flights"),
        ("by", ["tail"], "known"),
    ):
        builder.set_committer_bolt(name, CountCommitter(name, keys), stream)

    document = explained(builder.build(), Settings(), WavesExplained(True))

    lines = explain_text(document).splitlines()
    why = "one tuple at a time: bolt known reads tuples of flights; its input is read once for"
    assert [line.strip() for line in lines if line.startswith("    counts ")] == [
        f"counts {why} two too",
        f"counts {why} one too",
        "counts one tuple at a time: bolt known is a function over DataFrames",
    ]
    shared = [item["counted"]["together_with"] for item in document["components"] if item["kind"] == "committer"]
    assert shared == [["two"], ["one"], []]
