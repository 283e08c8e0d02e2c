"""docs/operating.md names everything that an operator meets, and every command line on it is one."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path
from typing import get_args

import click
import pytest

from tests.kit.halts import GAP, Halt, failures, halts, refused_starts, without_next
from txtopo import cli, errors
from txtopo.audit import verdicts
from txtopo.cli.verbs import VERBS
from txtopo.core import limits
from txtopo.core.values import FailureKind, OrderKind
from txtopo.reports import model

LITERAL_MIN = 12
"""Characters besides gaps that a quotation must have to tell one halt from others."""
ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
LINES = sorted(set(re.findall(r"^\$ (txtopo .*)$", PAGE, re.MULTILINE)) | set(re.findall(r"`(txtopo [^`]+)`", PAGE)))


def section(title: str) -> str:
    """What stands below a heading of the second level."""
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def in_first_column(table: str) -> set[str]:
    """What is set as code there; rows without any have their first cell as it stands."""
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell) or [cell.strip()]}


def exit_codes() -> set[str]:
    """Those that the code can end with."""
    kinds = [errors.TxtopoError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    signalled = {cli.INTERRUPTED, cli.BROKEN_PIPE, 128 + signal.SIGTERM, 128 + signal.SIGHUP}
    return {str(code) for code in {0, *signalled, *(kind.exit_code for kind in kinds)}}


def test_the_table_of_commands_has_every_command_and_no_other() -> None:
    """Promise: a table of all commands, in the order of the help, with one line each."""
    listed = re.findall(r"^\| `txtopo ([a-z]+)` \| [^|]+ \| [^|]+ \|$", section("Commands"), re.MULTILINE)

    assert sorted(listed) == sorted(VERBS)


def test_the_table_of_exit_codes_has_every_code_and_no_other() -> None:
    """Promise: a table of all exit codes."""
    assert in_first_column(section("Exit codes")) - {"code", "---"} == exit_codes()


def test_every_check_of_the_audit_has_its_row_and_no_other() -> None:
    """Promise: per check what it means and what may be done."""
    assert in_first_column(section("Audit says MISMATCH")) - {"check", "---"} == {
        check.name for check in verdicts.CHECKS
    }


@pytest.mark.parametrize(
    "word",
    [
        *get_args(model.TopologyState),
        *get_args(model.BatchState),
        "begun",
        "applied",
        "cancelled",
        "open",
        "done",
        "refused",
        *verdicts.Verdict,
    ],
)
def test_every_state_is_told(word: str) -> None:
    """Promise: what you see, in the words of status."""
    assert f"`{word}`" in section("States")


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_every_kind_of_failure_is_told(kind: str) -> None:
    """The three kinds mean different things."""
    assert f"*{kind}*" in section("States")


@pytest.mark.parametrize("kind", get_args(OrderKind))
def test_every_kind_of_order_is_told(kind: str) -> None:
    """An open order is shown by its kind."""
    assert re.search(rf"[`*]{kind}[`*]", section("Commands"))


def test_the_page_has_command_lines() -> None:
    """The lines below are not none."""
    assert len(LINES) > 30


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_parses(line: str) -> None:
    """Promise: every command line on the page is one; a bare name of a command is a name."""
    _, name, *arguments = shlex.split(line)
    command = cli.cli.get_command(click.Context(cli.cli), name)

    assert command is not None
    assert command.name == name  # no alias
    if arguments:
        with command.make_context(name, arguments, obj={}):
            pass


@pytest.mark.parametrize("link", re.findall(r"\]\(#([^)]+)\)", PAGE))
def test_a_link_leads_to_a_heading(link: str) -> None:
    """A symptom leads to its section."""
    headings = re.findall(r"^#{2,3} (.+)$", PAGE, re.MULTILINE)

    assert link in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "words",
    [
        f"older than {limits.STALLED_AFTER_S:g} s",
        f"at most {limits.REJECTED_MAX:.0%} are allowed".replace("%", " %"),
        f"results exceed {limits.RESULTS_BYTES_MAX // 2**20} MiB",
        f"no verdict from {limits.SUSPECT_RUNS_ALONE_MAX} attempts that ran alone",
        f"no progress for {limits.MESSAGE_TIMEOUT_S:g} s",
        f"up to {limits.BACKOFF_MAX_S:g} s",
        f"session ({limits.ZOOKEEPER_SESSION_S:g} s)",
        f"within {limits.HEARTBEAT_EVERY_S:g} s",
    ],
)
def test_numbers_are_those_of_the_code(words: str) -> None:
    """A bound that moved moves here too."""
    assert words in PAGE


QUOTED = [
    re.compile(r".*".join(re.escape(part) for part in parts), re.DOTALL)
    for parts in (
        [part.strip() for part in code.split(GAP) if part.strip()] for code in re.findall(r"`([^`\n]+)`", PAGE)
    )
    if sum(map(len, parts)) >= LITERAL_MIN
]


def without_words(said: list[Halt]) -> list[Halt]:
    """Those of which docs/operating.md does not quote anything."""
    return [one for one in said if not any(quoted.search(one.sentence) for quoted in QUOTED)]


def test_halts_are_found_in_the_code() -> None:
    """The test below is not one of nothing, and sees sentences that are put together."""
    sentences = {halt.sentence for halt in halts()}

    assert len(sentences) > 45
    assert "batch … of …: its plan could not be mirrored … times, and Postgres answers: …" in sentences


def test_every_halt_is_on_the_page() -> None:
    """Promise: whoever reads a halt finds its words here, with the cause and what to do. A new halt needs its row."""
    assert without_words(halts()) == []


def test_every_halt_says_what_to_do_next() -> None:
    """Promise: no dead end. A new halt needs its `next_command`: a command, or in words what a person has to do."""
    assert without_next() == []


def test_refused_starts_and_failures_are_found_in_the_code() -> None:
    """The tests below are not of nothing."""
    refused, failed = refused_starts(), failures()

    assert (len(refused) > 15, len(failed) > 60) == (True, True)
    assert any(halt.sentence.endswith("grant the role the missing privilege") for halt in refused)
    assert any("the source changed after it was planned" in halt.sentence for halt in failed)


def test_every_start_that_is_refused_is_on_the_page() -> None:
    """Promise: whoever may not start finds the words here."""
    assert without_words(refused_starts()) == []


def test_every_failure_of_a_batch_is_on_the_page() -> None:
    """Promise: a failure whose attempts are used up is a halt, and has its words here too."""
    assert without_words(failures()) == []


SAYINGS = [
    "no single row does it, only several together",
    "the source changed after it was planned",
    "found no file there",
    "cannot be planned",
    "a Python worker or executor died while it ran the batch",
    "its rows do not fit the table",
    "arrived at committer",
    "has other columns",
    "needs one row for each key",
    "holds rows that no topology has counted",
    "belongs to committer",
    "the batch was planned with",
    "but the topology now declares",
    "no plan was dropped: all plans are mirrored already",
    "was read before and has other content now",
    "was read before and is being written to again",
    "cannot be read",
    "it was counted by other code than the one described now",
    "how such a value is spelled leaves room for doubt",
    "waiting as standby",
    "a driver with other code took the lead while this one waited",
    "gave up the lead",
    "Postgres has been away for",
    "ZooKeeper does not answer; nothing new is planned",
    "ZooKeeper knows nothing of this topology: restoring it from Postgres",
    "the chroot no longer exists; was ZooKeeper wiped?",
    "Postgres was restored to an earlier time, or this is another database",
    "ZooKeeper belongs to the Postgres cluster",
    "but Postgres does not",
    "is not a batch",
    "removed by hand or restored in part",
    "planned differently in ZooKeeper and in Postgres",
    "Spark lost a part of the job",
    "the Spark driver JVM has ended",
    "the SparkContext of the Spark driver JVM was shut down, and not by this driver",
    "not compared, by design",
    "keeps no contributions",
    "were never acked to the end",
    "did not report how many tuples it sent",
    "tuples were sent and",
    "ran twice with different outcomes",
]
CODE = re.sub(
    r'"\s+f?"',  # literals side by side are one text
    "",
    "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("txtopo", "coordinators", "committers")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ),
)


@pytest.mark.parametrize("saying", SAYINGS)
def test_what_is_quoted_is_what_is_said(saying: str) -> None:
    """Promise: exact words of status. A message that changes is changed here too."""
    assert saying in PAGE
    assert saying in CODE
