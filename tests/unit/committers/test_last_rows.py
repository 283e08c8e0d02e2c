"""`UpsertCommitter` and `ReplaceCommitter`: what is refused when the topology is built, and what fails a batch in the
processing phase.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from txtopo import ReplaceCommitter, UpsertCommitter
from txtopo.core.fields import parse_fields
from txtopo.errors import BatchDataError, TopologyError
from txtopo.spouts.arrow_types import arrow_schema
from txtopo.topology.components import CommitterComponent, Subscription
from txtopo.tuples.executor_halves import executor_half

FIELDS = parse_fields("id bigint, name string, step int, ratio double, gone boolean")
LONG = ("é" * 1_329, "key name has 2,658 bytes ('é")
"""Longer than a text beside a number may be."""


def made(bolt: UpsertCommitter) -> CommitterComponent:
    """The committer, as a topology has it."""
    bolt.check_fields(FIELDS)
    return CommitterComponent(name="last", bolt=bolt, input=Subscription(source="spout"), fields=FIELDS)


def processed(bolt: UpsertCommitter, *keys: tuple[int | None, str | None]) -> int:
    """Return how many rows the processing phase hands over to the commit."""
    schema = arrow_schema(FIELDS)
    rows = [[*key, 1, 0.5, None] for key in keys]
    columns = [pa.array([row[at] for row in rows], kind.type) for at, kind in enumerate(schema)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    component = made(bolt)
    return int(executor_half(component).rows(component, [batch.slice(0, 1), batch.slice(1)]).num_rows)


@pytest.mark.parametrize(
    "bolt",
    [
        UpsertCommitter("last", ["id", "name"]),
        UpsertCommitter("last", ["id", "name"], version="step"),
        ReplaceCommitter("last", partition=["id", "name"]),
    ],
    ids=["upsert", "upsert by version", "replace"],
)
def test_a_key_that_cannot_be_stored_fails_the_batch_in_processing(bolt: UpsertCommitter) -> None:
    """Before any other batch waits for its commit; two rows of a key only where nothing orders them."""
    most = 2_648 if bolt.version else 2_656  # The index of the log has the version, too.
    assert processed(bolt, (1, "a"), (2, "a"), (1, "b" * most)) == 3
    for keys, why in (
        ([(1, "a"), (None, "a")], "key id is NULL in a row"),
        ([(1, None)], "key name is NULL in a row"),
        ([(1, "a"), (1, LONG[0])], LONG[1]),
        ([(1, "b" * (most + 1))], f"key name has {most + 1:,} bytes ("),
    ):
        with pytest.raises(BatchDataError, match=f"^committer last: {re.escape(why)}"):
            processed(bolt, *keys)
    twice = [(2, "b"), (1, "a"), (1, "a")]
    if bolt.version or bolt.whole:
        assert processed(bolt, *twice) == 3
        return
    with pytest.raises(BatchDataError, match=r"the batch has 2 rows of key id 1, name 'a', and nothing says which"):
        processed(bolt, *twice)


@pytest.mark.parametrize(
    ("keys", "more", "why"),
    [
        (["id", "ratio"], {}, "key ratio is a double; equal-looking floats differ"),
        (["id"], {"version": "name"}, "version name is a string; a version is an integer"),
        (["id"], {"version": "ratio"}, "version ratio is a double"),
        (["id"], {"version": "gone"}, "version gone is a boolean"),
        (["id"], {"deleted": "step"}, "deleted='step' is a int, not a boolean"),
        (["id", "no"], {}, "there is no field no; there are id, name, step, ratio, gone"),
    ],
)
def test_fields_that_order_nothing_are_refused(keys: list[str], more: dict[str, str], why: str) -> None:
    """When the topology is built."""
    with pytest.raises(TopologyError, match=re.escape(why)):
        made(UpsertCommitter("last", keys, **more))
