"""The messages of the demo of Kafka, and their recount with plain `json`. It shares no code with what it checks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from txtopo.demo.recount import Totals

TOPIC = "orders"
PARTITIONS = 2
RECORDS = 2_000
"""Number of messages of a batch, as `shop.py` has it."""
AT_FIRST = 12 * RECORDS
IN_ALL = 14 * RECORDS
WITHOUT_ARTICLE = 8 * RECORDS + 100
"""The message at which the bug is met; in batch 9, since a batch has as many messages of each partition."""
_CUT_OFF = frozenset({3_001, 3_702, 20_010})
"""Messages that are no JSON."""
_SHOPS = ("north", "south", "west")
_KINDS = ("tea", "coffee", "cups")


def messages(numbers: range) -> Iterator[tuple[int, bytes]]:
    """Yield the partition and the value of these messages, the same in every run."""
    for number in numbers:
        chance = random.Random(number)
        article: str | None = f"{chance.choice(_KINDS)}-{chance.randrange(1, 30)}"
        if number == WITHOUT_ARTICLE:
            article = None
        order = {"shop": chance.choice(_SHOPS), "article": article, "pieces": chance.randrange(1, 9)}
        text = json.dumps(order)
        yield number % PARTITIONS, (text[:-5] if number in _CUT_OFF else text).encode()


def count_orders(numbers: range) -> tuple[Totals, int]:
    """Return orders and pieces by shop and kind, and the number of messages that are no JSON. An order without an
    article has the kind `-`.
    """
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    refused = 0
    for _, value in messages(numbers):
        try:
            order = json.loads(value)
        except ValueError:
            refused += 1
            continue
        key = (order["shop"], (order["article"] or "-").partition("-")[0] or "-")
        orders, pieces = totals.get(key, (0, 0))
        totals[key] = (orders + 1, pieces + order["pieces"])
    return totals, refused
