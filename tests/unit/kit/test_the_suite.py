"""The suite itself: markers that say what a test needs, random orders that can be repeated, and what a night tells."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import fix_postgres, other_postgres, seeds
from tests.kit.fix_postgres import PREFIX, clear_leftovers, folder_for_services
from tests.kit.needs import SERVICES, markers_for, needed_for
from tests.kit.night import differences, orders, read_report
from tests.kit.one_spark import SHARED, scope_of
from tests.kit.random_order import VARIABLE, seed, shuffled
from txtopo.errors import ConfigurationError
from txtopo.local.postgres_binaries import find_binaries

ROOT = Path(__file__).resolve().parents[3]
TESTS = [f"{file}.py::{number}" for file in "abcdef" for number in range(8)]


def file_of(test: str) -> str:
    return test.partition("::")[0]


def test_every_service_fixture_is_one() -> None:
    """A fixture that is renamed is renamed in the table, too."""
    kit = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "kit").glob("fix_*.py"))

    assert {name for roots in SERVICES.values() for name in roots} <= set(re.findall(r"^def (\w+)\(", kit, re.M))


def test_files_that_use_the_shared_spark_session_stay_together() -> None:
    """Else each worker would start one."""
    together = [path for path in (ROOT / "tests").rglob("test_*.py") if scope_of(str(path.relative_to(ROOT))) == SHARED]

    assert {"test_waves_on_spark.py", "test_hostile_bolts.py"} <= {path.name for path in together}
    assert scope_of("tests/unit/kit/test_the_suite.py") == "tests/unit/kit/test_the_suite.py"


def test_markers_follow_from_fixtures() -> None:
    """A test that uses both stores has both markers; the closure of its fixtures names those at the bottom."""
    assert markers_for(["world", "database", "postgres_server", "zookeeper_root", "zookeeper_server"]) == [
        "postgres",
        "zookeeper",
    ]
    assert markers_for(["tmp_path"]) == []


def test_without_services_no_test_is_chosen_that_uses_a_fixture_of_one() -> None:
    """Promise: `-m "not …"` leaves the memory half of the contracts, and nothing else of them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/contracts/test_coordinator.py"]
    quiet = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    chosen = subprocess.run(
        [*command, "-m", "not spark and not postgres and not zookeeper and not kafka"],
        cwd=ROOT,
        env=quiet,
        capture_output=True,
        text=True,
    ).stdout
    other = subprocess.run([*command, "-m", "zookeeper"], cwd=ROOT, env=quiet, capture_output=True, text=True).stdout

    here, there = (set(re.findall(r"^tests/\S+", said, re.MULTILINE)) for said in (chosen, other))
    assert here and there
    assert not here & there


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        (["/opt/jdk/bin/java", "-cp", "zookeeper.jar", "Main"], {"spark", "zookeeper", "kafka"}),
        (["/opt/jdk/bin/java", "-version"], set()),
        (["/opt/pg/bin/postgres", "-D", "data"], {"postgres"}),
        (["/opt/spark/bin/spark-submit", "pyspark-shell"], {"spark"}),
        (["python", "-c", "pass"], set()),
        ("postgres", set()),
    ],
)
def test_a_command_that_starts_a_service_needs_its_marker(command: object, needed: set[str]) -> None:
    """The guard knows a service when it sees one."""
    assert needed_for(command) == needed


def test_what_a_killed_run_left_is_removed_and_what_is_used_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its services end, and the memory that they held is free; a run beside it has locked what is its own."""
    monkeypatch.setattr(fix_postgres, "memory_with_room", lambda: tmp_path)
    place = tmp_path / f"{PREFIX}left" / "zookeeper"
    place.mkdir(parents=True)
    serve = "import time; print(flush=True); time.sleep(600)"
    service = subprocess.Popen([sys.executable, "-c", serve, str(place)], stdout=subprocess.PIPE)
    try:
        assert service.stdout is not None and service.stdout.readline(), "it has its command line"
        (place / "pid").write_text(f"{service.pid}\n")

        with folder_for_services() as used:
            assert [*tmp_path.iterdir()] == [used]
            assert service.wait(30) == -signal.SIGKILL
            clear_leftovers.__wrapped__(tmp_path)  # as another run does
            assert used.is_dir()
    finally:
        service.kill()
        service.communicate()
    assert not [*tmp_path.iterdir()]


def test_another_postgres_than_that_of_the_wheel_is_used_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other one is taken in its place."""
    monkeypatch.setenv(other_postgres.VARIABLE, str(tmp_path))
    other_postgres.use(monkeypatch)

    with pytest.raises(ConfigurationError, match=rf"found only: {tmp_path} \(does not run\)"):
        find_binaries(None)


def test_a_random_order_keeps_all_tests_and_those_of_a_file_together() -> None:
    """The same seed gives the same order, another one another; nothing is lost."""
    order = shuffled(TESTS, file_of, 17)

    assert sorted(order) == TESTS
    assert order != TESTS
    assert order == shuffled(TESTS, file_of, 17)
    assert order != shuffled(TESTS, file_of, 18)
    files = [file_of(test) for test in order]
    assert sum(1 for before, after in itertools.pairwise(files) if before != after) == 5


def test_the_seed_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it nothing is shuffled; what is no number is an error and not another order."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert seed() is None
    monkeypatch.setenv(VARIABLE, "4711")
    assert seed() == 4711
    monkeypatch.setenv(VARIABLE, "tonight")
    with pytest.raises(ValueError, match="tonight"):
        seed()


def test_a_long_search_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few histories, unless others are named; a name of none is an error and not a search without finds."""
    monkeypatch.delenv(seeds.VARIABLE, raising=False)
    assert seeds.seeds(40) == range(40)
    monkeypatch.setenv(seeds.VARIABLE, "20000")
    assert seeds.seeds(40) == range(20_000)
    monkeypatch.setenv(seeds.VARIABLE, "4000:6000")
    assert seeds.seeds(40) == range(4000, 6000)
    monkeypatch.setenv(seeds.VARIABLE, "6000:4000")
    with pytest.raises(ValueError, match="names no seed"):
        seeds.seeds(40)


def test_a_night_repeats_by_its_seed() -> None:
    """Ten orders, all different, the same for the same seed."""
    assert len(set(orders(1, 10))) == 10
    assert orders(1, 10) == orders(1, 10)
    assert orders(1, 10) != orders(2, 10)


def test_a_night_tells_what_differed_and_what_failed() -> None:
    """What passed, or was skipped, in every round is not told; everything else is, with the orders that repeat it."""
    alike = {"a": "passed", "b": "skipped"}

    assert differences({1: alike, 2: alike}) == []
    assert differences({1: {**alike, "c": "passed"}, 2: {**alike, "c": "failed"}, 3: alike}) == [
        "c: failed in 2; not run in 3; passed in 1"
    ]
    assert differences({1: {"d": "failed"}, 2: {"d": "failed"}}) == ["d: failed in 1, 2"]


def test_a_report_is_read_with_the_worst_of_each_test() -> None:
    """A test that passed and whose end failed is told as an error."""
    report = """<testsuites><testsuite>
        <testcase classname="tests.a" name="one"/><testcase classname="tests.a" name="two"><failure/></testcase>
        <testcase classname="tests.a" name="three"/><testcase classname="tests.a" name="three"><error/></testcase>
        <testcase classname="tests.a" name="four"><skipped/></testcase></testsuite></testsuites>"""

    assert read_report(report) == {
        "tests.a::one": "passed",
        "tests.a::two": "failed",
        "tests.a::three": "error",
        "tests.a::four": "skipped",
    }
