"""What the benchmark of takeovers makes of the times that drivers told. Nothing is measured."""

from __future__ import annotations

from benchmarks import report
from benchmarks.takeover import ATTEMPT, ELSEWHERE, PROCESSED, SAME, STEPS, steps_ms, summary


def told(start: float) -> list[tuple[str, float]]:
    """A standby that needs 10 ms for each step, and whose steps come again later."""
    names = [name for _, name in STEPS[1:]]
    return [(name, start + 0.01 * number) for number, name in enumerate(names * 2, 1)]


def test_each_step_lasts_from_the_end_of_the_one_before() -> None:
    """What a standby told before the kill belongs to something else."""
    standby = [("elected", 99.0), *told(104.0)]

    found = steps_ms(100.0, [104.0], [(PROCESSED, 99.0), (ATTEMPT, 99.9)], standby)

    assert {name: round(found[name]) for name, _ in STEPS} == {"wait": 4000} | {name: 10 for name, _ in STEPS[1:]}
    assert round(found["all"]) == 4000 + 10 * (len(STEPS) - 1)
    assert found["in processing"]


def test_a_removal_that_was_seen_late_is_no_step_back() -> None:
    found = steps_ms(100.0, [104.5], [(ATTEMPT, 99.0), (PROCESSED, 99.9)], told(104.0))

    assert (round(found["wait"]), round(found["lead"])) == (4010, 0)
    assert not found["in processing"]


def test_the_report_has_a_line_for_each_kind_of_death() -> None:
    one, other = (steps_ms(100.0, [at], [(ATTEMPT, 99.0)], told(at)) for at in (100.1, 104.0))
    takeover = {SAME: summary([one, one, other], 6.0), ELSEWHERE: summary([other], 6.0)}

    assert takeover[SAME]["p50 ms"] == round(one["all"])
    assert takeover[SAME]["p99 ms"] == round(other["all"])
    head, same, elsewhere, _ = report.takeover_text(takeover).splitlines()
    assert head.split()[:4] == ["leader", "on", "kills", "in"]
    assert same.split()[:6] == ["same", "machine", "3", "3", "6", f"{round(one['all'])}"]
    assert elsewhere.startswith("another machine")
    assert report.takeover_text(takeover) in report.whole([], None, takeover, 3)
