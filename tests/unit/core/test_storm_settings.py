"""Storm's settings: each counts, or means nothing and is told, or is refused. None is passed over without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from txtopo import CountCommitter, Halted, Topology, TopologyBuilder
from txtopo.bolts import BasicBolt, BasicOutputCollector, RichBolt, Tuple
from txtopo.cli import main
from txtopo.cli.explain import explain_text
from txtopo.cli.explaining import WavesExplained, explained
from txtopo.config import Settings, load_settings, storms_names
from txtopo.core.storm_settings import FEEDER_ONLY, MEANS_NOTHING, REFUSED, ignored_in, problem_with, why_nothing
from txtopo.errors import ConfigurationError, TopologyError
from txtopo.spouts import TransactionalSpout
from txtopo.testing import FeederSpout, FeederTopology, TopologyHarness
from txtopo.topology.ignored_settings import ignored_settings, told_ignored

PORTED = {
    "topology.workers": 4,
    "topology.tasks": 8,
    "topology.max.task.parallelism": 3,
    "topology.backpressure.enable": True,
    "topology.backpressure.water.mark.high": 0.9,
    "topology.debug": True,
    "topology.trident.batch.emit.interval.millis": 500,
    "topology.name": "other",
    "topology.enable.message.timeouts": False,
    "storm.zookeeper.servers": ["zk"],
    "storm.zookeeper.root": "/storm",
    "transactional.zookeeper.root": "/t",
    "nimbus.host": "n",
    "supervisor.slots.ports": [6700],
    "topology.kryo.register": [],
    "topology.executor.receive.buffer.size": 1024,
}
"""What the examples of Storm and JStorm set."""


class Three(TransactionalSpout):
    """One batch of three words."""

    outputs = ("word string",)

    def __init__(self) -> None:
        self.left = 1

    def is_ready(self) -> bool:
        return self.left > 0

    def initialize_transaction(self, txid: int, previous: Any) -> Any:
        self.left -= 1
        return {}

    def emit_batch(self, attempt: Any, metadata: Any) -> Any:
        return [("a",), ("b",), ("c",)]


class Passing(BasicBolt):
    outputs = ("word string",)

    def execute(self, tup: Tuple, collector: BasicOutputCollector) -> None:
        collector.emit(tup.values)


class Rolling(Passing):
    """Emits on ticks, as RollingTopWords does."""

    config = {"topology.tick.tuple.freq.secs": 3}


def built(bolt: Any = None, config: dict[str, Any] | None = None, spout: Any = None, acking: Any = "batch") -> Topology:
    builder = TopologyBuilder("words", config=config, acking=acking)
    builder.set_spout("three", spout or Three())
    builder.set_bolt("bolt", bolt or Passing()).shuffle_grouping("three")
    builder.set_committer_bolt("counts", CountCommitter("counts", ["word"])).fields_grouping("bolt", ["word"])
    return builder.build()


def bolt_with(**config: Any) -> Passing:
    made = type("Own", (Passing,), {"config": config})()
    assert isinstance(made, Passing)
    return made


def test_every_name_of_storms_counts_or_is_told_or_is_refused() -> None:
    told = {one.name for one in ignored_settings(built(config=PORTED))}
    assert told == set(PORTED)
    for name in (
        *storms_names(),
        *PORTED,
        *(one for names in (*MEANS_NOTHING.values(), *REFUSED.values()) for one in names),
    ):
        counts, nothing = name in storms_names(), why_nothing(name) is not None
        refused = problem_with(name, storms_names()) is not None
        assert counts + nothing + refused == 1, (name, counts, nothing, refused)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("topology.message.timeout.sec", "did you mean topology.message.timeout.secs?"),
        ("topology.max.spout.pendin", "did you mean topology.max.spout.pending?"),
        ("topology.tick.tuple.freq", "did you mean topology.tick.tuple.freq.secs?"),
        ("topology.ranking.size", "a custom setting of a component needs another name"),
        ("topology.bolts.window.length.count", "make the window a key"),
        ("topology.state.provider", "BatchCommitter"),
        ("topology.auto.task.hooks", "prepare and cleanup"),
    ],
)
def test_a_name_that_means_something_nowhere_is_refused_when_the_topology_is_built(name: str, words: str) -> None:
    with pytest.raises(TopologyError, match=f"topology 'words': setting {name} ") as of_topology:
        built(config={name: 1})
    with pytest.raises(TopologyError, match=f"bolt 'bolt': setting {name} ") as of_bolt:
        built(bolt_with(**{name: 1}))

    assert words in str(of_topology.value)
    assert words in str(of_bolt.value)
    assert built(config={name: None}).name == "words", "None is Storm's `not given`"


def test_names_of_a_components_own_are_its_own() -> None:
    assert ignored_settings(built(bolt_with(limit=3, **{"my.topology.workers": 1}), {"limit": 3})) == []


def test_a_bolt_that_waits_for_ticks_is_refused_where_no_clock_ticks() -> None:
    """RollingTopWords passed its test with a clock and committed empty batches."""
    with pytest.raises(TopologyError) as of_bolt:
        built(Rolling())
    with pytest.raises(TopologyError) as of_topology:
        built(config={"topology.tick.tuple.freq.secs": 5})

    assert "bolt 'bolt': topology.tick.tuple.freq.secs = 3, but a batch has no clock" in str(of_bolt.value)
    assert "finish_batch" in str(of_bolt.value)
    assert "topology 'words': topology.tick.tuple.freq.secs = 5" in str(of_topology.value)
    assert built(config={"topology.tick.tuple.freq.secs": 0}).name == "words"


def test_a_topology_that_a_test_feeds_keeps_its_ticks() -> None:
    with FeederTopology(built(Rolling(), spout=FeederSpout("word string"))) as feeder:
        assert feeder.feed("three", ["a"], message_id=1)


def test_what_counts_for_a_topology_means_nothing_in_a_component() -> None:
    own, found = ignored_settings(built(bolt_with(**{"topology.max.spout.pending": 3, "on_poison": "halt"})))
    assert (own.of, own.name, own.why) == ("bolt", "on_poison", found.why)

    assert (found.of, found.name, found.why) == (
        "bolt",
        "topology.max.spout.pending",
        "it counts in the config of the topology alone",
    )
    assert told_ignored([found]) == "topology.max.spout.pending (of bolt) means nothing here; `txtopo explain` says why"


def test_explain_says_what_means_nothing_and_why() -> None:
    topology = built(config={"topology.workers": 4})
    document = explained(topology, Settings().with_topology(topology.config), WavesExplained(True))

    text = explain_text(document)

    assert "Settings that mean nothing where they stand:" in text
    assert "topology.workers (of the topology): Spark runs the tasks" in text
    assert "mean nothing" not in explain_text(explained(built(), Settings(), WavesExplained(True)))


def test_config_show_says_what_means_nothing_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text(
        "from txtopo import CountCommitter, FileSpout, TopologyBuilder\n"
        'builder = TopologyBuilder("t", config={"topology.workers": 4, "limit": 3})\n'
        'builder.set_spout("lines", FileSpout("orders", "item string"))\n'
        'builder.set_committer_bolt("counts", CountCommitter("orders", ["item"]), "lines")\n'
        "topology = builder.build()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXTOPO_HOME", str(tmp_path / "home"))

    assert main(["config", "show", "--app", "app.py:topology", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(["config", "show", "--app", "app.py:topology"]) == 0

    assert document["components"] == {"limit": 3}
    assert list(document["ignored"]) == ["topology.workers"]
    assert "topology.workers: Spark runs the tasks" in capsys.readouterr().out


def test_a_settings_file_refuses_what_means_nothing_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "txtopo.toml").write_text("[default]\ntopology.workers = 4\n")

    with pytest.raises(ConfigurationError, match=r"topology\.workers means nothing here: Spark runs the tasks"):
        load_settings({}, cwd=tmp_path, environment={})


def test_the_page_has_every_name_and_every_reason() -> None:
    page = (Path(__file__).parents[3] / "docs" / "storm_settings.md").read_text("utf-8")

    for why, names in {**MEANS_NOTHING, **REFUSED}.items():
        assert f"| {', '.join(f'`{name}`' for name in names)} | {why} |" in page
    assert all(f"`{name}`" in page for name in (*storms_names(), *FEEDER_ONLY))


def test_ignored_are_told_by_name() -> None:
    found = ignored_in("the topology", ["topology.workers", "topology.tasks"], (), whole=True)

    assert told_ignored(found) == "topology.tasks, topology.workers mean nothing here; `txtopo explain` says why"


class Holding(RichBolt):
    """Never acks."""

    outputs = ("word string",)

    def prepare(self, config: Any, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        self.collector.emit(tup.values, anchors=[tup])


@pytest.mark.parametrize("ackers", [0, 2])
def test_the_harness_has_the_ackers_that_a_run_has(ackers: int) -> None:
    """`topology.acker.executors` 0: nobody waits for acks, in the harness as on Spark, and `explain` says so."""
    topology = built(Holding(), {"topology.acker.executors": ackers}, acking="tuple")
    with TopologyHarness(topology, attempts_max=1) as harness:
        try:
            kind = getattr(harness.run(), "kind", None)
        except Halted:
            kind = "halted"
    text = explain_text(explained(topology, Settings().with_topology(topology.config), WavesExplained(True)))

    assert kind == ("halted" if ackers else "finished")
    assert ("no tree is waited for" in text) == (not ackers)
