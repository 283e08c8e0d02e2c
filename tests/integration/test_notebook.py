"""A notebook that runs a topology: its progress is shown below the cell, and the result is the cell's value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.kit.orders import write_orders

CELLS = [
    # The executor of harnesses stands in for Spark, whose start takes a quarter of a minute.
    """
    import txtopo.app
    from txtopo.testing.inprocess import InProcessExecutor
    txtopo.app.spark_executor = lambda topology, digest, settings: InProcessExecutor(topology, digest)
    """,
    """
    import txtopo

    builder = txtopo.TopologyBuilder("orders")
    builder.set_spout("files", txtopo.FileSpout("orders", "shop string, price decimal(10,2)", settled_s=0.05))
    totals = txtopo.CountCommitter("totals", ["shop"], count="orders", sums=["price"])
    builder.set_committer_bolt("totals", totals).fields_grouping("files", ["shop"])
    topology = builder.build()
    """,
    "txtopo.run(topology, once=True)",
    'txtopo.connect().batches("orders").to_pandas()[["txid", "state", "files"]]',
    "txtopo.run(topology, onec=True)",
    'txtopo.connect().status("orders").application',
]
RUN, BATCHES, MISTAKE, APPLICATION = 2, 3, 4, 5


@pytest.fixture
def outputs(
    database: str, zookeeper_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[list[dict[str, Any]]]:
    """What is shown below each cell when all have been run."""
    write_orders(tmp_path / "orders", 3)
    monkeypatch.setenv("TXTOPO_DSN", database)
    monkeypatch.setenv("TXTOPO_ZK", f"{zookeeper_root}/txtopo")
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    v4: Any = nbformat.v4
    cells = [v4.new_code_cell(source.strip().replace("\n    ", "\n")) for source in CELLS]
    cells[MISTAKE].metadata["tags"] = ["raises-exception"]
    notebook = v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    return [cell.outputs for cell in notebook.cells]


def test_a_notebook_shows_the_progress_of_a_run_and_gets_its_result(outputs: list[list[dict[str, Any]]]) -> None:
    """Promise: `txtopo.run` in a notebook shows its progress below the cell, and its result is the value of the cell; a
    wrong setting is an error of the cell, and the next command names no file of Jupyter.
    """
    *progress, result = outputs[RUN]
    said = "".join(one["text"] for one in progress)
    ((frame,), (error,), (application,)) = (outputs[cell] for cell in (BATCHES, MISTAKE, APPLICATION))

    assert {one["name"] for one in progress} == {"stderr"}
    assert "orders: leading with epoch 1" in said
    assert "orders: done up to " in said
    assert "orders: finished: the input is at its end; 3 batches committed" in said
    assert "\r" not in said
    assert result["output_type"] == "execute_result"
    assert "RunResult(topology='orders', ended='finished'" in result["data"]["text/plain"]
    assert "last_txid=3, batches=3, quarantined=0, exit_code=0)" in result["data"]["text/plain"]
    assert frame["data"]["text/html"].count("<td>committed</td>") == 3
    assert (error["output_type"], error["ename"]) == ("error", "ConfigurationError")
    assert "once" in error["evalue"]
    assert application["data"]["text/plain"] == "'python in the notebook or session that has orders'"
