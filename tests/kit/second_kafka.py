"""A second Kafka broker that joins the cluster of another one, so that partitions have two replicas."""

from __future__ import annotations

from pathlib import Path

from txtopo.local.kafka import LocalKafka

ROLE = """\
process.roles=broker
node.id=2
listeners=PLAINTEXT://127.0.0.1:{port}
"""
OWN = ("process.roles=", "node.id=", "listeners=", "controller.quorum.voters=")


class SecondKafka(LocalKafka):
    """A broker without a controller of its own; `first` must run, and must not be started anew meanwhile."""

    def __init__(self, folder: Path | str, first: LocalKafka, *, jars: Path | None = None) -> None:
        super().__init__(folder, jars=jars)
        self._first = first

    def _cluster_id(self) -> str:
        lines = (self._first.data / "meta.properties").read_text(encoding="utf-8").splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))

    def _configure(self, port: int) -> None:
        super()._configure(port)
        given = Path(self._first.marker).read_text(encoding="utf-8").splitlines(keepends=True)
        settings = Path(self.marker)
        lines = settings.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(OWN)]
        voters = [line for line in given if line.startswith("controller.quorum.voters=")]
        settings.write_text("".join([*kept, *voters, ROLE.format(port=port)]), encoding="utf-8")
