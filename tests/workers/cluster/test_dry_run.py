"""A recipe on tiny amounts, on a real Ray: every part reports, and every stage takes a step."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.spec import load_spec
from engine.spec.dry_run import on_tiny_amounts
from tests.engine.telemetry.ingest_server import IngestServer
from tests.workers.cluster.running import Cluster, Job
from workers.local.scratch import scratch_stack

pytestmark = pytest.mark.stack

RECIPES = Path(__file__).resolve().parents[3] / "recipes"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with scratch_stack(only=("ray-head",)) as stack:
        token = Path(stack.layout.ray_token).read_text().strip()
        yield Cluster(stack.layout.ray_jobs_url, token)


@pytest.mark.parametrize("recipe", ["kg-search"])
def test_every_part_of_a_recipe_is_tried(
    cluster: Cluster, ingest: IngestServer, tmp_path: Path, recipe: str
) -> None:
    spec, problems = load_spec((RECIPES / f"{recipe}.yaml").read_text())
    assert spec is not None, problems
    small, problems = on_tiny_amounts(spec)
    assert small is not None, problems
    spool = {"CARAVAN_SPOOL": str(tmp_path / "spool"), "OMP_NUM_THREADS": "1"}
    storage = tmp_path / "storage"
    job = Job(cluster, ingest, storage, small.model_dump(mode="json"), 1, spool)
    end = job.end(timeout_s=300)
    assert end["state"] == "succeeded", (end, job.log())
    done = {e["index"]: e for e in ingest.of_kind("stage") if e["state"] == "done"}
    assert sorted(done) == list(range(len(small.stages)))
    for index, stage in enumerate(small.stages[1:], start=1):
        made = done[index]["summary"]
        empty = made.get("kept") == 0 or made.get("pairs") == 0  # an untrained policy's practice
        assert done[index]["steps"] == (0 if empty else getattr(stage, "steps", 0))
    sources = {source for source, _ in ingest.events}
    assert {"driver", "pool", "trainer-0", "rollout-0", "synthesis"} <= sources
