"""`txtopo explain` with Spark: which bolt keeps a topology from waves."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from txtopo.cli import main

APPLICATION = """
from txtopo import CountCommitter, FileSpout, TopologyBuilder

builder = TopologyBuilder("flights")
builder.set_spout("departures", FileSpout("flights", "carrier string"))
builder.set_bolt("plain", lambda frame: frame.selectExpr("upper(carrier) as carrier"), "departures", fields="carrier string")
builder.set_bolt("last", lambda frame: {bolt}, "plain", fields="carrier string")
builder.set_committer_bolt("counts", CountCommitter("counts", ["carrier"])).fields_grouping("last", "carrier")
topology = builder.build()
"""  # noqa: E501


@pytest.mark.parametrize(
    ("name", "bolt", "words"),
    [
        (
            "row_wise",
            "frame.where('carrier is not null')",
            "yes, up to 64 batches or 32 MiB of input share a Spark job",
        ),
        ("distinct", "frame.distinct()", "no, each batch has its own Spark job: bolt last depends on other rows"),
    ],
)
def test_the_bolt_that_looks_at_other_rows_is_named(
    name: str,
    bolt: str,
    words: str,
    spark_session: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Promise: `txtopo explain` says which bolt keeps a topology from waves; a session that is there already is used,
    and stays.
    """
    monkeypatch.chdir(tmp_path)
    Path(f"explained_{name}.py").write_text(APPLICATION.format(bolt=bolt))

    code = main(["explain", f"explained_{name}.py:topology"])
    said = capsys.readouterr()

    assert (code, said.err) == (0, "")
    assert f"  waves      {words}" in said.out
    assert spark_session.range(1).count() == 1
