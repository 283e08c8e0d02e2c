"""Which expressions of a plan are Spark's own code, as Spark describes them in JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from txtopo.spark.frames.row_local_check import foreign_code

OWN = "org.apache.spark.sql.catalyst.expressions."


class Described:
    """An expression on the side of the JVM."""

    def __init__(self, *classes: str) -> None:
        self.classes = classes

    def toJSON(self) -> str:  # noqa: N802
        return json.dumps([{"class": name, "num-children": 1, "value": '"class":"x.Y"'} for name in self.classes])

    def getClass(self) -> Any:  # noqa: N802
        return self

    def getSimpleName(self) -> str:  # noqa: N802
        return "Upper"


class Undescribed(Described):
    def toJSON(self) -> str:  # noqa: N802
        return "no JSON"


def test_expressions_that_spark_brings_are_its_own() -> None:
    assert foreign_code(Described(f"{OWN}Alias", f"{OWN}Upper", f"{OWN}AttributeReference")) is None


@pytest.mark.parametrize(
    "name",
    [
        f"{OWN}PythonUDF",
        f"{OWN}TranspiledPythonUDF",
        f"{OWN}ScalaUDF",
        f"{OWN}ApplyFunctionExpression",
        f"{OWN}CallMethodViaReflection",
        f"{OWN}TryReflect",
        f"{OWN}objects.StaticInvoke",
        "org.apache.spark.sql.hive.HiveSimpleUDF",
        "com.example.Upper",
        "Upper",
    ],
)
def test_any_other_code_is_foreign_at_every_depth(name: str) -> None:
    assert foreign_code(Described(f"{OWN}Alias", name)) == name.rpartition(".")[2]


def test_what_spark_cannot_describe_is_foreign() -> None:
    assert foreign_code(Undescribed()) == "Upper"
