"""Bolts and committers whose code would never run are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from tests.unit.tuples.test_tuple_edge_cases import WORD, Got, Pass, spouts
from txtopo.errors import TopologyError
from txtopo.topology.batch_committer import BatchCommitter
from txtopo.topology.streams import Tuple
from txtopo.topology.tuple_bolts import BasicBolt, TupleBolt

# ------------------------------------------------------------------------------------------- bolts that would do nothin


class Yields(BasicBolt):
    """Looks like a bolt of another framework: its body never runs."""

    outputs: ClassVar[Sequence[Any]] = WORD

    def execute(self, tup: Tuple, collector: Any) -> Any:
        yield tup.values


class Waits(Pass):
    """A coroutine that nobody awaits."""

    async def execute(self, tup: Tuple, collector: Any) -> None:  # type: ignore[override]
        collector.emit(tup.values)


class YieldsAtTheEnd(Got):
    def finish_batch(self) -> Any:
        yield (0, "")


class YieldingCommitter(BatchCommitter):
    def commit(self, transaction: Any, rows: Any, collector: Any) -> Any:
        yield 1


@pytest.mark.parametrize("bolt", [Yields(), Waits(), YieldsAtTheEnd()], ids=lambda bolt: type(bolt).__name__)
def test_a_bolt_whose_code_would_never_run_is_refused(bolt: TupleBolt) -> None:
    """A generator or a coroutine does nothing when it is called: all tuples would be gone without a word."""
    method = "finish_batch" if isinstance(bolt, YieldsAtTheEnd) else "execute"
    with pytest.raises(TopologyError, match=rf"'odd'.*{type(bolt).__name__}\.{method} .*(generator|coroutine)"):
        spouts(words="word string").set_bolt("odd", bolt)


def test_a_committer_whose_code_would_never_run_is_refused() -> None:
    """The same for the driver half: a batch would count as committed and nothing be written."""
    with pytest.raises(TopologyError, match=r"'odd'.*YieldingCommitter\.commit .*generator"):
        spouts(words="word string").set_committer_bolt("odd", YieldingCommitter())
