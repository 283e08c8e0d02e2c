"""Judges an attempt whose jobs succeeded: all parts reported, all reports agree, the tasks ran the leader's code, no
tuples were lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txtopo.core.values import CommitterResult, EdgeCount, Failure, RejectedRow, gravity
from txtopo.spark.reports import Report
from txtopo.spouts.reject_limit import too_many_rejected
from txtopo.topology.components import Topology

PartReports = Mapping[tuple[str, int], list[Report]]


def emitter_failure(reports: PartReports) -> Failure | None:
    """Return the failures that emitters reported instead of the rest of their parts; the gravest first, then in the
    order of the parts.
    """
    failures = [report.failure for key in sorted(reports) for report in reports[key] if report.failure is not None]
    return min(failures, key=gravity, default=None)


def check_frames(
    topology: Topology,
    parts: Mapping[str, int],
    reports: PartReports,
    results: Sequence[CommitterResult],
    *,
    code_hash: bytes,
    version: str,
) -> Failure | None:
    """Return why an attempt must not commit although Spark succeeded; None if it may."""
    every = [report for found in reports.values() for report in found]
    return (
        _other_code(every, code_hash, version)
        or emitter_failure(reports)
        or _missing(topology, parts, reports)
        or _unknown(parts, reports)
        or _conflict(reports)
        or _rejected(topology, reports)
        or _lost_rows(topology, every, results)
    )


def edges(topology: Topology, reports: PartReports, results: Sequence[CommitterResult]) -> tuple[EdgeCount, ...]:
    """Return the counts of spouts that committers read directly; edges of DataFrame bolts are not counted."""
    sent = {item.name: sent_by(item.name, reports) for item in topology.spouts}
    return tuple(
        EdgeCount(
            edge=f"{component.input.source} -> {component.name}",
            sent=sent[component.input.source],
            received=result.arrived,
        )
        for component, result in zip(topology.committers, results, strict=True)
        if component.input.source in sent
    )


def sent_by(spout: str, reports: PartReports) -> int:
    """Return how many tuples a spout emitted in a batch whose reports agree: read and not rejected, by part."""
    return sum(found[0].emitted for (name, _), found in reports.items() if name == spout)


def rejected_rows(topology: Topology, reports: PartReports) -> tuple[RejectedRow, ...]:
    """Return all rejected records of a batch whose reports agree: by spout, part, and their order in the source."""
    return tuple(row for item in topology.spouts for row in _rejects_of(item.name, reports))


def _rejects_of(spout: str, reports: PartReports) -> list[RejectedRow]:
    return [row for key in sorted(reports) if key[0] == spout for row in reports[key][0].rejects]


def _rejected(topology: Topology, reports: PartReports) -> Failure | None:
    """Check the share of rejected records over the whole batch, not over a part: a wrong schema must not commit empty
    counts.
    """
    for item in topology.spouts:
        read = sum(found[0].read for (spout, _), found in reports.items() if spout == item.name)
        failure = too_many_rejected(item.name, item.spout.rejected_max, read, _rejects_of(item.name, reports))
        if failure is not None:
            return failure
    return None


def _other_code(reports: Sequence[Report], code_hash: bytes, version: str) -> Failure | None:
    """Check the code hash. An attempt commits only if all its tasks ran the leader's code (R12)."""
    for report in reports:
        if report.code_hash != code_hash:
            return Failure(
                kind="data",
                component=report.spout,
                message=f"host {report.host} ran other code of the topology ({report.code_hash.hex()[:12]})",
            )
        if report.version != version:
            return Failure(
                kind="data",
                component=report.spout,
                message=f"host {report.host} has another txtopo installed ({report.version} instead of {version})",
            )
    return None


def _missing(topology: Topology, parts: Mapping[str, int], reports: PartReports) -> Failure | None:
    for spout, count in parts.items():
        for index in range(count):
            if (spout, index) not in reports:
                return unread_part(topology, spout, index, count)
    return None


def unread_part(topology: Topology, spout: str, index: int, count: int) -> Failure:
    """Return a failure for a part that no task read to its end, although all jobs succeeded; names the step to change.

    The failure blames nothing: a bolt that stops reading early does so each time, and must not be retried without a
    limit.
    """
    known, bolts = {spout}, []
    for bolt in topology.frame_bolts:
        if known.intersection(item.source for item in bolt.inputs):
            known.add(bolt.name)
            bolts.append(bolt.name)
    who = " or ".join(bolts) or "a later step"
    why = f"{who} does not read all of it, as limit() does; what is not read cannot be counted, so take that out"
    if any(item.name == spout and item.spout.emits_frame for item in topology.spouts):
        why += "; coalesce() reads several partitions in one task, repartition() does not"
    return Failure(
        kind="suspect",
        component=spout,
        message=f"spout {spout}: part {index + 1} of {count} gave no report: {why}",
    )


def _unknown(parts: Mapping[str, int], reports: PartReports) -> Failure | None:
    """Check the partitions of a DataFrame. A task number identifies each, so a DataFrame that a plan reads twice
    reports a part that does not exist.
    """
    for spout, count in parts.items():
        found = 1 + max((index for name, index in reports if name == spout), default=-1)
        if found > count:
            return Failure(
                kind="data",
                component=spout,
                message=f"spout {spout}: {found} parts gave a report where there are {count}; a bolt that reads a "
                f"DataFrame twice in one plan (union with itself) does this",
            )
    return None


def _conflict(reports: PartReports) -> Failure | None:
    """Check repeated parts. A part that was read twice must report the same twice (K3: input or code that is not
    deterministic).
    """
    for (spout, index), found in sorted(reports.items()):
        if len(found) > 1:
            first, second = found[:2]
            return Failure(
                kind="data",
                component=spout,
                message=(
                    f"spout {spout}: part {index + 1} was read twice with different outcomes: "
                    f"{first.read} read, {first.rejected} rejected on {first.host}; {second.read} read, "
                    f"{second.rejected} rejected on {second.host}"
                ),
            )
    return None


def _lost_rows(topology: Topology, reports: Sequence[Report], results: Sequence[CommitterResult]) -> Failure | None:
    """Check that no rows vanish or appear between a spout and a committer, as far as the bolts on the way promise
    (`rows`).
    """
    for component, result in zip(topology.committers, results, strict=True):
        path = _path(topology, component.input.source)
        if path is None:
            continue
        spout, promise = path
        entered = sum(report.emitted for report in reports if report.spout == spout)
        if result.arrived == entered or (promise == "fewer" and result.arrived < entered):
            continue
        expected = "as many" if promise == "same" else "at most as many"
        bolts = _between(topology, component.input.source)
        declared = f", since {' and '.join(bolts)}" if bolts else ""
        return Failure(
            kind="data",
            component=bolts[0].split(" ")[0] if bolts else component.name,
            message=f"{entered} tuples left spout {spout} and {result.arrived} arrived at committer "
            f"{component.name}; {expected} were expected{declared}",
        )
    return None


def _between(topology: Topology, source: str) -> list[str]:
    """Return the bolts between a spout and a committer with what they declare, the last one first."""
    bolts = {bolt.name: bolt for bolt in topology.frame_bolts}
    found = []
    while source in bolts:
        found.append(f"{source} declares rows={bolts[source].rows!r}")
        source = bolts[source].inputs[0].source
    return found


def _path(topology: Topology, source: str) -> tuple[str, str] | None:
    """Return the spout that a stream comes from, and `same` or `fewer` for the rows on the way; None if a bolt promises
    nothing or joins.
    """
    bolts = {bolt.name: bolt for bolt in topology.frame_bolts}
    promise = "same"
    while source in bolts:
        bolt = bolts[source]
        if bolt.rows == "any" or len(bolt.inputs) != 1:
            return None
        promise = "fewer" if bolt.rows == "fewer" else promise
        source = bolt.inputs[0].source
    return source, promise
