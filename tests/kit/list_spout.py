"""A spout of lists, and what tests feed it with. Each Python worker of Spark imports this module: it imports no more
than a task needs, and no pytest.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txtopo.core.fields import parse_fields
from txtopo.core.plan import Metadata
from txtopo.core.values import TransactionAttempt
from txtopo.errors import BatchDataError
from txtopo.topology.components import Input, Spout, SpoutContext, SpoutCoordinator, Tally

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.ports import Assignment
    from txtopo.topology.components import Topology
    from txtopo.topology.spark_types import RowsPromise

FIELDS = "name string, amount int, big bigint, price decimal(38,2)"


class ListSpout(Spout):
    """Emits the rows that the metadata holds: `{"parts": [[row, …], …]}`; a row may be an instruction to misbehave."""

    def __init__(self, fields: str = FIELDS) -> None:
        self.fields = parse_fields(fields)

    def open_coordinator(self, context: SpoutContext) -> SpoutCoordinator:
        raise NotImplementedError

    def parts(self, metadata: Metadata) -> Sequence[Mapping[str, Any]]:
        return [{"rows": rows} for rows in metadata["parts"]]

    def emit_part(self, metadata: Metadata, part: Mapping[str, Any], tally: Tally) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from txtopo.spouts.arrow_types import arrow_schema

        schema = arrow_schema(self.fields)
        rows = [row for row in part["rows"] if isinstance(row, list)]
        for row in part["rows"]:
            if isinstance(row, str):
                _misbehave(row, tally)
        tally.read += len(rows)
        columns = [
            pa.array([values[at] for values in rows], pa.string() if field.name == "price" else field.type)
            for at, field in enumerate(schema)
        ]
        yield pa.RecordBatch.from_arrays(
            [column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
        )

    def inputs(self, metadata: Metadata) -> Sequence[Input]:
        return ()

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "list"}


def _misbehave(instruction: str, tally: Tally) -> None:
    import time

    from pyspark import TaskContext

    word, _, argument = instruction.partition(" ")
    context = TaskContext.get()
    number = context.attemptNumber() if context is not None else 0
    match word:
        case "die" if number == 0:
            tally.read += 1000
            os._exit(9)
        case "die-always":
            os._exit(9)
        case "bad":
            raise BatchDataError("not a number", component="spout", position="a.csv:7", detail="raw")
        case "value-error":
            raise ValueError("emitter bug")
        case "os-error":
            raise OSError(errno.EIO, "disk is away")
        case "differ":
            # Says something else each time it is read.
            with Path(argument).open("a") as file:
                file.write("x")
            tally.read += Path(argument).stat().st_size
        case "wait":
            # Says that it runs, and runs until the file `go` beside it is there.
            here = Path(argument)
            (here / f"pid-{os.getpid()}").touch()
            deadline = time.monotonic() + 60
            while not (here / "go").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        case "twin":
            wait_for_twin(Path(argument))
        case "leak":
            leak(Path(argument))


def leak(folder: Path) -> None:
    """Find no memory in the first worker that this is called in, once it is called there again, as if the worker had
    kept all of it; say so by a file. One worker only: a task is tried four times.
    """
    filled = folder / "filled"
    if not filled.exists():
        filled.write_text(str(os.getpid()))
    elif filled.read_text() == str(os.getpid()):
        (folder / "full").touch()
        raise MemoryError


def wait_for_twin(folder: Path) -> None:
    """Say which try of the task runs here, and run until two have said so: only a copy beside the first lets the task
    go on.
    """
    import time

    from pyspark import TaskContext

    context = TaskContext.get()
    (folder / f"try-{context.attemptNumber() if context is not None else 0}").touch()
    deadline = time.monotonic() + 60
    while len(list(folder.glob("try-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)


def list_topology(
    *bolts: Any,
    name: str = "lists",
    rows: RowsPromise = "any",
    keys: Sequence[str] = ("name",),
    sums: Sequence[str] = ("amount",),
) -> Topology:
    """Rows of lists, through these bolts (functions, or pairs of function and declared fields), to counts by `keys`."""
    from txtopo.committers.count_committer import CountCommitter  # tasks need no builder
    from txtopo.topology.builder import TopologyBuilder

    builder = TopologyBuilder(name)
    builder.set_spout("source", ListSpout())
    source = "source"
    for number, bolt in enumerate(bolts, 1):
        function, fields = bolt if isinstance(bolt, tuple) else (bolt, FIELDS)
        builder.set_bolt(f"bolt{number}", function, inputs=source, fields=fields, rows=rows)
        source = f"bolt{number}"
    committer = CountCommitter("counts", list(keys), count="n", sums={field: f"sum_{field}" for field in sums})
    builder.set_committer_bolt("counter", committer).fields_grouping(source, list(keys))
    return builder.build()


def assignment(txid: int, *parts: Sequence[Any], attempt: int = 0) -> Assignment:
    """An attempt at a batch of these parts."""
    from txtopo.ports import Assignment

    return Assignment(
        attempt=TransactionAttempt(txid, attempt), metadata={"source": {"parts": [list(part) for part in parts]}}
    )


def row(name: str | None, amount: int | None = 1, big: int | None = 0, price: str | None = "0") -> list[Any]:
    """One tuple of `FIELDS`, as JSON."""
    return [name, amount, big, price]
