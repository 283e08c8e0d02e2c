"""Files in a store with the protocol of S3, counted on real services: a driver with Spark of its own reads them, and
the audit recounts them with separate code.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psycopg2
import pytest

from tests.kit.audited import run_batches
from tests.kit.audits import Audited, findings
from tests.kit.pages import blocks_of
from tests.kit.s3_server import ACCESS_KEY, S3, SECRET_KEY
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.topology.components import Topology

pytest.importorskip("obstore")
HEADER = b"shop,pieces\n"


def counted(s3: S3) -> Topology:
    """Counts orders by shop."""
    builder = TopologyBuilder("orders")
    builder.set_spout("files", FileSpout(f"{s3.url}/in/", "shop string, pieces int", rejected_max=0.5))
    committer = CountCommitter("order_totals", ["shop"], sums={"pieces": "pieces"})
    builder.set_committer_bolt("totals", committer).shuffle_grouping("files")
    return builder.build()


def test_the_audit_recounts_objects(audited: Audited, s3: S3) -> None:
    """MATCH, with a bad record among them; an object that is in no batch is named; MISMATCH for one that was replaced,
    UNVERIFIED for one that was deleted.
    """
    s3.put("in/1.csv", HEADER + b"a,1\nb,x\n" + b"a,2\n" * 3_000)
    s3.put("in/2.csv", HEADER + b"b,3\n")
    s3.put("in/3.csv", b"")
    assert run_batches(audited.dsn, counted(s3)) == 3

    code, report = audited.audit()
    assert (code, report["findings"], report["verdict"]) == (0, [], "MATCH")

    s3.put("in/4.csv", HEADER)
    _, report = audited.audit()
    assert f"{s3.url}/in/4.csv" in str(report["unbatched"])

    s3.delete("in/3.csv")
    _, report = audited.audit()
    assert report["verdict"] == "UNVERIFIED"
    assert "there is no such object" in str(report)

    s3.put("in/2.csv", HEADER + b"b,4\n")
    code, report = audited.audit()
    assert (code, report["verdict"]) == (1, "MISMATCH")
    assert "has changed: planned with tag" in str(findings(report))


@pytest.mark.spark
@pytest.mark.slow
def test_the_topology_of_the_page_counts_objects_and_credentials_are_nowhere(
    database: str, zookeeper_root: str, s3: S3, tmp_path: Path
) -> None:
    """In a driver with Spark of its own, whose tasks read the store; its event log and the database are searched."""
    (block,) = blocks_of("remote.md")
    (tmp_path / "app.py").write_text(block.code.replace("s3://shop/", f"{s3.url}/"))
    events = tmp_path / "events"
    events.mkdir()
    for number in range(5):
        s3.put(f"orders/{number}.csv", HEADER + b"a,1\nb,2\n" * 10)
    arguments = ["run", "app.py:topology", "--once", "--dsn", database, "--zk", zookeeper_root]
    program = "import sys; from txtopo.cli import main; sys.exit(main(sys.argv[1:]))"
    log = {"enabled": "true", "compress": "false", "dir": f"file://{events}"}
    events_on = [word for name, value in log.items() for word in ("--conf", f"spark.eventLog.{name}={value}")]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--master", "local[2]", *events_on],
        cwd=tmp_path,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]

    with contextlib.closing(psycopg2.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute("select shop, orders, pieces from orders_by_shop order by shop")
        assert cursor.fetchall() == [("a", 50, 50), ("b", 50, 100)]
        cursor.execute("select table_schema, table_name from information_schema.tables where table_schema = 'txtopo'")
        stored = []
        for schema, name in cursor.fetchall():
            cursor.execute(f"select * from {schema}.{name}")
            stored += [bytes(v) if isinstance(v, memoryview) else str(v).encode() for row in cursor for v in row]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"SparkListenerApplicationStart" in data for data in files)
    for secret in (ACCESS_KEY.encode(), SECRET_KEY.encode()):
        assert not any(secret in data for data in [*stored, *files, done.stdout, done.stderr])
