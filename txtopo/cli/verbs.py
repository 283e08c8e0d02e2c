"""The commands of txtopo in the order of their help: what each does in a line, with one example. Loaded without importing any of them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: `txtopo.cli.NAME` holds a click command called NAME."""

    name: str
    summary: str
    example: str


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
        Verb("status", "Show how topologies fare: state, progress, leader.", "txtopo status flights"),
        Verb("batches", "List the batches of a topology, newest first.", "txtopo batches flights --state failed"),
        Verb("show", "Show everything about one batch.", "txtopo show flights 17"),
        Verb("events", "Show what happened, oldest first, and go on with what is new.", "txtopo events flights -f"),
        Verb(
            "trace",
            "Tell which batches made one row of a target.",
            "txtopo trace --table flights_by_carrier --key carrier=AA --key origin=JFK",
        ),
        Verb(
            "audit",
            "Recount committed batches from source to target: MATCH, MISMATCH or UNVERIFIED.",
            "txtopo audit flights 1..200",
        ),
        Verb("retry", "Try failed batches again, with their stored plans.", "txtopo retry flights 17"),
        Verb(
            "skip",
            "Quarantine a batch in its place in the order.",
            'txtopo skip flights 17 --reason "the file is damaged, ticket 4711"',
        ),
        Verb("redrive", "Bring a quarantined batch back, at the end of the order.", "txtopo redrive flights 17"),
        Verb(
            "replan",
            "Drop plans that were never mirrored, so that their files are planned anew.",
            'txtopo replan flights --reason "column hour was declared int"',
        ),
        Verb(
            "replay",
            "Verify committed batches, or recompute what they brought.",
            "txtopo replay flights 17..42 --verify",
        ),
        Verb("stop", "Ask the leader to end in good order, and wait for it.", "txtopo stop flights --timeout 120"),
        Verb("migrate", "Bring the schema in Postgres up to date.", "txtopo migrate --check"),
        Verb("version", "Show the versions of txtopo and of what it runs on.", "txtopo version --json"),
    )
}

ALIASES = {
    "describe": "show", "inspect": "show", "view": "show", "ls": "batches", "list": "status", "monitor": "status",
    "drain": "stop", "cancel": "stop",
}  # fmt: skip
"""What people type out of habit; works, and is not shown."""


def nearest(word: str, known: Sequence[str]) -> str:
    """ ": did you mean X?" where something known is near, else nothing."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f": did you mean {near[0]}?" if near else ""
