"""The demo of access logs from start to end: a driver halts at a bug, the bug is fixed, `txtopo retry`, and the next
driver continues with the same input.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from txtopo.audit.run_audit import Range, audit
from txtopo.demo.halting import HaltingDemo
from txtopo.demo.logs.lines import HOURS, TLS_HOUR, write_hours
from txtopo.demo.logs.recount import count_requests
from txtopo.demo.report import Outcome, TotalNames, differences, report
from txtopo.demo.stage import Program, Stage, perform
from txtopo.reports.read import reading

TOPOLOGY = "web"
TABLE = "requests_by_section"
BUG = '        section = tup["path"].split("/")[1]'
FIX = '        section = (tup["path"] or "/-").split("/")[1]'
AT_FIRST = HOURS - 4
"""Number of files that are there when the first driver starts; the others come while the topology is halted."""


def run_logs(*, keep: bool = False, quiet: bool = False) -> int:
    """`txtopo demo logs`; returns the exit code: 0 if all totals agree and the ledger is right, 1 if not, 130 or 143 if
    interrupted.
    """

    def play(stage: Stage) -> tuple[str, Sequence[str]]:
        outcome = LogsDemo(stage).play()
        return report(outcome), differences(outcome)

    program = Program(application="web.py:topology", topology=TOPOLOGY, run_txids_max=HOURS)
    return perform(play, program, keep=keep, quiet=quiet)


class LogsDemo(HaltingDemo):
    """One run of the story."""

    def __init__(self, stage: Stage) -> None:
        program = Path(__file__).with_name("web.py")
        super().__init__(stage, program, batches=AT_FIRST, bug=BUG, fix=FIX)

    def play(self) -> Outcome:
        """Run all steps; returns what the report needs."""
        self._prepare()
        self._run_until_halted(TLS_HOUR)
        self._deliver_more()
        self._fix()
        self._order_retry()
        self._run_to_the_end()
        return self._compare()

    def _prepare(self) -> None:
        stage = self._stage
        self._teller.say(f"starting Postgres and ZooKeeper, writing {AT_FIRST} hours of access logs, gzip files")
        self._copy_program()
        with ThreadPoolExecutor(1) as threads:
            services = threads.submit(stage.open)
            lines = write_hours(stage.places.files, range(AT_FIRST), stage.stop.check)
            services.result()
        stage.stop.check()
        self._teller.say(f"{lines:,} lines in {AT_FIRST} files; one file is one batch")

    def _deliver_more(self) -> None:
        stage = self._stage
        lines = write_hours(stage.places.files, range(AT_FIRST, HOURS), stage.stop.check)
        self._batches = HOURS
        self._teller.say(f"meanwhile {HOURS - AT_FIRST} more files arrive, with {lines:,} lines")

    def _compare(self) -> Outcome:
        stage = self._stage
        self._teller.say("counting all files again with plain gzip and re")
        recounted, rejected = count_requests(stage.places.files, stage.stop.check)
        self._teller.say("txtopo audit")
        with reading(stage.dsn) as connection:
            audited = audit(connection, TOPOLOGY, Range(), recount=True, say=lambda _: stage.stop.check())
        return Outcome(
            totals=stage.watcher.totals(TABLE, ("section", "status"), ("requests", "bytes")),
            recounted=recounted,
            rejected=rejected,
            columns=TotalNames(keys=("section", "status"), rows="requests", amount="bytes", by="re"),
            ledger=stage.watcher.ledger(),
            batches=HOURS,
            takeovers=self._takeovers,
            drivers=3,
            seconds=self._teller.elapsed_s,
            audited=audited,
        )
