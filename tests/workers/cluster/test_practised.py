"""What stages keep of their practice: accepted rollouts, pairs with their order, references."""

import json
import random
from dataclasses import replace

import pytest
import zstandard

from engine.records.trajectory import StopReason
from engine.spec import DpoStage, ExperimentSpec, SftStage, SynthesiseStage
from engine.spec.practice import PracticeSpec
from engine.synthesis.repair import Pair
from tests.engine.training.samples import make_trajectory
from workers.cluster import practised
from workers.cluster.played import Played
from workers.cluster.storage import RunStorage


def spec(stage) -> ExperimentSpec:
    return ExperimentSpec(name="small", seed=3, stages=[SynthesiseStage(), stage])


@pytest.fixture
def storage(tmp_path) -> RunStorage:
    return RunStorage(str(tmp_path))


def play(storage: RunStorage, trajectories) -> None:
    played = Played(storage, "practice/stage-1/played")
    for one in trajectories:
        played.add(one)
    played.flush()


def test_what_the_verifier_accepts_is_kept_once_and_so_often_of_a_task(storage):
    rng = random.Random(0)

    def episode(task: str, success: bool):
        return replace(make_trajectory(rng, "g"), task_id=task, success=success)

    many = [episode("easy", True) for _ in range(3)]
    broken = replace(episode("hard", False), stop_reason=StopReason.INFRA_ERROR)
    one = episode("hard", True)
    play(storage, [*many, many[0], one, episode("hard", False), broken])
    stage = SftStage(source="accepted", per_prompt=2)
    found = practised.make(storage, spec(stage), 1)
    kept = [*many[:2], one]
    tokens = sum(sum(t.segments[0].loss_mask) for t in kept)
    assert found == {
        "played": 6,  # what broke was no try
        "acceptance_rate": 5 / 6,
        "kept": 3,
        "prompts_kept": 2,
        "tokens_per_prompt": tokens / 2,
    }
    assert practised.summary(storage, 1) == found
    learned = practised.accepted(storage, 1, batch_size=8, seed=0).batch(0)
    assert sorted(t.segments[0].ids for t in learned) == sorted(t.segments[0].ids for t in kept)
    masks = {tuple(t.segments[0].ids): t.segments[0].loss_mask for t in kept}
    assert all(t.segments[0].loss_mask == masks[tuple(t.segments[0].ids)] for t in learned)


def test_where_nothing_is_accepted_nothing_is_kept(storage):
    play(storage, [replace(make_trajectory(random.Random(0), "g"), success=False)])
    found = practised.make(storage, spec(SftStage(source="accepted")), 1)
    assert (found["kept"], found["acceptance_rate"], found["tokens_per_prompt"]) == (0, 0, 0)
    with pytest.raises(FileNotFoundError, match="kept no accepted rollouts"):
        practised.accepted(storage, 1, 8, 0)
    assert practised.summary(storage, 2) is None


def test_every_pair_is_learned_once_an_epoch_in_an_order_of_the_seed(storage):
    pairs = [Pair("invalid_json", f"t{n}", [1, 2], [n + 3], [0]) for n in range(10)]
    path = storage.path("practice/stage-1/pairs.jsonl.zst")
    path.write_bytes(zstandard.compress("\n".join(json.dumps(vars(p)) for p in pairs).encode()))
    kept = practised.Pairs(storage, 1, batch_size=4, seed=0)
    assert kept.all == pairs
    epochs = [[kept.batch(2 * epoch), kept.batch(2 * epoch + 1)] for epoch in range(3)]
    for first, second in epochs:
        assert len({*first, *second}) == 8
    assert epochs[0] != epochs[1]
    assert practised.Pairs(storage, 1, 4, seed=0).batch(5) == kept.batch(5)
    assert practised.Pairs(storage, 1, 4, seed=1).batch(0) != kept.batch(0)
    assert sorted(practised.Pairs(storage, 1, 99, seed=0).batch(7)) == list(range(10))
    with pytest.raises(FileNotFoundError, match="Stage 2 made no pairs"):
        practised.Pairs(storage, 2, 4, 0)


def test_references_are_those_of_the_start_to_the_last_bit(storage):
    assert practised.reference(storage, 1) is None
    given = [(-1.23456789012345678, -0.1), (-3e-17, -800.0)]
    practised.keep_reference(storage, 1, given)
    assert practised.reference(storage, 1) == given


def test_practice_plays_drawn_tasks_of_its_hops_or_any_of_a_dataset():
    drawn, own = PracticeSpec(hops=[2]), PracticeSpec(dataset="ver_0123456789abcdef", tasks=7)
    plays = [practised.practice_play(spec(DpoStage(practice=one)), 1, one) for one in (drawn, own)]
    assert [(one.tasks, one.hops) for one in plays] == [
        ("practice", (2,)), ("ver_0123456789abcdef", None),
    ]  # fmt: skip
    assert plays[1].count == 7


def test_errors_are_counted_on_the_same_held_out_tasks_before_and_after():
    stage = DpoStage(judged_tasks=7)
    before, after = (practised.held_out_play(spec(stage), 1, stage, w) for w in ("b", "a"))
    assert replace(before, folder="") == replace(after, folder="")
    assert before.folder != after.folder
    assert (before.count, before.attempts, before.purpose) == (7, 1, "evaluate")
