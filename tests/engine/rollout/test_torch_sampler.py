"""Our sampler: its log-probs are the trainer's, state is kept, and weights change in between."""

import copy
import math

import pytest
import torch
from torch import Tensor

from engine.models.hybrid import HybridForCausalLM
from engine.models.hybrid.decode import Decoder
from engine.models.logprobs import token_logprobs
from engine.records.trajectory import Segment, StopReason, Trajectory
from engine.rollout.agent_loop import AgentLoop
from engine.rollout.draw import draw
from engine.rollout.torch_sampler import TorchSampler


def trainers_logprobs(model: HybridForCausalLM, segment: Segment, temperature: float) -> Tensor:
    ids = torch.tensor(segment.ids)
    hidden = model.hidden(ids[None])[0, :-1]
    return token_logprobs(hidden, model.embedding.weight, ids[1:], temperature).logprobs.detach()


def play(loop: AgentLoop, steps: int = 10_000) -> list[Trajectory]:
    finished = []
    while loop.active and steps:
        finished += loop.step()
        steps -= 1
    return finished


def count_tokens(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of every pass from now on, both of reading and of decoding."""
    computed: list[int] = []
    hidden, step = HybridForCausalLM.hidden, Decoder.step

    def reading(self, ids, cache, slots, lengths):
        computed.append(int(lengths.sum()))
        return hidden(self, ids, cache, slots, lengths)

    def decoding(self, ids, cache, live=None, prefixes=()):
        computed.append(len(ids) if live is None else int(live.sum()))
        return step(self, ids, cache, live, prefixes)

    monkeypatch.setattr(HybridForCausalLM, "hidden", reading)
    monkeypatch.setattr(Decoder, "step", decoding)
    return computed


@pytest.mark.parametrize(("temperature", "experts"), [(1.0, 1), (0.6, 1), (1.0, 5)])
def test_its_logprobs_are_the_trainers_at_equal_weights(
    world, temperature: float, experts: int
) -> None:
    model = world.policy(experts=experts)
    loop = world.loop(model)
    for number, task in enumerate(world.tasks[:12]):
        loop.submit(task, f"g{number}", copies=1 + number % 4, temperature=temperature)
    trajectories = play(loop)
    assert len(trajectories) == sum(1 + number % 4 for number in range(12))
    assert any(len(one.steps) > 2 for one in trajectories)
    for one in trajectories:
        (segment,) = one.segments
        expected = trainers_logprobs(model, segment, temperature)
        mask = torch.tensor(segment.loss_mask)
        difference = torch.tensor(segment.logprobs)[1:] - expected
        assert float(difference[mask[1:]].abs().max()) < 1e-4


@pytest.mark.parametrize("experts", [1, 5])
def test_tokens_of_a_mixed_trajectory_are_exact_for_the_version_they_record(
    world, experts: int
) -> None:
    """With experts, tokens of an older version may take other ones now: each is read again."""
    versions = [world.policy(seed, experts) for seed in range(4)]
    loop = world.loop(copy.deepcopy(versions[0]))
    for number, task in enumerate(world.tasks[:6]):
        loop.submit(task, f"g{number}", copies=3)
    trajectories = []
    for version in range(1, 4):
        trajectories += play(loop, steps=9)
        loop.sampler.load_weights(version, versions[version].state_dict())
        assert loop.sampler.version == version
    trajectories += play(loop)
    assert any(len({v for v in one.segments[0].versions if v >= 0}) > 1 for one in trajectories)
    for one in trajectories:
        (segment,) = one.segments
        expected = torch.stack([trainers_logprobs(m, segment, 1.0) for m in versions])
        for place, version in enumerate(segment.versions):
            assert (version >= 0) == segment.loss_mask[place]
            if version >= 0:
                difference = segment.logprobs[place] - float(expected[version, place - 1])
                assert abs(difference) < 1e-4


def test_a_turn_costs_only_its_new_tokens_and_a_prompt_is_read_once_a_group(
    world, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = world.policy()
    computed = count_tokens(monkeypatch)
    loop = world.loop(model)
    task = world.tasks[8]
    loop.submit(task, "g", copies=8)
    trajectories = play(loop)
    # All but the last token of a prompt is read once; the last one starts each sequence off.
    prompt = len(world.encode_prompt(task)) - 1
    assert prompt > 8
    after_prompt = sum(len(one.segments[0].ids) - prompt for one in trajectories)
    # The last token of an episode is never read: nothing follows it.
    assert sum(computed) == prompt + after_prompt - len(trajectories)


def test_it_draws_from_the_distribution_that_it_reports(world) -> None:
    model = world.policy()
    sampler = world.sampler(model, capacity=512)
    prompt = world.encode_prompt(world.tasks[0])
    counts: dict[int, int] = {}
    for _ in range(8):
        opened = sampler.open(prompt, 512, 1, 0.8)
        for turn in sampler.step():
            counts[turn.ids[0]] = counts.get(turn.ids[0], 0) + 1
        for sequence in opened:
            sampler.close(sequence)
    logits = model(torch.tensor([prompt])).logits[0, -1].detach()
    p = torch.softmax(logits / 0.8, dim=-1)
    draws = 8 * 512
    likely = p.topk(8)
    for token, chance in zip(likely.indices.tolist(), likely.values.tolist(), strict=True):
        deviation = (chance * (1 - chance) / draws) ** 0.5
        assert abs(counts.get(token, 0) / draws - chance) < 5 * deviation


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_row_that_is_no_distribution_harms_no_other(value: float) -> None:
    logits = torch.randn(3, 12, generator=torch.Generator().manual_seed(0))
    spoilt = logits.clone()
    spoilt[1, 4] = value
    for temperature in (1.0, 0.0):
        drawn = [
            draw(one, [temperature] * 3, torch.Generator().manual_seed(1))
            for one in (logits, spoilt)
        ]
        (tokens, logprobs), (with_it, its_logprobs) = drawn
        assert [with_it[0], with_it[2]] == [tokens[0], tokens[2]]
        assert [its_logprobs[0], its_logprobs[2]] == [logprobs[0], logprobs[2]]
        assert not math.isfinite(its_logprobs[1]) and 0 <= with_it[1] < 12


def test_episodes_of_weights_that_are_no_numbers_end_with_a_word(world) -> None:
    model = world.policy()
    with torch.no_grad():
        model.norm.weight[:] = float("nan")
    loop = world.loop(model)
    loop.submit(world.tasks[0], "g", copies=3)
    trajectories = play(loop)
    assert [one.stop_reason for one in trajectories] == [StopReason.INFRA_ERROR] * 3
    assert all("not finite" in one.reward.problem for one in trajectories)


def test_temperature_zero_takes_the_likeliest_token(world) -> None:
    model = world.policy()
    sampler = world.sampler(model)
    prompt = world.encode_prompt(world.tasks[0])
    sampler.open(prompt, 2, 5, 0.0)
    turns = []
    while len(turns) < 2:
        turns += sampler.step()
    assert turns[0].ids == turns[1].ids
    ids = list(prompt)
    for token, logprob in zip(turns[0].ids, turns[0].logprobs, strict=True):
        log_p = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].detach(), dim=-1)
        assert token == int(log_p.argmax())
        assert logprob == pytest.approx(float(log_p[token]), abs=1e-4)
        ids.append(token)


def test_what_is_drawn_from_a_seed_is_the_same_each_time_and_moves_nothing_else(world) -> None:
    model, prompt = world.policy(), world.encode_prompt(world.tasks[0])

    def play(sampler: TorchSampler) -> list[list[int]]:
        opened = sampler.open(prompt, 4, 6, 1.0)
        turns: dict[int, list[int]] = {}
        while len(turns) < 4:
            turns |= {turn.sequence: turn.ids for turn in sampler.step()}
        for sequence in opened:
            sampler.close(sequence)
        return [turns[sequence] for sequence in opened]

    undisturbed, judged = world.sampler(model), world.sampler(model)
    first = play(undisturbed)
    assert play(judged) == first
    with judged.seeded(7):
        once = play(judged)
    with judged.seeded(7):
        assert play(judged) == once != first
    assert play(judged) == play(undisturbed), "as if nothing had been drawn in between"


def test_it_refuses_sequences_beyond_its_capacity_and_turns_inside_turns(world) -> None:
    sampler = world.sampler(world.policy(), capacity=4)
    prompt = world.encode_prompt(world.tasks[0])
    first, *_ = sampler.open(prompt, 3, 16, 1.0)
    with pytest.raises(RuntimeError, match="2 sequences do not fit: 3 of 4 are open"):
        sampler.open(prompt, 2, 16, 1.0)
    with pytest.raises(RuntimeError, match="inside a turn"):
        sampler.extend(first, [1], 16)


@pytest.mark.parametrize(
    ("ids", "copies", "room", "message"),
    [
        ([], 1, 4, "the prompt is empty"),
        ([3, 12], 1, 4, "token ids from 3 to 12; the model knows 0 to 11"),
        ([3] * 70, 1, 11, "70 tokens and a turn of up to 11; a sequence holds at most 80"),
        ([3], 1, 0, "a turn of up to 0"),
        ([3], 0, 4, "0 sequences of a prompt"),
    ],
)
def test_it_refuses_what_it_cannot_sample(world, ids, copies, room, message: str) -> None:
    sampler = world.sampler(world.policy())
    with pytest.raises(ValueError, match=message):
        sampler.open(ids, copies, room, 1.0)
    assert sampler.step() == []


def test_it_refuses_a_closed_sequence_and_a_turn_beyond_its_room(world) -> None:
    sampler = world.sampler(world.policy())
    first, second = sampler.open([3, 4], 2, 1, 1.0)
    assert len(sampler.step()) == 2
    sampler.close(first)
    for use in (lambda: sampler.extend(first, [1], 4), lambda: sampler.close(first)):
        with pytest.raises(RuntimeError, match=f"sequence {first} is not open"):
            use()
    with pytest.raises(ValueError, match="a context of 63 tokens and a turn of up to 18"):
        sampler.extend(second, [1] * 60, 18)
    sampler.extend(second, [1] * 60, 17)
    assert sampler.step() == []


def test_closing_sequences_before_their_prompt_is_read_harms_nobody(world) -> None:
    sampler = world.sampler(world.policy(), capacity=4)
    prompt = world.encode_prompt(world.tasks[0])
    first, second, third = sampler.open(prompt, 3, 4, 1.0)
    sampler.close(first)
    turns = []
    while len(turns) < 2:
        turns += sampler.step()
    assert {turn.sequence for turn in turns} == {second, third}
    sampler.close(second)
    sampler.close(third)
    assert sampler.step() == []
    assert len(sampler.open(prompt, 4, 4, 1.0)) == 4
