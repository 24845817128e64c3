"""Marks, rewinding and forks: what goes on from an earlier boundary equals reading it all again."""

from collections.abc import Sequence

import pytest
import torch

from engine.rollout import torch_sampler
from engine.rollout.sampler import SampledTurn
from engine.rollout.torch_sampler import TorchSampler
from tests.engine.rollout.test_torch_sampler import count_tokens


def finish(sampler: TorchSampler, sequence: int) -> SampledTurn:
    while True:
        for turn in sampler.step():
            if turn.sequence == sequence:
                return turn


def assert_exact(model, context: Sequence[int], turn: SampledTurn) -> None:
    """The turn's log-probs are those of one pass over the context (temperature 1 or 0)."""
    ids = torch.tensor([*context, *turn.ids])
    log_p = torch.log_softmax(model(ids[None]).logits[0].detach(), dim=-1)
    expected = log_p[len(context) - 1 : -1].gather(1, torch.tensor(turn.ids)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(turn.logprobs), expected, atol=1e-4, rtol=0)


@pytest.fixture(params=["copied prompts", "shared prompts"])
def sharing(request, monkeypatch: pytest.MonkeyPatch) -> bool:
    shared: bool = request.param == "shared prompts"
    monkeypatch.setattr(torch_sampler, "SHARE_FROM", 3 if shared else 1000)
    return shared


def test_a_group_reads_its_prompt_once_also_with_new_weights(
    world, sharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, newer = world.policy(0), world.policy(1)
    sampler = world.sampler(model)
    prompt = [3, 4, 5, 6, 7, 8, 9]
    computed = count_tokens(monkeypatch)
    opened = sampler.open(prompt, 4, 5, 0.0)
    turns = {turn.sequence: turn for _ in range(5) for turn in sampler.step()}
    assert computed[0] == 6 and sum(computed) == 6 + 4 * len(turns[opened[0]].ids)
    assert len({tuple(turn.ids) for turn in turns.values()}) == 1
    sampler.load_weights(1, newer.state_dict())
    computed.clear()
    for sequence in opened:
        sampler.extend(sequence, [2, 3], 4)
    again = [turn for _ in range(4) for turn in sampler.step()]
    context = [*prompt, *turns[opened[0]].ids, 2, 3]
    assert sum(computed[:2]) == 6 + 4 * (len(context) - 7)
    assert len(again) == 4
    for turn in again:
        assert_exact(newer, context, turn)


def test_rewinding_goes_on_from_the_boundary_without_reading_it_again(
    world, sharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = world.policy()
    sampler = world.sampler(model)
    first, second = sampler.open([3, 4, 5, 6, 7], 2, 6, 1.0)
    start = [3, 4, 5, 6, 7, *finish(sampler, first).ids]
    mark = sampler.mark(first)
    sampler.extend(first, [2, 8, 8, 1], 6)
    context = [*start, 2, 8, 8, 1]
    turn = finish(sampler, first)
    assert_exact(model, context, turn)
    context += turn.ids
    later = sampler.mark(first)
    sampler.close(second)

    computed = count_tokens(monkeypatch)
    sampler.rewind(first, mark, [2, 4, 1], 6)
    turn = finish(sampler, first)
    assert_exact(model, [*start, 2, 4, 1], turn)
    # The last token before the mark had not been read, nor is the last sampled one.
    assert sum(computed) == 1 + 3 + len(turn.ids) - 1

    # What the later mark stood for was overwritten: it is read again, not taken for granted.
    sampler.rewind(first, later, [1], 3)
    assert_exact(model, [*context, 1], finish(sampler, first))
    sampler.rewind(first, mark, [], 3)
    assert_exact(model, start, finish(sampler, first))


def test_forks_go_on_by_themselves_from_a_mark(world, sharing) -> None:
    model = world.policy()
    sampler = world.sampler(model)
    prompt = [3, 4, 5, 6]
    (first, _) = sampler.open(prompt, 2, 6, 1.0)
    start = [*prompt, *finish(sampler, first).ids]
    mark = sampler.mark(first)
    sampler.extend(first, [2, 5], 6)
    forks = [sampler.fork(first, mark, [2, *extra], 5, 0.0) for extra in ([], [7], [8, 8])]
    context = [*start, 2, 5]
    turns: dict[int, SampledTurn] = {}
    while len(turns) < 4:
        turns |= {turn.sequence: turn for turn in sampler.step()}
    assert_exact(model, context, turns[first])
    for fork, extra in zip(forks, ([], [7], [8, 8]), strict=True):
        assert_exact(model, [*start, 2, *extra], turns[fork])
    sampler.close(first)
    sampler.extend(forks[1], [2], 4)
    assert_exact(model, [*start, 2, 7, *turns[forks[1]].ids, 2], finish(sampler, forks[1]))


def test_a_mark_of_older_weights_is_computed_again(world, sharing) -> None:
    newer = world.policy(1)
    sampler = world.sampler(world.policy(0))
    prompt = [3, 4, 5, 6]
    first, _ = sampler.open(prompt, 2, 6, 1.0)
    begun = sampler.mark(first)
    start = [*prompt, *finish(sampler, first).ids]
    mark = sampler.mark(first)
    sampler.load_weights(1, newer.state_dict())
    fork = sampler.fork(first, mark, [2], 5, 1.0)
    assert_exact(newer, [*start, 2], finish(sampler, fork))
    sampler.rewind(first, mark, [2, 3], 5)
    assert_exact(newer, [*start, 2, 3], finish(sampler, first))
    sampler.rewind(first, begun, [2], 5)
    assert_exact(newer, [*prompt, 2], finish(sampler, first))


def test_states_of_marks_are_bounded_and_the_oldest_are_computed_again(
    world, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = world.policy()
    one = 2 * 4 * 8 * 8 * 4 + 4 * 2 * 4 * 16 * 4  # two states, four tails
    sampler = TorchSampler(model, end_id=0, capacity=2, max_tokens=80, seed=0, mark_bytes=2 * one)
    (sequence,) = sampler.open([3, 4, 5], 1, 3, 1.0)
    context, marks = [3, 4, 5], []
    for _ in range(3):
        context += finish(sampler, sequence).ids
        marks.append((sampler.mark(sequence), list(context)))
        sampler.extend(sequence, [2], 3)
        context += [2]
    finish(sampler, sequence)
    for (mark, before), kept in reversed(list(zip(marks, (False, True, True), strict=True))):
        computed = count_tokens(monkeypatch)
        sampler.rewind(sequence, mark, [1], 3)
        turn = finish(sampler, sequence)
        assert_exact(model, [*before, 1], turn)
        assert sum(computed) == (1 if kept else len(before)) + len(turn.ids)
        monkeypatch.undo()


def test_a_released_mark_and_one_of_another_sequence_are_refused(world) -> None:
    sampler = world.sampler(world.policy())
    first, second = sampler.open([3, 4], 2, 1, 1.0)
    assert len(sampler.step()) == 2
    mark = sampler.mark(first)
    with pytest.raises(RuntimeError, match=f"mark {mark} is of sequence {first}: sequence"):
        sampler.rewind(second, mark, [2], 4)
    with pytest.raises(RuntimeError, match=f"mark {mark} is of sequence {first}"):
        sampler.fork(second, mark, [2], 4, 1.0)
    sampler.release(mark)
    for use in (sampler.release, lambda m: sampler.rewind(first, m, [2], 4)):
        with pytest.raises(RuntimeError, match=f"mark {mark} does not exist or was released"):
            use(mark)
    closed = sampler.mark(second)
    sampler.close(second)
    with pytest.raises(RuntimeError, match=f"mark {closed} does not exist or was released"):
        sampler.rewind(first, closed, [2], 4)
    with pytest.raises(RuntimeError, match=f"sequence {second} is not open: 2 were opened, 1 of"):
        sampler.mark(second)


def test_only_the_boundaries_of_turns_are_marked_and_gone_back_from(world) -> None:
    never = 12  # no token ends a turn
    sampler = TorchSampler(world.policy(), end_id=never, capacity=2, max_tokens=80, seed=0)
    (sequence,) = sampler.open([3, 4], 1, 2, 1.0)
    mark = sampler.mark(sequence)  # the turn has no token yet
    assert sampler.step() == []
    with pytest.raises(RuntimeError, match=f"sequence {sequence} is 1 tokens inside a turn"):
        sampler.mark(sequence)
    with pytest.raises(RuntimeError, match="inside a turn"):
        sampler.rewind(sequence, mark, [2], 4)
    assert len(sampler.step()) == 1
    sampler.rewind(sequence, mark, [2], 4)
