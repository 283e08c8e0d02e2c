"""Hashes by content: the same everywhere and always, equal for equal values whatever their width, scale or place."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from txtopo.tuples.hashing import Hasher, hash_column, mix, mix_int, second_targets, targets

GOLDEN = {
    "text": (
        pa.array(["dog", "cat", "", None]),
        [2924254262024796555, 4289177297416495437, 6380920831411508574, 7959387127559487489],
    ),
    "bytes": (pa.array([b"dog", b""]), [17107646722443700364, 16828481760538640071]),
    "bigint": (
        pa.array([0, 1, -1, 2**63 - 1, None]),
        [17573122306911108792, 4954704444933004622, 3768798183369133339, 3252458366787430755, 7959387127559487489],
    ),
    "boolean": (pa.array([True, False]), [4954704444933004622, 17573122306911108792]),
    "double": (
        pa.array([0.0, 1.5, float("nan"), float("inf")]),
        [7258577149868924107, 6010684586393360795, 4016941506124784736, 11232124707636062084],
    ),
    "decimal": (
        pa.array([Decimal("1.50"), Decimal("0.00"), Decimal("-20.00")]),
        [3809998595460583251, 7358212723625651829, 11212446566250663489],
    ),
    "date": (pa.array([date(2013, 1, 1)]), [9786758199352366982]),
    "timestamp": (pa.array([datetime(2013, 1, 1, tzinfo=UTC)]), [7689073639904479745]),
}


def hash_value(value: Any, kind: pa.DataType | None = None) -> int:
    """Of a single value."""
    return int(hash_column(pa.array([value], type=kind))[0])


@pytest.mark.parametrize("kind", GOLDEN)
def test_hashes_are_those_of_all_earlier_versions(kind: str) -> None:
    """Fields grouping is by content and stable across processes, machines and runs: these numbers must never change."""
    column, wanted = GOLDEN[kind]

    assert hash_column(column).tolist() == wanted


def test_another_process_with_another_hash_seed_gives_the_same() -> None:
    """GR-07: determinism is mandatory; Python's `hash` of a text differs from process to process."""
    code = (
        "import pyarrow as pa; from txtopo.tuples.hashing import hash_column; "
        "print(*(int(hash_column(pa.array([value]))[0]) for value in ('dog', 7)))"
    )

    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }

    assert found == {f"{hash_value('dog')} {hash_value(7)}\n"}


def test_integers_hash_by_value_whatever_their_width() -> None:
    """An `int` key on one stream and a `bigint` key on another meet in one task."""
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8()]

    assert len({hash_value(7, kind) for kind in kinds}) == 1
    assert hash_value(7) != hash_value(8)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([-0.0]), pa.array([0.0])),
        (pa.array([float("nan")]), pa.array([-float("nan")])),
        (pa.array([1.5], pa.float32()), pa.array([1.5], pa.float64())),
        (pa.array([Decimal("1.5")]), pa.array([Decimal("1.500")])),
        (pa.array([Decimal("100")]), pa.array([Decimal("100.00")])),
        (pa.array([Decimal("0")]), pa.array([Decimal("0.000")])),
        (pa.array(["a"]), pa.array(["a"]).dictionary_encode()),
        (pa.array([None], pa.int64()), pa.array([None], pa.string())),
        (pa.array([datetime(2013, 1, 1)], pa.timestamp("ms")), pa.array([datetime(2013, 1, 1)], pa.timestamp("us"))),
    ],
)
def test_equal_values_have_one_hash(first: pa.Array, second: pa.Array) -> None:
    """By value: -0.0 = 0.0, NaNs equal, decimals whatever their scale, NULL whatever its type."""
    assert hash_column(first).tolist() == hash_column(second).tolist()


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b", None, ""],
        [0, 1, -1, None],
        [0.0, 1.0, float("nan")],
        [Decimal("1.5"), Decimal("15"), Decimal("-1.5")],
    ],
)
def test_different_values_have_different_hashes(values: list[Any]) -> None:
    """A hash that is the same for everything would send everything to one task."""
    hashes = hash_column(pa.array(values)).tolist()

    assert len(set(hashes)) == len(values)


def test_a_row_hashes_by_all_its_fields_and_their_order() -> None:
    """Several fields: every one counts, and (a, b) is not (b, a)."""
    batch = pa.record_batch({"a": ["x", "y", "x"], "b": ["y", "x", "z"]})

    assert len(set(Hasher([0, 1]).rows(batch).tolist())) == 3
    assert Hasher([1, 0]).rows(batch).tolist()[0] == Hasher([0, 1]).rows(batch).tolist()[1]


def test_what_is_remembered_and_how_rows_are_cut_changes_nothing() -> None:
    """The same row has the same hash in every batch."""
    batch = pa.record_batch({"a": ["x", None, "y", "x", "z"]})
    hasher = Hasher([0])

    pieces = [hasher.rows(batch.slice(at, 1)).tolist()[0] for at in (3, 1, 4, 0, 2)]

    whole = Hasher([0]).rows(batch).tolist()
    assert pieces == [whole[at] for at in (3, 1, 4, 0, 2)]


def test_task_numbers_are_never_negative_and_about_even() -> None:
    """GR-07: non-negativity is mandatory."""
    chosen = targets(hash_column(pa.array(range(-5000, 5000))), 7)

    counts = np.bincount(chosen)
    assert chosen.min() == 0
    assert len(counts) == 7
    assert counts.min() > 1200


def test_the_second_candidate_is_never_the_first() -> None:
    """GR-05: the second candidate is moved on by one where it would be the first again."""
    hashes = hash_column(pa.array(range(1000)))
    first = targets(hashes, 3)

    second = second_targets(hashes, first, 3)

    assert not np.any(first == second)
    assert set(second.tolist()) == {0, 1, 2}


def test_scalar_mixing_is_the_vectors() -> None:
    """Ids of ways are made of single numbers; both forms scatter alike."""
    assert mix_int(7) == int(mix(np.array([7], dtype=np.uint64))[0])
    assert mix_int(-5) == int(mix(np.array([-5], dtype=np.int64).view(np.uint64))[0])
    assert len({mix_int(1, 2), mix_int(2, 1), mix_int(1), mix_int(-1, 2)}) == 4
