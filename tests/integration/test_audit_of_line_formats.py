"""Text, patterns and JSON lines counted by Spark: the audit recounts them with its own readers, and finds faults."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.kit.archives import ENDINGS, WRITERS
from tests.kit.audited import CODE, Leader
from tests.kit.audits import Audited, findings
from tests.kit.fix_spark import executors_on
from txtopo import CountCommitter, FileSpout, TopologyBuilder
from txtopo.formats import Json, Pattern, Text
from txtopo.spouts.formats.format import Format

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACCESS = """10.0.0.1 - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1" 200 2326 "-" "curl/8.5"
10.0.0.2 - ann [10/Oct/2025:13:58:02 +0000] "GET /cart HTTP/1.1" 404 - "-" "say \\"hi\\""
disk full
10.0.0.1 - - [10/Oct/2025:14:01:10 +0000] "GET /news HTTP/1.1" 200 51 "-" "\\xc3\\xa9"
"""
EVENTS = """{"agent":"ann","user":{"size":5},"status":200}
{"agent":"ann","agent":"bob"}

{"agent":{"a": 1.0},"user":null,"status":-7}
"""
CASES: dict[str, tuple[Format, str, list[str], dict[str, str], str, str | None]] = {
    "logs": (
        Pattern("apache_combined"),
        "agent string, status int, size bigint, _line bigint",
        ["agent", "status"],
        {"size": "bytes", "_line": "lines"},
        ACCESS,
        None,
    ),
    "events": (
        Json(paths={"size": ("user", "size")}),
        "agent string, status int, size bigint",
        ["agent"],
        {"size": "bytes", "status": "statuses"},
        EVENTS,
        "zstd",
    ),
    "words": (Text(), "word string not null", ["word"], {}, "a\n\na\r\nn\0l\nb", None),
}


@pytest.mark.parametrize("name", CASES)
def test_lines_that_spark_counted_are_recounted(audited: Audited, spark_session: SparkSession, name: str) -> None:
    """MATCH, with a rejected record among them; MISMATCH for a wrong number, and for another rejected record."""
    format_, fields, keys, sums, content, codec = CASES[name]
    builder = TopologyBuilder("orders")
    spout = FileSpout(str(audited.folder), fields, format=format_, settled_s=0, rejected_max=0.5)
    builder.set_spout("files", spout)
    committer = CountCommitter("totals", keys, count="rows", sums=sums)
    builder.set_committer_bolt("totals", committer).shuffle_grouping("files")
    topology = builder.build()
    data = content.encode()
    (audited.folder / f"a.log{ENDINGS[codec] if codec else ''}").write_bytes(WRITERS[codec](data) if codec else data)
    with executors_on(spark_session, CODE) as make:
        with closing(Leader(audited.dsn, topology, executor=make(topology))) as leader:
            leader.cut()

    code, report = audited.audit()
    assert (code, report["verdict"], report["findings"]) == (0, "MATCH", [])

    audited.plant("update totals_contribution set rows = rows + 1 where txid = 1")
    code, report = audited.audit()
    assert (code, report["verdict"]) == (1, "MISMATCH")
    assert {one["check"] for one in findings(report)} >= {"source.keys"}

    audited.plant(
        "update totals_contribution set rows = rows - 1 where txid = 1",
        "update txtopo.rejected_row set raw = 'other', raw_bytes = 5 where txid = 1",
    )
    code, report = audited.audit()
    assert code == 1
    assert "rejects.lines" in {one["check"] for one in findings(report)}
