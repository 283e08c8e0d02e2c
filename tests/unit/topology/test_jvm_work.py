"""The JVM compiles fast where it computes with no rows, and as the user says wherever the user says anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pyspark import SparkConf, SparkContext, java_gateway

from txtopo import CountCommitter, TopologyBuilder, app
from txtopo.bolts import BasicBolt
from txtopo.config import Settings
from txtopo.spark.session import spark_session
from txtopo.spark.session.jvm_process import launch_jvm
from txtopo.spark.session.spark_session import SessionOptions, settings
from txtopo.spark.session.spark_settings import (
    FAST_COMPILER,
    METASPACE,
    PATIENT_COMPILER,
    compiler_directives,
    compiler_options,
    memory_options,
)
from txtopo.spouts import FileSpout
from txtopo.topology.components import Topology
from txtopo.topology.jvm_work import JvmWork, jvm_work
from txtopo.topology.partial_counts import PartialCount, counted_in_spout

FIELDS = "word string, n double"


class Passing(BasicBolt):
    outputs = (FIELDS,)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


def topology(*, bolt: Any = None) -> Topology:
    builder = TopologyBuilder("t")
    builder.set_spout("lines", FileSpout(".", FIELDS))
    if isinstance(bolt, BasicBolt):
        builder.set_bolt("bolt", bolt).shuffle_grouping("lines")
    elif bolt is not None:
        builder.set_bolt("bolt", bolt, "lines", fields=FIELDS)
    source = "lines" if bolt is None else "bolt"
    builder.set_committer_bolt("c", CountCommitter("t", ["word"])).shuffle_grouping(source)
    return builder.build()


def test_only_where_python_tasks_pass_tuples_the_jvm_has_little_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert jvm_work(topology(bolt=Passing())) is JvmWork.MESSAGES
    assert jvm_work(topology(bolt=lambda frame: frame)) is JvmWork.ROWS
    monkeypatch.setattr(FileSpout, "emits_frame", True)
    assert jvm_work(topology(bolt=Passing())) is JvmWork.ROWS


def test_what_the_tasks_of_a_spout_count_may_be_work_for_the_jvm() -> None:
    """They give up grouping where keys are mostly different: then the JVM aggregates every row."""
    assert isinstance(counted_in_spout(topology(), "lines"), PartialCount)
    assert jvm_work(topology()) is JvmWork.GROUPS


@pytest.mark.parametrize(
    ("conf", "environ"),
    [
        ({"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}, {}),
        ({"spark.driver.defaultJavaOptions": "-ea -XX:-TieredCompilation"}, {}),
        ({"spark.driver.extraJavaOptions": "-Xint"}, {}),
        ({"spark.driver.extraJavaOptions": "-XX:Tier4InvocationThreshold=1"}, {}),
        ({}, {"JAVA_TOOL_OPTIONS": "-XX:CompilationMode=high-only"}),
        ({}, {"JDK_JAVA_OPTIONS": "-XX:+UseJVMCICompiler"}),
    ],
)
def test_a_compiler_that_the_user_names_is_never_overruled(conf: dict[str, str], environ: dict[str, str]) -> None:
    assert [compiler_options(work, conf, environ) for work in JvmWork] == [()] * 3


def test_other_options_of_the_user_are_kept_beside_the_fast_compiler() -> None:
    conf = {"spark.driver.extraJavaOptions": "-Dfile.encoding=UTF-8 -Xss4m", "spark.driver.memory": "2g"}

    assert compiler_options(JvmWork.MESSAGES, conf, {"JAVA_TOOL_OPTIONS": "-Duser.language=en"}) == (FAST_COMPILER,)
    assert compiler_options(JvmWork.ROWS, conf, {}) == PATIENT_COMPILER


def test_a_run_starts_the_jvm_as_its_topology_needs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        app, "session_options", lambda settings, name: SessionOptions(app_name=name, log_folder=tmp_path)
    )
    monkeypatch.setattr(spark_session, "running_session", lambda: None)

    def options(of: Topology) -> SessionOptions:
        found: SessionOptions = cast("Any", app.spark_executor(of, b"", Settings()))._options
        return found

    assert options(topology(bolt=Passing())).work is JvmWork.MESSAGES
    assert options(topology()).work is JvmWork.GROUPS


def test_the_options_of_the_jvm_precede_those_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of two that contradict each other the JVM takes the last."""
    launched: list[str] = []

    def launch(conf: SparkConf, _: object) -> None:
        launched.append(conf.get("spark.driver.extraJavaOptions") or "")

    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)  # the tests' own JVM
    monkeypatch.setenv("TXTOPO_CLASS_ARCHIVE", "off")
    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda gateway: None)
    conf = {"spark.driver.extraJavaOptions": "-Dmine=1 -Xss4m"}
    for work in JvmWork:
        options = SessionOptions(app_name="t", log_folder=tmp_path, conf=conf, work=work)
        launch_jvm(tmp_path, options.log_file, work, merged=settings(options))

    fast, groups, usual = (words.partition(".properties ")[2] for words in launched)
    assert fast == f"{FAST_COMPILER} {METASPACE} -Dmine=1 -Xss4m"
    assert usual == " ".join([*PATIENT_COMPILER, METASPACE, "-Dmine=1 -Xss4m"])
    directives = tmp_path / "spark-compiler-directives.json"
    named = ["-XX:+UnlockDiagnosticVMOptions", f'"-XX:CompilerDirectivesFile={directives}"']
    assert groups == " ".join([*PATIENT_COMPILER, *named, METASPACE, "-Dmine=1 -Xss4m"])
    assert directives.read_text() == compiler_directives()
    assert sorted(path.name for path in tmp_path.glob("spark-compiler*")) == [directives.name]


def test_the_memory_of_classes_that_the_user_sets_is_never_overruled() -> None:
    """What stands in a variable precedes the command line, where the last one counts."""
    mine = "-XX:MetaspaceSize=32m"
    assert memory_options({"spark.driver.extraJavaOptions": mine}, {}) == ()
    assert memory_options({}, {"JAVA_TOOL_OPTIONS": "-XX:MaxMetaspaceSize=128m"}) == ()
    assert memory_options({"spark.driver.extraJavaOptions": "-Xss4m"}, {"JAVA_TOOL_OPTIONS": "-ea"}) == (METASPACE,)
