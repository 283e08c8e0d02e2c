"""What an operator sees of a run: a line now and then, and a summary at its end."""

from __future__ import annotations

import io
import re

from txtopo.core.state import Rules, State, first_state
from txtopo.driver.console import Reporter, progress_line


def state(last_txid: int, quarantined: int = 0) -> State:
    return State(rules=Rules(), topology="orders", last_txid=last_txid, quarantined=quarantined)


def told(*states: State) -> str:
    """The summary of a run that went through these states, without its seconds."""
    reporter = Reporter("orders", stream=io.StringIO())
    for one in states:
        reporter.watch(one)
    return re.sub(r"\d+\.\d s", "N s", reporter.summary(states[-1].last_txid))


def test_the_summary_counts_what_this_run_committed() -> None:
    assert told(state(4), state(5)) == "1 batch committed in N s, last txid 5"
    assert told(state(4), state(9)) == "5 batches committed in N s, last txid 9"


def test_a_quarantined_batch_is_no_committed_one() -> None:
    """Nothing of it is in any table; who reads "committed" would not look."""
    assert (
        told(state(0), state(2, 1), state(9, 5))
        == "4 batches committed, 5 quarantined (txtopo status orders) in N s, last txid 9"
    )
    assert "9 quarantined" not in progress_line("orders", state(9, 5), 1.0)
    assert progress_line("orders", state(9, 5), 1.0).endswith(", 5 quarantined")
    assert "quarantined" not in progress_line("orders", state(9), 1.0)


def test_quarantined_batches_of_an_earlier_lead_of_the_same_run_count_too() -> None:
    """The machine counts from 0 whenever the lead is taken."""
    assert (
        told(state(0), state(3, 2), state(3, 0), state(6, 1))
        == "3 batches committed, 3 quarantined (txtopo status orders) in N s, last txid 6"
    )


def test_the_line_says_how_far_it_is_and_what_it_waits_for() -> None:
    one = first_state(Rules(), "orders", 7, now=0.0)
    assert (
        progress_line("orders", one, 2.5)
        == "orders: done up to 7 of 7 planned, 0 processing, 0 waiting for their commit, 2.5 batches/s"
    )
