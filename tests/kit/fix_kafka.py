"""Fixtures of Kafka: one real broker for all tests of a run, topics of its own for each test."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.fix_postgres import folder_for_services
from tests.kit.secured_kafka import SecuredKafka
from txtopo.errors import ConfigurationError

JARS = Path(sys.prefix) / "cache" / "kafka"
"""In the virtual environment, so that the jars are downloaded once."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[SecuredKafka]:
    """A real broker shared by the tests of this run; a test that ends it starts it again. The tests are skipped where
    its jars cannot be downloaded.
    """
    with folder_for_services() as folder:
        server = SecuredKafka(folder / "kafka", jars=JARS)
        try:
            server.start()
        except ConfigurationError as error:
            pytest.skip(f"no Kafka: {error}")
        try:
            yield server
        finally:
            server.crash()


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test uses; it is not made."""
    return f"t{os.getpid()}_{next(_numbers)}"
