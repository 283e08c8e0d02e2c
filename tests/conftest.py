"""Registers the fixtures of tests/kit and says in the header what the tests run against."""

from __future__ import annotations

import sys
from importlib.metadata import version

from hypothesis import settings

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

pytest_plugins = ["tests.kit.fix_postgres", "tests.kit.fix_proxy", "tests.kit.fix_zookeeper", "tests.kit.fix_spark"]


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
    return [f"services: {services}", f"spark: {version('pyspark')}, python {sys.version.split()[0]}"]
