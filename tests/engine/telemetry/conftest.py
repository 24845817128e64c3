"""An ingest server for each test."""

from collections.abc import Iterator

import pytest

from tests.engine.telemetry.ingest_server import IngestServer


@pytest.fixture
def ingest() -> Iterator[IngestServer]:
    server = IngestServer()
    yield server
    server.close()
