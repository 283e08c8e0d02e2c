"""Spark's settings that change or protect results; imports no PySpark, so that the code hash can include them at low
cost.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from txtopo.topology.jvm_work import JvmWork

RESULT_SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.caseSensitive": "false",
    # These two change what txtopo's own plans mean: names in backticks become patterns, aggregates lose their keys.
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.retainGroupColumns": "true",
    # The text of a plan shows what it reads, as long as none of the text is cut. Spark's own value.
    "spark.sql.maxPlanStringLength": "2147483632",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "true",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "true",
}
"""Set by txtopo, asserted at start, and not for the user to change: with other settings an attempt could give another
result for the same plan (R12: a batch is its plan; K3: input or code that is not deterministic).
"""

WORKER_MEMORY_SETTING = "spark.executor.pyspark.memory"
"""Address space of one Python worker, enforced by the kernel: a bolt that needs more gets a MemoryError, which is a
failure of the data.

Without it one bolt can use the whole machine. On a `local` master txtopo sets it to a worker's share of the machine;
the user's own value has priority, `0` means no limit. On a cluster only the user sets it, because there it also changes
how large a container is requested. It is virtual memory, of which an idle worker with Arrow and pandas has 1.5 GiB
already; libraries that reserve much more than they use (torch, CUDA) may need a higher value or 0.
"""
WORKER_MEMORY_SHARE = 0.75
"""Share of the machine's memory for the Python workers of all cores together."""
WORKER_MEMORY_MIB_MIN = 3 * 1024
"""Minimum if a core's share is smaller, because with less an ordinary bolt with Arrow and pandas has no room."""
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


FAST_COMPILER = "-XX:TieredStopAtLevel=1"
"""C1 alone. It saves about half of the CPU with which Spark starts: C2 optimises much of it that never runs again."""
PATIENT_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
)
"""C2 compiles what is called ten times as often as Java requires: what runs for each row, not Spark's own code, which
it would optimise for longer than that runs in the first batches. Loops are compiled as early as usual.
"""
COMPILED_FOR_GROUPS = tuple(
    f"org/apache/{package}/*.*"
    for package in (
        "spark/sql/catalyst/expressions",
        "spark/sql/execution",
        "spark/sql/util",
        "spark/sql/vectorized",
        "spark/unsafe",
        "spark/memory",
        "spark/serializer",
        "spark/shuffle",
        "spark/storage",
        "spark/util/collection",
        "arrow",
    )
)
"""What C2 compiles where the JVM only adds up groups: the code that runs for each row, and what it calls and C2 takes
into it. Otherwise most of the CPU of C2 goes into class files, py4j, regular expressions and JSON. Patterns of Java's
compiler directives (JEP 165).
"""
METASPACE = "-XX:MetaspaceSize=256m"
"""Room for the classes of Spark before the JVM first looks for classes to unload. Java's own value, 21 MiB, makes it
mark its whole heap ten times while Spark starts and in the first batches, and it finds nothing.
"""
_JAVA_SETTINGS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_COMPILER = re.compile(r"Tier|Compil|JVMCI|-Xint|-Xcomp|-Xmixed|-client|-server")


def compiler_options(work: JvmWork, conf: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the JVM's options for its compilers, which depend on its work; none if the user gave any: the user's have
    priority, and some exclude each other.
    """
    if _COMPILER.search(java_options_given(conf, environ)):
        return ()
    return (FAST_COMPILER,) if work is JvmWork.MESSAGES else PATIENT_COMPILER


def compiler_directives() -> str:
    """Return the text of a file with which C2 compiles only COMPILED_FOR_GROUPS. The first pattern that fits a method
    counts; C1 compiles all methods.
    """
    wanted = {"match": COMPILED_FOR_GROUPS, "c2": {"Exclude": False}}
    return json.dumps([wanted, {"match": "*.*", "c2": {"Exclude": True}}])


def memory_options(conf: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the JVM's options for the memory of classes; none if the user gave any."""
    return () if "MetaspaceSize" in java_options_given(conf, environ) else (METASPACE,)


def java_options_given(conf: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return all that the user tells the driver's JVM, in one line to search in."""
    given = [conf.get(name, "") for name in _JAVA_SETTINGS] + [environ.get(name, "") for name in _JAVA_VARIABLES]
    return " ".join(given)


def changed_settings(get: Callable[[str], str | None]) -> list[tuple[str, str | None, str]]:
    """Return the RESULT_SETTINGS with another value than results need: (name, value that `get` returns, value
    needed).
    """
    found = [(name, get(name), wanted) for name, wanted in RESULT_SETTINGS.items()]
    return [one for one in found if one[1] is None or not is_same_setting(one[0], one[1], one[2])]


def is_same_setting(name: str, actual: str, wanted: str) -> bool:
    """True if both values of one of RESULT_SETTINGS mean the same."""
    if name == "spark.sql.session.timeZone":
        return actual in ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")
    # Spark returns bytes with a unit if nobody has set them.
    return actual.lower() == wanted.lower() or (name == "spark.sql.maxPlanStringLength" and actual == f"{wanted}b")


def worker_memory_mib(memory_bytes: int, cores: int) -> int:
    """Return the limit of one Python worker, in MiB, on a machine with this memory.

    >>> worker_memory_mib(64 * 2**30, cores=8), worker_memory_mib(4 * 2**30, cores=4)
    (6144, 3072)
    """
    return max(WORKER_MEMORY_MIB_MIN, int(memory_bytes * WORKER_MEMORY_SHARE) // 2**20 // max(1, cores))


def machine_memory_bytes() -> int:
    """Return the memory of this machine in bytes, or of the container around this process if that is less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in map(Path, _CGROUP_LIMITS):
        try:
            found.append(int(path.read_text()))
        except (OSError, ValueError):  # No such file, or the word `max`.
            continue
    return min(found)
