"""The commands of txtopo in the order of their help: a line and an example for each. Imports none of them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: a click command called NAME in its module of `txtopo.cli`."""

    name: str
    summary: str
    example: str
    module: str = ""
    """NAME where nothing is said."""


VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("demo", "Show it all: a real job on local services, killed twice, checked at the end.", "txtopo demo"),
        Verb("dev", "Start, stop and show local services for trying things out.", "txtopo dev up"),
        Verb("run", "Run a topology in the foreground.", "txtopo run examples/flights.py:topology --once"),
        Verb(
            "explain",
            "Show what a topology is: graph, tables, guarantees, waves. Needs no service.",
            "txtopo explain examples/flights.py:topology",
        ),
        Verb("config", "Show the settings in force, and where each comes from.", "txtopo config show"),
        Verb("status", "Show the health and progress of topologies, and their leaders.", "txtopo status flights"),
        Verb("batches", "List the batches of a topology, newest first.", "txtopo batches flights --state failed"),
        Verb("show", "Show everything about one batch.", "txtopo show flights 17"),
        Verb("events", "Show what happened, oldest first; -f continues with new events.", "txtopo events flights -f"),
        Verb(
            "trace",
            "Show which batches made one row of a target.",
            "txtopo trace --table flights_by_carrier --key carrier=AA --key origin=JFK",
        ),
        Verb(
            "query",
            "Ask a query of a topology: from its states, without Spark.",
            'txtopo query examples/trident_words.py words "the moon"',
        ),
        Verb(
            "audit",
            "Recount committed batches from source to target: MATCH, MISMATCH or UNVERIFIED.",
            "txtopo audit flights 1..42",
        ),
        Verb("retry", "Try failed batches again, with their stored plans.", "txtopo retry flights 17", "orders"),
        Verb(
            "skip",
            "Quarantine a batch, so that later batches can be committed.",
            'txtopo skip flights 17 --reason "the file is damaged, ticket 4711"',
            "orders",
        ),
        Verb("redrive", "Process a quarantined batch again, under a new txid.", "txtopo redrive flights 17", "orders"),
        Verb(
            "replan",
            "Discard plans that were never mirrored, so that their files are planned again.",
            'txtopo replan flights --reason "column hour was declared int"',
            "orders",
        ),
        Verb(
            "replay",
            "Verify committed batches, or recompute them.",
            "txtopo replay flights 17..42 --verify",
        ),
        Verb(
            "backfill",
            "Count committed batches into a committer that was added later.",
            "txtopo backfill flights by_day",
        ),
        Verb(
            "stop",
            "Ask the leader to commit what is in processing and end, and wait for it.",
            "txtopo stop flights --timeout 120",
        ),
        Verb("migrate", "Bring the schema in Postgres up to date.", "txtopo migrate --check"),
        Verb("version", "Show the versions of txtopo and of what it runs on.", "txtopo version --json"),
    )
}

ALIASES = {
    "describe": "show",
    "inspect": "show",
    "view": "show",
    "ls": "batches",
    "list": "status",
    "monitor": "status",
    "drain": "stop",
    "cancel": "stop",
}
"""Other names that people try; they work, and are not shown."""

HABITS = {
    **dict.fromkeys(
        ("kill", "halt", "shutdown", "terminate", "deactivate"),
        "`txtopo stop TOPOLOGY` asks the leader to commit what is in processing and end; a driver may also be ended "
        "with SIGTERM or "
        "`kill -9` at any moment",
    ),
    **dict.fromkeys(
        ("pause", "suspend"),
        "nothing is paused: `txtopo stop TOPOLOGY` ends the run, `txtopo run APP` continues where it ended",
    ),
    **dict.fromkeys(
        ("start", "resume", "restart", "activate", "launch", "submit", "jar", "deploy", "continue"),
        "`txtopo run APP` starts a topology, and continues where the last run ended",
    ),
    **dict.fromkeys(
        ("logs", "log"),
        "`txtopo events TOPOLOGY -f` follows what happens; Spark's own log is in --log-folder, by default "
        "$TXTOPO_HOME/logs",
    ),
    **dict.fromkeys(
        ("ps", "top", "topologies", "lag", "progress", "health", "doctor", "check", "ping"),
        "`txtopo status` shows every topology, its leader, its progress and what it waits for",
    ),
    **dict.fromkeys(
        ("history", "timeline"),
        "`txtopo events TOPOLOGY` shows what happened, oldest first; `txtopo batches TOPOLOGY` lists batches, newest "
        "first",
    ),
    **dict.fromkeys(
        ("rejects", "rejected", "deadletters", "dead-letters", "dlq", "errors", "failures", "why"),
        "`txtopo show TOPOLOGY TXID` has rejected rows, dead letters and errors of a batch; `txtopo batches TOPOLOGY "
        "--state failed` the failed ones",
    ),
    **dict.fromkeys(
        ("get", "info"), "`txtopo status TOPOLOGY`, `txtopo batches TOPOLOGY` or `txtopo show TOPOLOGY TXID`"
    ),
    **dict.fromkeys(
        ("rerun", "reprocess", "repeat", "again"),
        "`txtopo retry TOPOLOGY` tries failed batches again; `txtopo replay TOPOLOGY RANGE` is for committed ones",
    ),
    **dict.fromkeys(
        ("rollback", "revert", "undo"),
        "`txtopo replay TOPOLOGY RANGE --recompute` shows what recomputing batches would do",
    ),
    **dict.fromkeys(
        ("unskip", "restore"),
        "`txtopo redrive TOPOLOGY TXID` processes a quarantined batch again; docs/operating.md describes how to "
        "continue from a "
        "backup",
    ),
    **dict.fromkeys(
        ("delete", "remove", "rm", "drop", "clear", "purge", "reset", "truncate", "gc", "clean"),
        "nothing is deleted by a command; `txtopo skip TOPOLOGY TXID` quarantines one batch, `txtopo replan TOPOLOGY` "
        "discards "
        "plans that were never mirrored",
    ),
    **dict.fromkeys(("export", "dump", "report"), "reading commands take --json, as in `txtopo audit TOPOLOGY --json`"),
    **dict.fromkeys(
        ("init", "upgrade", "schema"),
        "`txtopo migrate` brings the schema in Postgres up to date; `txtopo dev up` starts local services",
    ),
    **dict.fromkeys(
        ("up", "down", "services"), "`txtopo dev up`, `txtopo dev down` and `txtopo dev status` are for local services"
    ),
    **dict.fromkeys(("settings", "env"), "`txtopo config show` shows every setting"),
    **dict.fromkeys(
        ("graph", "plan", "validate", "dag"), "`txtopo explain APP` shows what a topology is, and starts nothing"
    ),
    **dict.fromkeys(
        ("verify", "compare", "recount"),
        "`txtopo audit TOPOLOGY` recounts the source; `txtopo replay TOPOLOGY RANGE --verify` runs the code again",
    ),
    "rebalance": "the topology declares the number of tasks (parallelism_hint), --workers sets that of waves: stop it "
    "and "
    "run it again",
}
"""Words that people try and that are not commands: the command to use instead, or why there is none."""

SAFE_CUTOFF, CHANGING_CUTOFF = 0.6, 0.8
_CHANGING = frozenset({"skip", "backfill", "replan", "redrive", "replay", "stop", "retry", "drain", "cancel"})
"""Commands that are suggested only for a word that can hardly mean another one."""


def no_command(word: str) -> str:
    """Return the message for an unknown command; it never suggests, as a guess, a command that changes something."""
    if word.lower() in HABITS:
        return f"no command {word!r}: {HABITS[word.lower()]}"
    for name in difflib.get_close_matches(word.lower(), [*VERBS, *ALIASES], n=3, cutoff=SAFE_CUTOFF):
        alike = difflib.SequenceMatcher(None, name, word.lower()).ratio()
        if name not in _CHANGING or alike >= CHANGING_CUTOFF:
            return f"no command {word!r}: did you mean {ALIASES.get(name, name)}?"
    return f"no command {word!r}: `txtopo --help` lists them"
