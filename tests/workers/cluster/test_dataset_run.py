"""A run that learns from stored versions, on a real Ray: fetched, read, learned, also resumed."""

import copy
import json

import pytest
import zstandard

from engine.environments.kg_search.calls import render_answer
from engine.records.trajectory import Trajectory
from engine.spec import ExperimentSpec, load_spec
from engine.synthesis import synthesise
from tests.workers.cluster.running import SPEC, Job
from tests.workers.cluster.told import stored_trajectories
from webapp.reviews.preferences import Preferences

pytestmark = pytest.mark.stack

ROWS, PAIRS = "ver_000000000000rows", "ver_00000000000pairs"
TASKS, JUDGED = "ver_00000000000tasks", "ver_0000000000judged"
STAGES = f"""stages:
  - {{kind: synthesise, tasks: {{"1": 60}}, demonstrations: {{"1": 120}}}}
  - {{kind: sft, source: dataset, dataset: {ROWS}, steps: 3, batch_size: 8,
     optimizer: {{kind: muon, lr: 0.002, warmup_steps: 1}}}}
  - {{kind: dpo, dataset: {PAIRS}, judged_tasks: 4, steps: DPO_STEPS, batch_size: 4,
     optimizer: {{warmup_steps: 1}}}}
rollout: {{slots: 16}}
"""


OWN_TASKS = f"""stages:
  - {{kind: synthesise, tasks: {{"1": 60}}, demonstrations: {{"1": 120}}}}
  - {{kind: rl, dataset: {TASKS}, prompts_per_step: 3, group_size: 4, steps: 2,
     optimizer: {{warmup_steps: 1}}}}
rollout: {{slots: 16}}
"""


OWN_PRACTICE = f"""stages:
  - {{kind: synthesise, tasks: {{"1": 60}}, demonstrations: {{"1": 120}}}}
  - {{kind: sft, steps: 2, batch_size: 8, optimizer: {{warmup_steps: 1}}}}
  - {{kind: sft, source: accepted, practice: {{dataset: {TASKS}, tasks: 6, attempts: 2}}, steps: 1,
     optimizer: {{warmup_steps: 1}}}}
  - {{kind: dpo, practice: {{dataset: {TASKS}}}, judged_tasks: 4, steps: 1, batch_size: 4,
     optimizer: {{warmup_steps: 1}}}}
  - {{kind: opd, start_from: 1, dataset: {TASKS}, prompts_per_step: 4, group_size: 2, steps: 2,
     teachers: [{{stage: 1, categories: [city]}}, {{stage: 2, categories: [river]}}],
     optimizer: {{warmup_steps: 1}}}}
rollout: {{slots: 16}}
"""


def spec(dpo_steps: int) -> ExperimentSpec:
    return spec_of(STAGES.replace("DPO_STEPS", str(dpo_steps)))


def spec_of(stages: str, evaluation: str = "hops: [1]") -> ExperimentSpec:
    head, _, rest = SPEC.partition("stages:")
    rest = rest.partition("rollout: {slots: 16}\n")[2].replace("hops: [1]", evaluation)
    found, problems = load_spec(head + stages + rest)
    assert found is not None, problems
    return found


def packed(rows: list[dict]) -> bytes:
    return zstandard.compress("".join(json.dumps(row) + "\n" for row in rows).encode())


@pytest.fixture(scope="module")
def datasets() -> dict[str, bytes]:
    """Demonstrations of the same first stage, recorded and as text alone; wrong rows; pairs."""
    shown = [one.to_dict() for one in synthesise(spec(1)).demonstrations[:40]]
    for one in shown[20:]:
        del one["segments"]
    foreign = json.loads(json.dumps(shown[0]))
    foreign["segments"][0]["ids"][2] += 1
    pairs = [
        {"prompt": one["prompt"], "category": "form", "chosen": one["steps"][0]["text"],
         "rejected": one["steps"][0]["text"].replace('"}', '"')}
        for one in shown
    ]  # fmt: skip
    pairs += reviewed(synthesise(spec(1)).demonstrations[40:60])
    return {ROWS: packed([*shown, foreign, {**shown[21], "steps": []}]), PAIRS: packed(pairs)}


def reviewed(accepted: list[Trajectory]) -> list[dict]:
    """Pairs as verdicts become them: what was accepted, against the same with a wrong answer."""
    preferences = Preferences()
    for better in accepted:
        worse = copy.deepcopy(better)
        worse.steps[-1].text = render_answer("nowhere")
        preferences.add(better, worse, {})
    rows = list(preferences.rows())
    assert rows and all(row["steps"] for row in rows)
    return rows


@pytest.fixture
def start(cluster, ingest, tmp_path):
    def start(number: int = 1, dpo_steps: int = 2, other: ExperimentSpec | None = None) -> Job:
        given = (other or spec(dpo_steps)).model_dump(mode="json")
        return Job(cluster, ingest, tmp_path, given, number)

    yield start
    cluster.stop_all()


def test_stored_rows_are_learned_and_not_fetched_again_after_a_resume(start, ingest, datasets):
    ingest.datasets = datasets
    job = start(dpo_steps=100_000)
    job.until(lambda: any("dpo/loss" in e["values"] for e in ingest.of_kind("metrics")))
    ingest.command = "stop"
    assert job.end()["state"] == "stopped", job.log()
    done = {e["index"]: e["summary"] for e in ingest.of_kind("stage") if e["state"] == "done"}
    assert done[1]["dataset"] == ROWS
    assert (done[1]["rows"], done[1]["rows_used"]) == (42, 40 - done[1]["rows_refused"].get(
        "duplicate", 0))  # fmt: skip
    assert done[1]["rows_refused"]["another tokenizer"] == 1
    assert done[1]["rows_refused"]["not of this form"] == 1
    fetched = [path for path, _ in ingest.calls if path.startswith("datasets/")]
    assert fetched == [f"datasets/{ROWS}", f"datasets/{PAIRS}"]

    last = ingest.of_kind("checkpoint")[-1]
    ingest.datasets = {}
    ingest.forget()
    again = start(number=2, dpo_steps=last["step"] + 2)
    assert again.end()["state"] == "succeeded", again.log()
    done = {e["index"]: e["summary"] for e in ingest.of_kind("stage") if e["state"] == "done"}
    assert done[2]["rows_used"] == done[2]["pairs"] > 0
    assert set(done[2]["rows_refused"]) <= {"duplicate"}, "rows of reviews are learned as they are"
    assert "faults_after" in done[2]
    assert not [path for path, _ in ingest.calls if path.startswith("datasets/")]


def test_a_run_whose_rows_cannot_be_learned_fails_and_says_why(start, ingest, datasets):
    ingest.datasets = {**datasets, ROWS: packed([{"id": "a", "prompt": "b", "steps": []}])}
    end = start().end()
    assert end["state"] == "failed"
    assert "Stage 1 has nothing to learn: 0 of 1 rows" in end["reason"]
    assert "Row 1: steps" in end["reason"]


def asked(name: str, count: int) -> list[dict]:
    return [{"prompt": f"{name} {n}?", "answer": "x", "category": name} for n in range(count)]


def test_a_run_trains_on_own_tasks_and_is_judged_by_others(start, ingest):
    ingest.datasets = {
        TASKS: packed([*asked("practice", 9), {"prompt": "", "answer": "x"}]),
        JUDGED: packed(asked("judged", 15)),
    }
    job = start(other=spec_of(OWN_TASKS, f"dataset: {JUDGED}"))
    assert job.end()["state"] == "succeeded", job.log()
    played = stored_trajectories(ingest).values()
    by_purpose = {
        purpose: {one.category for one in played if one.purpose == purpose}
        for purpose in ("train", "evaluate")
    }
    assert by_purpose == {"train": {"practice"}, "evaluate": {"judged"}}
    (final,) = [e for e in ingest.of_kind("evaluation") if e["tasks"] == "held_out"]
    assert set(final["report"]["by_category"]) == {"judged"}
    texts = [e["text"] for e in ingest.of_kind("log")]
    assert any("9 of 10 rows of dataset version" in text for text in texts)
    (done,) = [
        e["summary"] for e in ingest.of_kind("stage") if e["state"] == "done" and e["name"] == "rl"
    ]
    assert (done["dataset"], done["rows_used"], done["trials"]) == (TASKS, 9, 1)
    assert done["rows_refused"] == {"not of this form": 1}


def test_a_run_practises_on_own_tasks_and_a_student_is_taught_on_them(start, ingest):
    ingest.datasets = {TASKS: packed([*asked("city", 5), *asked("river", 4), {"prompt": "?"}])}
    job = start(other=spec_of(OWN_PRACTICE))
    assert job.end(timeout_s=240)["state"] == "succeeded", job.log()
    fetched = [path for path, _ in ingest.calls if path.startswith("datasets/")]
    assert fetched == [f"datasets/{TASKS}"]
    done = {e["index"]: e["summary"] for e in ingest.of_kind("stage") if e["state"] == "done"}
    assert [done[at]["played"] for at in (2, 3)] == [12, 9], "so many at most, and all there are"
    for at in (2, 3, 4):
        assert (done[at]["dataset"], done[at]["rows"], done[at]["rows_used"]) == (TASKS, 10, 9)
    trained = [one for one in stored_trajectories(ingest).values() if one.purpose == "train"]
    assert {one.category for one in trained} == {"city", "river"}
    values = [e["values"] for e in ingest.of_kind("metrics")]
    for name in ("city", "river", "stage-1", "stage-2"):
        assert any(f"distil/divergence/{name}" in one for one in values), name


def test_a_category_without_a_teacher_ends_the_run_before_its_stage_begins(start, ingest):
    ingest.datasets = {TASKS: packed([*asked("city", 5), *asked("sea", 4)])}
    head, _, rest = OWN_PRACTICE.partition("  - {kind: dpo")
    only = head + rest[rest.index("  - {kind: opd") :]
    end = start(other=spec_of(only)).end(timeout_s=240)
    assert end["state"] == "failed"
    assert "Nobody teaches tasks of sea" in end["reason"]
    assert not any("distil/divergence" in e["values"] for e in ingest.of_kind("metrics"))
