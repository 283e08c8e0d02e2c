"""A driver process over a Kafka topic: the real stores, the in-process executor. `python -m tests.kit.kafka_driver`;
settings from TXTOPO_*, `DRIVER_SERVERS` and `DRIVER_TOPIC`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.kit.driver import in_process
from txtopo import CountCommitter, KafkaSpout, TopologyBuilder
from txtopo.app import drive
from txtopo.config import load_settings
from txtopo.errors import TxtopoError
from txtopo.topology.components import Topology

GROUP = "totals"


def messages_topology(servers: str, topic: str) -> Topology:
    """Counts messages by their text, two at a time."""
    builder = TopologyBuilder("messages")
    spout = KafkaSpout(
        topic,
        "text string, _offset bigint",
        servers=servers,
        value="string",
        max_records=2,
        group_id=f"{topic}-{GROUP}",
    )
    builder.set_spout("messages", spout)
    committer = CountCommitter("message_totals", ["text"], count="n", sums={"_offset": "offsets"})
    builder.set_committer_bolt("totals", committer).fields_grouping("messages", ["text"])
    return builder.build()


def main() -> int:
    """Run the topology to the end of what the topic has; the exit code is that of `txtopo run`."""
    settings = load_settings({"once": True}, cwd=Path.cwd(), environment=os.environ, target=None)
    topology = messages_topology(os.environ["DRIVER_SERVERS"], os.environ["DRIVER_TOPIC"])
    try:
        return drive(topology, "tests.kit.kafka_driver", settings, in_process)
    except TxtopoError as error:
        print(f"txtopo: {error}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
