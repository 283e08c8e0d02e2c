"""What was measured, as text and JSON: ratios with the spread of the passes, what each process used, targets. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import TARGETS, TXTOPO, Pass, Target
from benchmarks.processes import ROLES

Row = Mapping[str, Any]
KEYS = ("case", "pass", "peer", "rows_per_s", "wall_s", "batches")
"""In every row of build/bench.json."""
LONE_GOAL_MS, WAVE_GOAL_MS = 5.0, 1.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast as a peer txtopo was in one case: in the first and the last pass, and the lowest and
    highest of all passes.
    """

    case: str
    peer: str
    first: float
    last: float
    lowest: float
    highest: float
    passes: int


def paces(rows: Iterable[Row], case: str, peer: str) -> list[float]:
    """Return rows a second in each pass, in order."""
    found = sorted((row["pass"], row["rows_per_s"]) for row in rows if (row["case"], row["peer"]) == (case, peer))
    return [pace for _, pace in found]


def ratio(rows: Sequence[Row], case: str, peer: str) -> Ratio | None:
    """Return the ratio of each pass to the same pass of the peer; None if one of them was not measured.

    >>> rows = [{"case": "a", "peer": peer, "pass": n, "rows_per_s": pace}
    ...         for peer, of in (("txtopo", (30, 40)), ("b", (10, 20))) for n, pace in enumerate(of, 1)]
    >>> ratio(rows, "a", "b")
    Ratio(case='a', peer='b', first=3.0, last=2.0, lowest=2.0, highest=3.0, passes=2)
    """
    each = [
        ours / theirs
        for ours, theirs in zip(paces(rows, case, TXTOPO), paces(rows, case, peer), strict=False)
        if theirs
    ]
    if not each:
        return None
    return Ratio(case, peer, each[0], each[-1], min(each), max(each), len(each))


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """Return all ratios, in the order in which the peers were measured."""
    pairs = dict.fromkeys((row["case"], row["peer"]) for row in rows if row["peer"] != TXTOPO)
    return [found for case, peer in pairs if (found := ratio(rows, case, peer)) is not None]


def reached(target: Target, rows: Sequence[Row], passes: int) -> tuple[str, float | None]:
    """Return `reached`, `not reached` or `not measured`, and the ratio. The last pass is that of a whole run: a run of
    fewer passes does not measure it.
    """
    found = ratio(rows, target.case, target.peer)
    if found is None or (target.which == "last" and found.passes < passes):
        return "not measured", None
    value = found.first if target.which == "first" else found.last
    return ("reached" if value >= target.factor else "not reached"), value


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` percent of the values do not exceed. Raises ValueError without
    values.

    >>> percentile([4, 1, 3, 2], 50), percentile([4, 1, 3, 2], 99)
    (2, 4)
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return lines with aligned columns, the first two to the left.

    >>> print(table(["a", "b", "c"], [["x", "yy", "1.0"]]))
    a  b     c
    x  yy  1.0
    """
    cells = [list(head), *map(list, lines)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def pace_table(rows: Sequence[Row]) -> str:
    """Rows a second in each pass, and the ratios to each peer."""
    passes = max(row["pass"] for row in rows)
    head = ["case", "system", "batches", *(f"pass {n} rows/s" for n in range(1, passes + 1)), "first", "last", "spread"]
    lines = []
    for case, peer in dict.fromkeys((row["case"], row["peer"]) for row in rows):
        of_peer = paces(rows, case, peer)
        batches = next(row["batches"] for row in rows if (row["case"], row["peer"]) == (case, peer))
        found = ratio(rows, case, peer) if peer != TXTOPO else None
        told = (
            ["", "", ""]
            if found is None
            else [f"{found.first:.2f} x", f"{found.last:.2f} x", f"{found.lowest:.2f} to {found.highest:.2f}"]
        )
        each = [f"{pace:,.0f}" for pace in of_peer] + ["" for _ in range(passes - len(of_peer))]
        lines.append([case, peer, str(batches), *each, *told])
    return table(head, lines)


def usage_table(rows: Sequence[Row]) -> str:
    """CPU seconds a million rows and memory by process, WAL and proposals a batch: the last pass of each system."""
    last = {(row["case"], row["peer"]): row for row in rows if "cpu_s_per_million_rows" in row}
    memory = ("driver", "jvm", "workers")
    head = ["case", "system", *(f"{role} s" for role in ROLES), "sum s", *(f"{role} MiB" for role in memory)]
    lines = []
    for (case, peer), row in last.items():
        used = [row["cpu_s_per_million_rows"].get(role, 0.0) for role in ROLES]
        peaks = [row["peak_memory_mib"].get(role, 0) for role in memory]
        stores = [f"{row['wal_bytes_per_batch']:,}", f"{row['zookeeper_proposals_per_batch']:.2f}"]
        lines.append(
            [case, peer, *(f"{s:.2f}" for s in used), f"{sum(used):.2f}", *(f"{mib:,.0f}" for mib in peaks), *stores]
        )
    return table([*head, "WAL bytes/batch", "ZK proposals/batch"], lines)


def protocol_text(protocol: Row) -> str:
    """What the protocol adds to a batch, and the goals."""
    lines = []
    for name, key, goal in (
        ("lone batch", "lone_batch_ms", LONE_GOAL_MS),
        ("batch in a wave", "batch_in_a_wave_ms", WAVE_GOAL_MS),
    ):
        found = protocol[key]
        told = "reached" if found["p50"] <= goal else "not reached"
        lines.append(f"{name}: p50 {found['p50']:.2f} ms, p99 {found['p99']:.2f} ms (goal {goal:g} ms): {told}")
    lines.append(f"round trips to Postgres: {protocol['round_trips_per_batch']:.2f} a batch in waves")
    return "\n".join(lines)


def takeover_text(takeover: Row) -> str:
    """Milliseconds from the kill of a leader to the first COMMIT of its successor, and what they were spent on."""
    steps = list(dict.fromkeys(step for found in takeover.values() for step in found["p50 ms of steps"]))
    names = ("kills", "with a batch in processing", "session s", "p50 ms", "p99 ms")
    lines = [
        [kind, *(f"{found[name]:g}" for name in names), *(f"{found['p50 ms of steps'][step]:g}" for step in steps)]
        for kind, found in takeover.items()
    ]
    head = ["leader on", "kills", "in processing", "session s", "p50 ms", "p99 ms", *steps]
    return f"{table(head, lines)}\nsteps: p50 in ms; the p99 of fewer than 100 kills is the slowest one"


def target_table(rows: Sequence[Row], passes: int) -> str:
    """Every target, what was measured, and whether it is reached."""
    lines = []
    for target in TARGETS:
        words, value = reached(target, rows, passes)
        found = "" if value is None else f"{value:.2f} x"
        lines.append([target.case, target.peer, _pass(target.which), f"{target.factor:g} x", found, words])
    return table(["case", "compared with", "pass", "target", "found", ""], lines)


def _pass(which: Pass) -> str:
    return "first" if which == "first" else "third"


def whole(rows: Sequence[Row], protocol: Row | None, takeover: Row | None, passes: int) -> str:
    """Return the whole report."""
    parts = []
    if rows:
        parts += [f"Rows a second; how many times as fast txtopo is\n\n{pace_table(rows)}"]
        if any("cpu_s_per_million_rows" in row for row in rows):
            parts += [f"CPU seconds a million rows, largest memory, last pass\n\n{usage_table(rows)}"]
    if protocol is not None:
        parts += [f"What the protocol adds where processing takes no time\n\n{protocol_text(protocol)}"]
    if takeover is not None:
        parts += [f"Takeovers, from SIGKILL to the first COMMIT of the standby\n\n{takeover_text(takeover)}"]
    if rows:
        parts += [f"Targets\n\n{target_table(rows, passes)}"]
    return "\n\n".join(parts)


__all__ = ["KEYS", "Ratio", "paces", "percentile", "ratio", "ratios", "reached", "whole"]
