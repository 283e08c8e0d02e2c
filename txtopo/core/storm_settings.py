"""Settings of Storm and JStorm as data: which have an effect here, which have none and why, which are refused.
docs/storm_settings.md shows them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

TICK_SECONDS: Final = "topology.tick.tuple.freq.secs"
"""Seconds between two tick tuples of a bolt: in FeederTopology, never in a batch."""
FEEDER_ONLY: Final = (TICK_SECONDS, "topology.enable.message.timeouts")
"""Settings that FeederTopology uses in addition to those of a batch."""

_SPARK = "Spark runs the tasks: --master and --conf say on what, and how large"
_TASKS = "a component has as many tasks as its parallelism_hint says"
_QUEUES = (
    "there are no queues between tasks: topology.max.spout.pending and results_bytes_max limit the work in progress"
)
_ARROW = "tuples travel as Arrow, with the types that are declared"
_TOLD = "`txtopo status`, `show` and `events` report what happens, and logs go to log_folder"
_NAME = "the name in TopologyBuilder is the identity of a topology, and rights are those of the accounts that run it"
_TRIDENT = "a batch is planned as soon as there is input: spout_poll_s is the pause where there was none"
_PROGRESS = "attempts are judged by progress: one without progress for topology.message.timeout.secs is retried"
_DAEMONS = "there are no daemons of Storm"
_ZOOKEEPER = "ZooKeeper is given by --zk, TXTOPO_ZK or zookeeper in txtopo.toml"

MEANS_NOTHING: Final[Mapping[str, tuple[str, ...]]] = {
    _SPARK: (
        "topology.workers",
        "topology.worker.*",
        "topology.classpath",
        "topology.classpath.*",
        "topology.environment",
        "topology.optimize",
        "topology.component.resources.*",
        "topology.component.cpu.*",
        "topology.scheduler.*",
        "topology.spread.components",
        "topology.ras.*",
        "topology.priority",
        "topology.isolate.machines",
        "topology.locality*",
        "topology.disable.loadaware.messaging",
        "topology.blobstore.map",
        "topology.min.replication.count",
        "topology.max.replication.wait.time.sec",
        "topology.subprocess.timeout.secs",
        "topology.shellbolt.max.pending",
        "topology.multilang.serializer",
        "topology.master.*",
        "topology.memory.*",
        "topology.kill.*",
        "topology.state.synchronization.timeout.secs",
    ),
    _TASKS: ("topology.tasks", "topology.max.task.parallelism"),
    _QUEUES: (
        "topology.backpressure.*",
        "topology.executor.*",
        "topology.transfer.*",
        "topology.receiver.*",
        "topology.producer.*",
        "topology.disruptor.*",
        "topology.batch.flush.interval.millis",
        "topology.spout.wait.*",
        "topology.spout.recvq.skips",
        "topology.bolt.wait.*",
        "topology.sleep.spout.*",
        "topology.bolts.outgoing.*",
        "topology.ctrl.buffer.size",
        "topology.flow.control.*",
    ),
    _ARROW: (
        "topology.kryo.*",
        "topology.fall.back.on.java.serialization",
        "topology.skip.missing.kryo.registrations",
        "topology.tuple.serializer",
        "topology.serialized.*",
        "topology.testing.always.try.serialize",
    ),
    _TOLD: (
        "topology.debug",
        "topology.debug.*",
        "topology.stats.*",
        "topology.builtin.metrics.*",
        "topology.metrics.*",
        "topology.v2.metrics.*",
        "topology.enable.metrics",
        "topology.enable.v2.metrics.tick",
        "topology.eventlogger.*",
        "topology.event.logger.*",
        "topology.logging.*",
        "topology.error.throttle.interval.secs",
        "topology.max.error.report.per.interval",
        "topology.metric.*",
    ),
    _NAME: (
        "topology.name",
        "topology.id",
        "topology.transactional.id",
        "topology.version",
        "topology.submitter.*",
        "topology.users",
        "topology.groups",
        "topology.readonly.*",
        "topology.auto-credentials",
    ),
    _TRIDENT: ("topology.trident.*",),
    _PROGRESS: ("topology.enable.message.timeouts",),
    _ZOOKEEPER: ("storm.zookeeper.*", "transactional.zookeeper.*"),
    _DAEMONS: ("storm.*", "nimbus.*", "supervisor.*", "transactional.*", "jstorm.*"),
}
"""By the reason that is reported; `*` stands for any suffix. The first match counts."""

REFUSED: Final[Mapping[str, tuple[str, ...]]] = {
    "no bolt is given windows: make the window a key, from the time that a record carries, and count by it": (
        "topology.bolts.window.*",
        "topology.bolts.sliding.*",
        "topology.bolts.tumbling.*",
        "topology.bolts.late.*",
        "topology.bolts.tuple.timestamp.*",
        "topology.bolts.watermark.*",
        "topology.bolts.message.id.field.name",
    ),
    "no state is carried from batch to batch but in tables: keep it in one, with a BatchCommitter": (
        "topology.state.provider",
        "topology.state.provider.*",
        "topology.state.checkpoint.*",
    ),
    "no hook of a task would ever be called: put its code into prepare and cleanup": ("topology.auto.task.hooks",),
}
"""The same for settings without which a topology would have other results."""

_FAMILIES = ("topology.", "storm.", "nimbus.", "supervisor.", "transactional.", "jstorm.")


class Ignored(NamedTuple):
    """A setting without effect here."""

    of: str
    """Its owner: `the topology`, or a component by name."""
    name: str
    why: str


def is_storms(name: str) -> bool:
    """Return True if this is a name of a Storm setting, not of a component's custom setting."""
    return name.startswith(_FAMILIES)


def why_nothing(name: str) -> str | None:
    """Return why a setting has no effect here; None for any other setting."""
    return _reason(MEANS_NOTHING, name)


def problem_with(name: str, honoured: Iterable[str]) -> str | None:
    """Return why a name of Storm's cannot be in a config, in words that follow the name; None if it can. `honoured` are
    the names that have an effect here.
    """
    known = (*honoured, *FEEDER_ONLY)
    if name in known or not is_storms(name) or why_nothing(name) is not None:
        return None
    if (why := _reason(REFUSED, name)) is not None:
        return f"is refused: {why}"
    exact = [
        *known,
        *(one for names in (*MEANS_NOTHING.values(), *REFUSED.values()) for one in names if "*" not in one),
    ]
    near = difflib.get_close_matches(name, exact, n=1, cutoff=0.8)
    hint = f": did you mean {near[0]}?" if near else "; a custom setting of a component needs another name"
    return f"is not a Storm setting that txtopo knows{hint}"


def ignored_in(of: str, names: Iterable[str], honoured: Iterable[str], *, whole: bool) -> list[Ignored]:
    """Return the settings of a config that have no effect. `whole`: it is the topology's; a component cannot set how
    batches run.
    """
    found = []
    for name in sorted(names):
        if (why := why_nothing(name)) is not None:
            found.append(Ignored(of, name, why))
        elif not whole and name in honoured:
            found.append(Ignored(of, name, "it counts in the config of the topology alone"))
    return found


def _reason(table: Mapping[str, tuple[str, ...]], name: str) -> str | None:
    fits = (why for why, names in table.items() for one in names if _fits(name, one))
    return next(fits, None)


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
