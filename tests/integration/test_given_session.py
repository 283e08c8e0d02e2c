"""`txtopo.run(topology, spark=session)` on real Spark and both stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import txtopo
from tests.kit.applications import orders_topology_with_bolt
from tests.kit.orders import write_orders


@pytest.mark.spark
def test_a_run_on_a_given_session_leaves_it_running(
    spark_session: SparkSession, database: str, zookeeper_root: str, tmp_path: Path
) -> None:
    """Promise: the session is used, and stays the caller's to stop."""
    write_orders(tmp_path / "in", 2)

    result = txtopo.run(
        orders_topology_with_bolt(tmp_path / "in"),
        spark=spark_session,
        once=True,
        quiet=True,
        dsn=database,
        zookeeper=zookeeper_root,
    )

    assert (result.ended, result.batches, result.last_txid) == ("finished", 2, 2)
    assert spark_session.range(3).count() == 3
