"""Registers the fixtures of tests/kit, marks each test by what it needs, and says in the header what the tests run
against.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from importlib.metadata import version

import pytest
from hypothesis import settings

from tests.kit import bytecode, fast_jvm, other_postgres, random_order
from tests.kit.needs import markers_for, needed_for
from txtopo.errors import ConfigurationError
from txtopo.local.java import find_java
from txtopo.local.places import service_account
from txtopo.local.postgres_binaries import find_binaries
from txtopo.local.zookeeper import zookeeper_version

settings.register_profile("search", derandomize=False, deadline=None, max_examples=2_000)
settings.load_profile("ci")
"""Hypothesis tries the same examples in every run, and no clock fails a test. `--hypothesis-profile=search` looks for
new ones.
"""

pytest_plugins = [
    "tests.kit.fix_postgres",
    "tests.kit.fix_proxy",
    "tests.kit.fix_zookeeper",
    "tests.kit.fix_kafka",
    "tests.kit.fix_spark",
    "tests.kit.fix_s3",
    "tests.kit.one_spark",
]

_PATCH = pytest.MonkeyPatch()
"""Of the whole run."""
_RUNNING: dict[str, pytest.Item] = {}
"""The test whose fixtures are made or that runs; none while a test is cleaned up."""


def pytest_configure() -> None:
    """From now on a service that a test starts without its marker fails that test, and Spark's JVMs start quickly."""
    sys.addaudithook(_refuse_unmarked)
    other_postgres.use(_PATCH)
    fast_jvm.use()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives to the end: looking for garbage in it, again and again, takes as long as importing it."""
    bytecode.keep()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        bytecode.let_be()


def _refuse_unmarked(event: str, arguments: tuple[object, ...]) -> None:
    if event != "subprocess.Popen" or "item" not in _RUNNING:
        return
    item, needed = _RUNNING["item"], needed_for(arguments[1])
    if needed and not any(item.get_closest_marker(marker) for marker in needed):
        pytest.fail(f"{item.nodeid} starts {arguments[0]!r} and has no marker {' or '.join(sorted(needed))}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by the services that its fixtures start, before `-m` chooses; shuffle where a seed is given."""
    for item in items:
        for marker in markers_for(getattr(item, "fixturenames", ())):
            item.add_marker(marker)
    seed = random_order.seed()
    if seed is not None:
        items[:] = random_order.shuffled(items, lambda item: item.nodeid.partition("::")[0], seed)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Where tests with Spark were chosen, the classes that its JVMs load are written into an archive once. No test
    begins before each worker has come to the end of this, so it does not wait.
    """
    if any(item.get_closest_marker("spark") for item in session.items) and not session.config.option.collectonly:
        fast_jvm.begin_archive()


def pytest_unconfigure() -> None:
    """Nothing goes on when the tests have ended."""
    fast_jvm.end_archive()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Services that are started from here on belong to this test."""
    _RUNNING["item"] = item


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """What is stopped at the end of the run was started by other tests."""
    _RUNNING.clear()


def pytest_report_header() -> list[str]:
    """Versions of everything real that the tests use; what is missing is said here and fails the tests that need it."""
    try:
        java = find_java()
        account = service_account()
        postgres = find_binaries(account)
        services = (
            f"postgres {postgres.version}{f' as {account.name}' if account else ''}, zookeeper "
            f"{zookeeper_version()}, java {java.version} from {java.source}"
        )
    except ConfigurationError as error:
        services = str(error)
    seed = random_order.seed()
    order = [] if seed is None else [f"random order; the same again: {random_order.VARIABLE}={seed}"]
    return [f"services: {services}", f"spark: {version('pyspark')}, python {sys.version.split()[0]}", *order]
