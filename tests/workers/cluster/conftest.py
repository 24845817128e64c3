"""A Ray for all tests of a file, and an ingest server for each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.telemetry.ingest_server import IngestServer
from tests.workers.cluster.running import Cluster
from workers.local.scratch import scratch_stack


@pytest.fixture
def ingest() -> Iterator[IngestServer]:
    server = IngestServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with scratch_stack(only=("ray-head",)) as stack:
        token = Path(stack.layout.ray_token).read_text().strip()
        yield Cluster(stack.layout.ray_jobs_url, token)
