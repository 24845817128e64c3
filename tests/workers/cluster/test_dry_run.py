"""A recipe on tiny amounts, on a real Ray: every part reports, and every stage takes a step."""

from pathlib import Path
from typing import Any

import pytest

from engine.spec import load_spec
from engine.spec.dry_run import JUDGED, on_tiny_amounts
from tests.engine.telemetry.ingest_server import IngestServer
from tests.workers.cluster.running import Cluster, Job

pytestmark = pytest.mark.stack

RECIPES = Path(__file__).resolve().parents[3] / "recipes"


@pytest.mark.parametrize("recipe", ["kg-search", "repair"])
def test_every_part_of_a_recipe_is_tried_and_of_a_fork_of_it(
    cluster: Cluster, ingest: IngestServer, tmp_path: Path, recipe: str
) -> None:
    spec, problems = load_spec((RECIPES / f"{recipe}.yaml").read_text())
    assert spec is not None, problems
    origin: dict[str, Any] | None = None
    for name in ("whole", "fork"):
        small, problems = on_tiny_amounts(spec, fork=origin is not None)
        assert small is not None, problems
        if origin is None:  # more are drawn than a dry run plays
            wide = small.evaluation.model_copy(update={"tasks": 2 * JUDGED})
            small = small.model_copy(update={"evaluation": wide})
        ingest.forget()
        job = Job(
            cluster, ingest, tmp_path / name, small.model_dump(mode="json"),
            origin=origin, dry_run=True,
        )  # fmt: skip
        end = job.end(timeout_s=300)
        assert end["state"] == "succeeded", (end, job.log())
        done = {e["index"]: e for e in ingest.of_kind("stage") if e["state"] == "done"}
        assert sorted(done) == list(range(len(small.stages)))
        for index, stage in enumerate(small.stages[1:], start=1):
            assert done[index]["steps"] == getattr(stage, "steps", 0)
        versions = [e["version"] for e in ingest.of_kind("checkpoint") if e["final"]]
        assert versions == sorted(set(versions))  # each stage's step made new weights
        sources = {source for source, _ in ingest.events}
        assert {"driver", "trainer-0", "rollout-0"} <= sources
        assert ("synthesis" in sources) == (origin is None)
        assert {e["report"]["tasks"] for e in ingest.of_kind("evaluation")} == {JUDGED}
        final = ingest.of_kind("checkpoint")[-1]
        origin = {
            "id": "ckp_1", "run_id": "run_parent", "storage": str(tmp_path / name / "storage"),
            "checkpoint_path": final["path"], "stage": final["stage"], "step": final["step"],
            "version": final["version"],
        }  # fmt: skip
