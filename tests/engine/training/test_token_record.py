"""What is recorded of each token is what the loss used: against a recomputation by hand."""

import math
import random
from typing import Any

import pytest
import torch

from engine.records.trained import COLUMNS, StoredTrained, encode_trained
from engine.records.trajectory import StopReason, Trajectory
from engine.spec import RlStage
from engine.training.distillation import opd_step
from engine.training.reinforcement import rl_step
from engine.training.token_record import TokenRecord
from engine.training.trainer import Trainer
from tests.engine.training.samples import FLAT, make_groups, make_trainer, on_ranks
from tests.engine.training.test_distillation import make_lessons, make_teachers, opd

Table = dict[tuple[str, int, int], dict[str, float]]  # (trajectory, segment, token) -> columns


def named(groups: list[list[Trajectory]], forked: bool = False) -> list[list[Trajectory]]:
    """Trajectories with ids of their own; `forked`: some have a second segment."""
    rng = random.Random(3)
    for g, group in enumerate(groups):
        for i, one in enumerate(group):
            one.id = f"{g}-{i}"
            if forked and i % 2:
                extra = make_groups(rng.randrange(99), 1, 1)[0][0].segments[0]
                extra.parent = 0
                one.segments = [one.segments[0], extra]
    return groups


def step(
    trainer: Trainer, groups: list[list[Trajectory]], **fields: Any
) -> tuple[Table, TokenRecord]:
    trainer.begin(RlStage(**{"steps": 20, "optimizer": FLAT, **fields}))
    record = TokenRecord(lambda name: True)
    rl_step(trainer, groups, record)
    return table(record), record


def table(record: TokenRecord) -> Table:
    """By token, as it is read back from the bytes that are stored."""
    found: Table = {}
    for item in record.trained(7, 3):
        data = encode_trained(item)
        source = StoredTrained(lambda start, length, d=data: d[start : start + length], len(data))
        for segment, start, stop in item.spans:
            part = source.part(segment, start, stop)
            for place in range(stop - start):
                columns = {name: values[place] for name, values in part.items()}
                found[item.trajectory, segment, start + place] = columns
    return found


def policy(trainer: Trainer, one: Trajectory, segment: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of the ids after the first, and entropies [tokens - 1] from all logits."""
    ids = torch.tensor([one.segments[segment].ids])
    with torch.no_grad():
        hidden = trainer.model.routed(ids).hidden[0, :-1]
        spread = torch.log_softmax(hidden @ trainer.model.head_weight.T, dim=-1).double()
    return spread.gather(1, ids[0, 1:, None])[:, 0], -(spread.exp() * spread).sum(-1)


def sampled(groups: list[list[Trajectory]]) -> set[tuple[str, int, int]]:
    return {
        (one.id, number, place)
        for group in groups
        for one in group
        for number, segment in enumerate(one.segments)
        for place, kept in enumerate(segment.loss_mask)
        if kept
    }


def spread_of(group: list[Trajectory]) -> bool:
    return len({one.reward.value for one in group}) > 1


@pytest.mark.parametrize("merge", ["off", "on"])
@pytest.mark.parametrize("loss", ["cispo", "ppo"])
def test_each_token_has_what_the_loss_used(loss: str, merge: str) -> None:
    groups = named(make_groups(), forked=True)
    trainer = make_trainer(merge=merge, tokens=64)
    before = make_trainer()
    fields: dict[str, Any] = {"algorithm": "cispo"} if loss == "cispo" else {"algorithm": "grpo"}
    found, _ = step(trainer, groups, **fields)
    bounds = RlStage(**fields).resolved().bounds
    taught = [group for group in groups if spread_of(group)]
    assert set(found) == sampled(taught)
    clips = set()
    for group in taught:
        rewards = [one.reward.value or 0.0 for one in group]
        mean = sum(rewards) / len(rewards)
        deviation = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
        for one in group:
            for number, segment in enumerate(one.segments):
                logprobs, entropies = policy(before, one, number)
                for place in (p for p, kept in enumerate(segment.loss_mask) if kept):
                    got = found[one.id, number, place]
                    logprob = float(logprobs[place - 1])
                    ratio = math.exp(logprob - segment.logprobs[place])
                    advantage = got["advantage"]
                    expected = ((one.reward.value or 0.0) - mean) / deviation
                    assert advantage == pytest.approx(expected, rel=1e-4)
                    assert got["logprob"] == pytest.approx(logprob, abs=2e-5)
                    assert got["entropy"] == pytest.approx(float(entropies[place - 1]), abs=2e-5)
                    assert got["weight"] == pytest.approx(ratio, rel=1e-4)
                    # What is derived follows from what is recorded, to the last bit.
                    assert got["weight"] == pytest.approx(
                        math.exp(got["logprob"] - float(torch.tensor(segment.logprobs[place]))),
                        rel=1e-6,
                    )
                    if loss == "cispo":
                        clipped = int(got["weight"] > bounds["weight_max"])
                    else:
                        up = advantage > 0 and got["weight"] > 1 + bounds["eps_high"]
                        clipped = int(up) - int(
                            advantage < 0 and got["weight"] < 1 - bounds["eps_low"]
                        )
                    assert got["clipped"] == clipped
                    assert got["passes"] == 1
                    clips.add(clipped)
    assert len(clips) > 1  # bounds were met


def test_ranks_and_cuts_record_the_same() -> None:
    fields = {"algorithm": "grpo", "anchor": "old", "epochs": 2, "minibatches": 2}
    alone, _ = step(make_trainer(merge="off"), named(make_groups(), True), **fields)
    merged, _ = step(make_trainer(merge="on", tokens=64), named(make_groups(), True), **fields)

    def work(trainer: Trainer) -> Table:
        return step(trainer, named(make_groups(), True), **fields)[0]

    ranks = [found for _, found in on_ranks(2, work, merge="on", tokens=64)]
    for other in (merged, *ranks):
        assert set(other) == set(alone)
        for token, columns in alone.items():
            assert other[token] == pytest.approx(columns, rel=1e-3, abs=1e-4)
    assert ranks[0] == ranks[1]


def test_of_several_passes_the_last_is_kept_and_all_are_counted() -> None:
    groups = named(make_groups())
    twice = make_trainer()
    found, _ = step(twice, groups, algorithm="grpo", anchor="old", epochs=2)
    once = make_trainer()
    first, _ = step(once, groups, algorithm="grpo", anchor="old")  # has the second one's weights
    for group in filter(spread_of, groups):
        for one in group:
            logprobs, _ = policy(once, one, 0)
            for place in (p for p, kept in enumerate(one.segments[0].loss_mask) if kept):
                got, before = found[one.id, 0, place], first[one.id, 0, place]
                assert got["passes"] == 2
                assert got["logprob"] == pytest.approx(float(logprobs[place - 1]), abs=1e-4)
                moved = math.exp(got["logprob"] - before["logprob"])  # against the first update
                assert got["weight"] == pytest.approx(moved, rel=1e-4)


def test_what_a_correction_masks_is_said() -> None:
    fields = {"loss": "reinforce", "correction": "icepop", "weight_min": 0.2, "weight_max": 2.0}
    found, _ = step(make_trainer(), named(make_groups()), **fields)
    sides = set()
    for columns in found.values():
        outside = int(columns["weight"] > 2.0) - int(columns["weight"] < 0.2)
        assert columns["clipped"] == outside
        assert columns["correction"] == (0.0 if outside else columns["weight"])
        sides.add(outside)
    assert len(sides) > 1


def test_a_correction_taken_before_the_first_update_is_recorded_with_its_bounds() -> None:
    fields = {"algorithm": "grpo", "anchor": "old", "correction": "truncated", "epochs": 2}
    found, record = step(make_trainer(), named(make_groups()), **fields)
    cap = RlStage(**fields).resolved().correction_bounds["weight_max"]
    assert any(columns["correction"] == pytest.approx(cap) for columns in found.values())
    for columns in found.values():
        assert columns["correction"] <= cap * (1 + 1e-6)
        if columns["correction"] == pytest.approx(cap, rel=1e-6):
            assert columns["clipped"] == 1


def test_a_loss_without_a_ratio_has_no_importance_weight() -> None:
    found, _ = step(
        make_trainer(), named(make_groups()), algorithm="reinforce_pp", loss="reinforce"
    )
    columns = set(next(iter(found.values())))
    assert columns == {"passes", "logprob", "entropy", "advantage"} < set(COLUMNS)


def test_what_was_left_out_says_why() -> None:
    groups = named(make_groups(groups=3))
    for one in groups[0]:
        one.reward.value = 1.0
    groups[1][0].reward.value, groups[1][0].reward.valid = None, False
    groups[1][1].stop_reason = StopReason.MAX_TOKENS
    groups[1][2].segments[0].loss_mask = [False] * len(groups[1][2].segments[0].ids)
    groups[2][0].reward.value, groups[2][1].reward.value = 0.0, 1.0
    _, record = step(make_trainer(), groups, algorithm="grpo", mask_truncated=True)
    why = {item.trajectory: item.left_out for item in record.trained(7, 3)}
    assert {why[one.id] for one in groups[0]} == {"no_advantage"}
    assert [why[one.id] for one in groups[1][:3]] == ["invalid_reward", "truncated", "no_tokens"]
    assert why["2-0"] == why["2-1"] == ""
    assert {(item.step, item.version) for item in record.trained(7, 3)} == {(7, 3)}


def test_only_what_is_wanted_is_kept() -> None:
    trainer, groups = make_trainer(), named(make_groups())
    trainer.begin(RlStage(steps=20, optimizer=FLAT, algorithm="grpo"))
    record = TokenRecord(lambda name: name.endswith("-1"))
    rl_step(trainer, groups, record)
    assert {item.trajectory for item in record.trained(0, 0)} == {f"{g}-1" for g in range(5)}


def test_recording_changes_nothing() -> None:
    plain, told = make_trainer(), make_trainer()
    plain.begin(RlStage(steps=20, optimizer=FLAT, algorithm="grpo"))
    expected = rl_step(plain, named(make_groups()))
    trainer_figures = {}
    told.begin(RlStage(steps=20, optimizer=FLAT, algorithm="grpo"))
    trainer_figures = rl_step(told, named(make_groups()), TokenRecord(lambda name: True))
    assert trainer_figures == expected
    for name, weight in plain.weights().items():
        assert torch.equal(weight, told.weights()[name])


def test_distillation_records_the_advantage_that_teachers_give() -> None:
    trainer, teachers = make_trainer(merge="on", tokens=64), make_teachers()
    groups, _ = make_lessons()
    named(groups)
    stage, before = opd(form="one_token"), make_trainer()
    trainer.begin(stage)
    record = TokenRecord(lambda name: True)
    opd_step(trainer, teachers, groups, record=record)
    found = table(record)
    assert set(found) == sampled(groups)
    for one in (one for group in groups for one in group):
        segment = one.segments[0]
        ids = torch.tensor([segment.ids])
        logprobs, entropies = policy(before, one, 0)
        advantage = torch.zeros_like(logprobs)
        for teacher in (t for t in teachers if t.spec.teaches(one.category)):
            log_p = torch.log_softmax(teacher.model(ids).logits[0, :-1], dim=-1)
            told = log_p.gather(1, ids[0, 1:, None])[:, 0]
            advantage += teacher.spec.weight * (told - logprobs)
        for place in (p for p, kept in enumerate(segment.loss_mask) if kept):
            got = found[one.id, 0, place]
            ratio = math.exp(float(logprobs[place - 1]) - segment.logprobs[place])
            assert got["advantage"] == pytest.approx(float(advantage[place - 1]), abs=1e-4)
            assert got["entropy"] == pytest.approx(float(entropies[place - 1]), abs=2e-5)
            assert got["weight"] == pytest.approx(ratio, rel=1e-4)
            assert got["correction"] == (got["weight"] if 0.5 <= got["weight"] <= 5.0 else 0.0)


def test_a_divergence_over_the_vocabulary_has_no_advantage_to_record() -> None:
    trainer = make_trainer()
    trainer.begin(opd())
    record = TokenRecord(lambda name: True)
    opd_step(trainer, make_teachers(), named(make_lessons()[0]), record=record)
    columns = set(next(iter(table(record).values())))
    assert columns == {"passes", "logprob", "entropy"}
