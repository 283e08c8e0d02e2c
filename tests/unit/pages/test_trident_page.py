"""docs/trident.md: its blocks run and print what stands below them; it names every step, aggregator and state."""

from __future__ import annotations

import re

from tests.kit.pages import DOCS, blocks_of, run_page
from txtopo import trident
from txtopo.trident import ChainedAggregate, GroupedStream, PersistedState, TridentStream, TridentTopology

PAGE = (DOCS / "trident.md").read_text(encoding="utf-8")


def test_every_block_runs_and_prints_what_the_page_says() -> None:
    seen = 0
    for block, printed in run_page("trident.md"):
        assert printed == (block.shown or ""), f"docs/trident.md:{block.line}"
        seen += 1
    assert seen == len(blocks_of("trident.md")) >= 1


def test_every_public_method_is_on_the_page() -> None:
    for kind in (TridentStream, GroupedStream, ChainedAggregate, PersistedState, TridentTopology):
        for name in vars(kind):
            if not name.startswith("_") and name not in ("fields", "to_stream"):
                assert re.search(rf"\b{name}\b", PAGE), f"docs/trident.md does not name {kind.__name__}.{name}"


def test_every_exported_function_aggregator_and_state_is_on_the_page() -> None:
    made_by_others = {"TridentStream", "GroupedStream", "ChainedAggregate", "PersistedState"}
    for name in set(trident.__all__) - made_by_others:
        assert name in PAGE, f"docs/trident.md does not name {name}"
