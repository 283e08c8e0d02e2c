"""Fixtures for a store with the protocol of S3."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.kit.s3_server import ACCESS_KEY, S3, SECRET_KEY, Proxy, s3_server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def s3_port() -> Iterator[int]:
    pytest.importorskip("moto")
    with s3_server() as port:
        yield port


@pytest.fixture
def s3(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """Yield an empty bucket. Credentials and endpoint are in the environment alone."""
    proxy = Proxy(s3_port)
    store = S3(s3_port, f"bucket-{next(_numbers)}", proxy)
    with proxy.serving() as port:
        for name, value in {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }.items():
            monkeypatch.setenv(name, value)
        store.create()
        yield store
