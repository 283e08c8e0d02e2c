"""Checks that a plan gives the same rows whenever it runs: no current time, nothing random, no day that Spark fixes
while it plans.

Spark reads some texts as a time: `cast('now' as timestamp)`, `to_date('today')`, `day < 'yesterday'`. It inserts the
value when it optimises; for `date'today'` already when it reads the SQL. Such a plan is correct on one day, and wrong
on the next.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

_TIMES = re.compile(r"\b(?:DATE|TIMESTAMP\w*) '")
"""A literal of a day or a time in the SQL of an expression."""
_WRITTEN = re.compile(r"\b(?:date|timestamp\w*)\s*['\"]\s*(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""The same literal as a user writes it, if its value differs each day."""


def is_timeless(analysed: Any, spark: SparkSession) -> bool:
    """True if an analysed JVM plan, with everything inside it, gives the same rows whenever it runs."""
    jvm: Any = spark._jvm
    current = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    plans = [analysed, *_items(analysed.subqueriesAll())]
    return all(
        not plan.containsPattern(current) and bool(plan.deterministic()) and not fixes_a_time(plan, spark)
        for plan in plans
    )


def fixes_a_time(analysed: Any, spark: SparkSession) -> bool:
    """True if Spark would put the time at which it plans in place of a text such as 'today'. Subqueries are not
    checked.
    """
    jvm: Any = spark._jvm
    rules = jvm.org.apache.spark.sql.catalyst.optimizer
    # Spark's own two rules that do it, in their order: a text that they do not change is no such text.
    replaced = rules.ReplaceExpressions.apply(analysed)
    return not rules.SpecialDatetimeValues.apply(replaced).equals(replaced) or _was_read_as_time(analysed)


def _was_read_as_time(plan: Any) -> bool:
    if any(_TIMES.search(found.sql()) and _has_time_of_today(found) for found in _items(plan.expressions())):
        return True
    return any(_was_read_as_time(child) for child in _items(plan.children()))


def _has_time_of_today(expression: Any) -> bool:
    """Checks the SQL that the plan was read from: the literal itself is a day like any other."""
    texts = (leaf.origin().sqlText() for leaf in _items(expression.collectLeaves()))
    return any(text.isDefined() and _WRITTEN.search(text.get()) for text in texts)


def _items(seq: Any) -> list[Any]:
    return [seq.apply(index) for index in range(seq.size())]
