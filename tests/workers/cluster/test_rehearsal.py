"""A dry run's stand-ins teach under every advantage, whatever the policy did."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from engine.algorithms.advantages import advantages
from engine.pool.group import pack
from engine.records.trajectory import Reward, Step, StopReason, Trajectory
from engine.spec import DpoStage, ExperimentSpec, RlStage, SftStage, SynthesiseStage
from engine.spec.algorithms import PRESETS, Advantage, Preset
from engine.synthesis import Tokenizer
from engine.training.credit import turn_rewards
from engine.training.preference import preference_step, references
from engine.training.reinforcement import rl_step
from tests.engine.training.samples import FLAT, make_trainer, make_trajectory
from workers.cluster import practised, rehearsal, synthesised
from workers.cluster.played import Played
from workers.cluster.rehearsal import RehearsalError, check_step, spread
from workers.cluster.storage import RunStorage

KINDS: list[Advantage] = [
    "group_normalised", "group_centred", "leave_one_out", "batch_centred", "batch_whitened",
    "group_batch_whitened",
]  # fmt: skip


def group(number: int, size: int, reward: Reward, reason: StopReason) -> list[Trajectory]:
    one = make_trajectory(random.Random(number), f"g{number}")
    graded = [Step(0, 0, 2, 4, "a call", reward=0.0)]
    return [
        replace(
            one, id=f"{number}-{place}", group_id=f"g{number}", reward=reward, stop_reason=reason,
            steps=graded,
        )
        for place in range(size)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        (Reward(0.0, True), StopReason.ANSWERED),
        (Reward(None, False), StopReason.TIMED_OUT),
        (Reward(1.0, True), StopReason.MAX_CALLS),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_groups_that_teach_nothing_do(reward: Reward, reason: StopReason, size: int) -> None:
    groups = [pack(n, 3, group(n, size, reward, reason), 1.0, frozenset("a")) for n in range(2)]
    found = spread(groups)
    rewards = [list(one.rewards) for one in found]
    assert {value for one in rewards for value in one} == {0.0, 1.0}
    assert [(one.id, one.ticket, one.stored) for one in found] == [
        (one.id, one.ticket, one.stored) for one in groups
    ]
    played = [one for of in found for one in of.trajectories()]
    assert not any(one.stop_reason.is_truncated for one in played)
    assert {sum(turn_rewards(one)) for one in played} == {0.0, 1.0}
    for kind in KINDS:
        if size > 1 or kind.startswith("batch"):
            assert any(any(one) for one in advantages(kind, rewards, [[3] * size] * 2)), kind


@pytest.mark.parametrize("algorithm", sorted(PRESETS))
def test_every_algorithm_takes_its_step_on_groups_that_are_all_failed(algorithm: Preset) -> None:
    trainer = make_trainer()
    trainer.begin(RlStage(algorithm=algorithm, steps=1, optimizer=FLAT, dynamic_sampling=False))
    failed = [group(n, 4, Reward(0.0, True), StopReason.MAX_CALLS) for n in range(2)]
    groups = spread([pack(n, 0, one, 1.0) for n, one in enumerate(failed)])
    figures = rl_step(trainer, [one.trajectories() for one in groups])
    check_step(figures, 1, "rl")
    assert trainer.version == 1


def test_a_step_without_an_update_is_named() -> None:
    check_step({"loss": 0.5, "reward_mean": 0.0}, 1, "rl")
    with pytest.raises(RehearsalError, match="Stage 2 .rl. took no optimiser step"):
        check_step({"reward_mean": 0.0, "zero_variance_share": 1.0}, 2, "rl")


@pytest.mark.parametrize("stage", [SftStage(source="accepted"), DpoStage()])
def test_demonstrations_stand_in_for_practice_that_gave_nothing(
    tmp_path: Path, stage: SftStage | DpoStage
) -> None:
    storage = RunStorage(str(tmp_path))
    spec = ExperimentSpec(name="small", stages=[SynthesiseStage(), stage])
    source = random.Random(1)
    shown = [make_trajectory(source, "d") for _ in range(12)]
    folder = storage.path(synthesised.FOLDER)
    folder.mkdir(parents=True)
    synthesised.write_demonstrations(folder, shown)
    Tokenizer.train(["where is it", "there"], 320).save(folder / "tokenizer")
    Played(storage, "practice/stage-1/played").flush()
    what = "kept" if isinstance(stage, SftStage) else "pairs"
    assert practised.make(storage, spec, 1)[what] == 0
    assert practised.make(storage, spec, 1, rehearses=True)[what] > 0
    if isinstance(stage, SftStage):
        learned = practised.accepted(storage, 1, batch_size=8, seed=0).batch(0)
        assert len(learned) == rehearsal.MOST
    else:
        pairs = practised.Pairs(storage, 1, batch_size=4, seed=0).all
        assert all(pair.prefix and pair.chosen[0] != pair.rejected[0] for pair in pairs)
        trainer = make_trainer()
        learning = DpoStage(steps=1, optimizer=FLAT)
        trainer.begin(learning)
        found = preference_step(trainer, pairs, references(trainer, pairs, learning), learning)
        check_step(found, 1, "dpo")
