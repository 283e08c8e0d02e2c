"""Carries a hidden column from a spout's leaf through the plans of DataFrame bolts, or names the bolt that depends on
other rows than its own.

A wave must keep rows apart by batch although the bolts know nothing about batches. The analysed plan is walked from a
bolt's output down to the leaf and rebuilt with the column appended to every projection. This is done only if each node
treats each row separately: an unknown node is refused. The compiler must check what a node cannot show: a bolt that ran
a job while it was called and put the answer into a literal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from txtopo.errors import BatchDataError, TopologyError
from txtopo.spark.frames.current_time_check import fixes_a_time

SQL_BATCHED_UDF = 100
SQL_ARROW_BATCHED_UDF = 101
_ROW_UDFS = frozenset({SQL_BATCHED_UDF, SQL_ARROW_BATCHED_UDF})
"""Python functions that get one row at a time, however Spark transports the rows. All other kinds see a block of rows,
and so their neighbours.
"""
_GENERATORS = frozenset({"Explode", "PosExplode", "Inline", "Stack", "JsonTuple", "VariantExplode"})
"""Generators that make rows from one row alone. Table functions in Python and Hive may also emit at the end of their
input.
"""
_OWN_PACKAGE = "org.apache.spark.sql.catalyst.expressions"
"""Expressions that Spark brings. Those of `objects` below it may call any method; extensions have other packages."""
_FOREIGN = re.compile(r"UD[AT]?F|UserDefined|ApplyFunction|Reflect")
"""In the names of expressions of that package that call code of others, which may keep what it saw."""
_WALKED = frozenset({"Project", "Filter", "Generate", "SubqueryAlias", "View", "PipeOperator", "ResolvedHint"})
_NO_MORE_THAN_SAID = frozenset({"WithCTE", "CTERelationRef", "Expand"})
"""Nodes that may treat each row separately (WITH, `unpivot`), but are not supported."""


class NotCarriedError(Exception):
    """The plan does not treat each row separately; the message gives the reason in a few words."""


def why_not_carried(plan: Callable[[], None]) -> str | None:
    """Return why a plan of several runs cannot be made; None if `plan` makes it. Raises TopologyError,
    BatchDataError.
    """
    try:
        plan()
    except NotCarriedError as error:
        return str(error)
    except (TopologyError, BatchDataError):
        raise
    except Exception as error:
        # The bolts were called before and did not raise: only carrying the column fails, and it is optional.
        return f"the plan cannot be carried: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return None


class CarriedFrame(NamedTuple):
    """A DataFrame with the column."""

    frame: DataFrame
    foreign: str | None
    """Code that is not Spark's own and sees the rows, such as a Python function; None: there is none."""


def carry(made: DataFrame, leaf: DataFrame, column: str) -> CarriedFrame:
    """Return `made` with `column` of `leaf` as its last column. `made` was made from `leaf` without that column. Raises
    NotCarriedError.
    """
    carrying = Carrying(leaf, column)
    return CarriedFrame(carrying.carried(made), carrying.foreign)


class Carrying:
    """Carries one column of one leaf."""

    def __init__(self, leaf: DataFrame, column: str) -> None:
        self._spark: SparkSession = leaf.sparkSession
        jvm: Any = self._spark._jvm
        self._jvm = jvm
        catalyst = jvm.org.apache.spark.sql.catalyst
        self._plans, self._patterns = catalyst.plans.logical, catalyst.trees.TreePattern
        self._leaf: Any = leaf._jdf.queryExecution().analyzed()
        self._column = column
        self.foreign: str | None = None
        """See CarriedFrame."""
        (self._attribute,) = [found for found in _items(self._leaf.output()) if found.name() == column]

    def carried(self, made: DataFrame) -> DataFrame:
        """See `carry`."""
        analysed = made._jdf.queryExecution().analyzed()
        if self._column in map(str.lower, made.columns):
            raise NotCarriedError(f"it has its own column {self._column}")
        if fixes_a_time(analysed, self._spark):
            raise NotCarriedError("depends on when it runs: a text such as 'today' or 'now' is read as a time")
        plan = self._walk(analysed)
        own = [*_items(analysed.output()), self._attribute]
        plan = self._plans.Project(self._seq(own), plan)
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan)
        return DataFrame(dataset, self._spark)

    def _walk(self, node: Any) -> Any:
        """Return the node rebuilt over its new children, with the attribute among its output."""
        if node.equals(self._leaf):
            return node
        name = str(node.nodeName())
        if name in _NO_MORE_THAN_SAID:
            raise NotCarriedError(f"is not known to treat each row by itself: {name}")
        if name not in _WALKED:
            raise NotCarriedError(f"depends on other rows: {name}")
        self._check_expressions(node)
        below = self._walk(node.children().apply(0))
        match name:
            case "Project":
                return self._plans.Project(node.projectList().appended(self._attribute), below)
            case "Filter":
                return self._plans.Filter(node.condition(), below)
            case "Generate":
                self._check_generator(node)
            case "View":
                # A view over a DataFrame (`spark.sql` with one) only names it, as long as its columns are the columns
                # of its child.
                if not node.output().equals(node.children().apply(0).output()):
                    raise NotCarriedError("reads a view that is more than a name")
                return below
            case "PipeOperator" | "ResolvedHint":
                # Marks of the parser and hints for joins; Spark drops them when it begins to optimise.
                return below
        return node.withNewChildren(self._seq([below]))

    def _check_expressions(self, node: Any) -> None:
        if not node.subqueries().isEmpty():
            raise NotCarriedError("depends on other rows: a subquery")
        for expression in _items(node.expressions()):
            if not expression.deterministic():
                raise NotCarriedError(f"gives another result each time: {expression.sql()}")
            if expression.containsPattern(self._patterns.CURRENT_LIKE()):
                raise NotCarriedError(f"depends on when or where it runs: {expression.sql()}")
            if expression.containsPattern(self._patterns.PYTHON_UDF()):
                _check_udfs(expression)
            if expression.references().contains(self._attribute):
                raise NotCarriedError(f"reads {self._column}")
            self.foreign = self.foreign or foreign_code(expression)

    def _check_generator(self, node: Any) -> None:
        kind = str(node.generator().getClass().getSimpleName())
        if kind not in _GENERATORS or not node.unrequiredChildIndex().isEmpty():
            raise NotCarriedError(f"may depend on other rows: {kind}")

    def _seq(self, found: list[Any]) -> Any:
        array = self._jvm.java.util.ArrayList()
        for item in found:
            array.add(item)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(array).toSeq()


def _check_udfs(expression: Any) -> None:
    kind = str(expression.getClass().getSimpleName())
    if kind == "PythonUDF" and expression.evalType() not in _ROW_UDFS:
        raise NotCarriedError(f"depends on other rows: {expression.name()} gets many rows together")
    for child in _items(expression.children()):
        _check_udfs(child)


def foreign_code(expression: Any) -> str | None:
    """Return the first class in an expression whose code is not known to be Spark's own; None if there is none."""
    try:
        found = json.loads(expression.toJSON())
    except (Py4JJavaError, ValueError):  # It holds something that Spark cannot describe.
        return str(expression.getClass().getSimpleName())
    for name in _classes(found):
        package, _, kind = name.rpartition(".")
        if package != _OWN_PACKAGE or _FOREIGN.search(kind):
            return kind
    return None


def _classes(described: Any) -> Iterator[str]:
    """Yield the class of every node that Spark describes in JSON."""
    if isinstance(described, dict):
        if "class" in described:
            yield str(described["class"])
        described = list(described.values())
    if isinstance(described, list):
        for item in described:
            yield from _classes(item)


def _items(seq: Any) -> list[Any]:
    return [seq.apply(index) for index in range(seq.size())]
