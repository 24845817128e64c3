"""Context edits: a trajectory in several segments is still one trajectory.

After an edit the context is no extension of the old one; a new segment holds it as the model saw
it, and the tokens that were sampled there. Each sampled token is trained on once, in the segment
that sampled it.
"""

import copy
import random
from typing import Any

import pytest

from engine.evaluation.outcomes import outcome
from engine.records.trajectory import Segment, Step, Trajectory
from engine.spec import RlStage
from engine.training.reinforcement import rl_step
from engine.training.rl_batch import gather
from engine.training.supervised import sft_step
from tests.conformance.algorithms.exact import (
    STAGES,
    Groups,
    assert_equal,
    assert_same_gradient,
    begun,
    by_hand,
    finished,
    make_groups,
    rl_stage_of,
    say,
    start,
    step,
    write,
)
from tests.engine.training.samples import SFT, VOCABULARY, gradients, make_trainer

every_preset = pytest.mark.parametrize("name", STAGES)


def cut_at_turns(groups: Groups) -> Groups:
    """Every turn in a segment of its own, after the whole context that stood before it."""
    for one in (one for group in groups for one in group):
        (whole,) = one.segments
        one.segments = [_until(whole, step_, index) for index, step_ in enumerate(one.steps)]
        for index, step_ in enumerate(one.steps):
            step_.segment = index
    return groups


def _until(whole: Segment, step_: Step, index: int) -> Segment:
    size = step_.stop
    inside = [step_.start <= place < size for place in range(size)]
    return Segment(
        whole.ids[:size],
        [a and b for a, b in zip(whole.loss_mask[:size], inside, strict=True)],
        whole.logprobs[:size],
        whole.versions[:size],
        parent=index - 1 if index else None,
    )


@every_preset
def test_a_cut_without_an_edit_changes_neither_loss_nor_gradient(name: str) -> None:
    whole = step(begun(name, merge="off"), make_groups(7))
    cut = step(begun(name, merge="off"), cut_at_turns(make_groups(7)))
    assert_equal(cut, whole)


@every_preset
@pytest.mark.parametrize("how", [("off", 16), ("on", 200)])
def test_segments_may_fall_into_different_passes(name: str, how: tuple[str, int]) -> None:
    merge, tokens = how
    found = step(begun(name, merge=merge, tokens=tokens), cut_at_turns(make_groups(8)))
    assert_equal(found, step(begun(name, merge="off"), make_groups(8)))


def edited(rng: random.Random, group: str, reward: float) -> Trajectory:
    """Looks at something, sums it up in its own words, and goes on from the summary alone.

    The summary is the policy's where it was written and the environment's where it reappears."""
    first = Segment([], [], [], [])
    write(first, [1, 2, 3])
    say(first, [4, 5], [-3.0, -4.0])
    write(first, [rng.randrange(VOCABULARY) for _ in range(6)])
    summary = [rng.randrange(VOCABULARY) for _ in range(3)]
    say(first, summary, [-3.5, -3.6, -3.7])
    second = Segment([], [], [], [], parent=0)
    write(second, [1, 2, 3, *summary])
    say(second, [rng.randrange(VOCABULARY) for _ in range(4)], [-3.9] * 4)
    steps = [Step(0, 0, 3, 5, ""), Step(1, 0, 11, 14, ""), Step(2, 1, 6, 10, "")]
    return finished([first, second], steps, group, reward, f"{rng.random()}")


def plain(rng: random.Random, group: str, reward: float) -> Trajectory:
    only = Segment([], [], [], [])
    write(only, [1, 2, 3])
    say(only, [rng.randrange(VOCABULARY) for _ in range(3)], [-3.3] * 3)
    return finished([only], [Step(0, 0, 3, 6, "")], group, reward, f"{rng.random()}")


def mixed_group() -> list[Trajectory]:
    rng = random.Random(0)
    return [edited(rng, "g", 1.0), plain(rng, "g", 0.0), plain(rng, "g", 0.0)]


def test_each_sampled_token_is_trained_on_once() -> None:
    group = mixed_group()
    found = gather([group])
    assert found is not None
    assert found.batch.loss_tokens == sum(one.sampled_tokens for one in group) == 9 + 3 + 3
    assert rl_step(begun("dapo"), [group])["loss_tokens"] == 15


def test_statistics_of_a_group_are_over_trajectories() -> None:
    """The edited one has two segments and one reward: advantages are 2/3, -1/3, -1/3."""
    group = mixed_group()
    trainer = begun("dr_grpo")
    longest = trainer.spec.environment.max_tokens
    found = step(trainer, [group])
    advantage = [2 / 3, 2 / 3, -1 / 3, -1 / 3]
    segments = [segment for one in group for segment in one.segments]
    loss, known = by_hand(
        begun("dr_grpo"),
        [
            (segment, _surrogate(a, 1 / (3 * longest)))
            for segment, a in zip(segments, advantage, strict=True)
        ],
    )
    assert found[0]["loss"] == pytest.approx(loss, abs=1e-10)
    assert_same_gradient(found[1], known)


def _surrogate(advantage: float, weight: float) -> Any:
    def per_token(p: Any, mu: Any) -> Any:
        ratio = (p - mu).exp()
        clipped = ratio.clamp(0.8, 1.2) * advantage
        return -weight * (ratio * advantage).minimum(clipped).sum()

    return per_token


def test_the_unit_of_a_sequence_mean_is_the_trajectory() -> None:
    """Both segments of the edited one share its 9 tokens, and its third of the loss."""
    group = mixed_group()
    found = step(begun("grpo"), [group])
    deviation = (1 / 3) ** 0.5 + 1e-6
    parts = zip(
        [segment for one in group for segment in one.segments],
        [2 / 3, 2 / 3, -1 / 3, -1 / 3],
        [9, 9, 3, 3],
        strict=True,
    )
    loss, known = by_hand(
        begun("grpo"),
        [(segment, _surrogate(a / deviation, 1 / (3 * size))) for segment, a, size in parts],
    )
    assert found[0]["loss"] == pytest.approx(loss, abs=1e-10)
    assert_same_gradient(found[1], known)


@pytest.mark.parametrize("name", ["gspo", "geometric", "drift"])
def test_ratios_of_a_sequence_are_over_all_its_segments(name: str) -> None:
    """Also where one of them has nothing to teach: a turn's advantage may be exactly 0."""
    for by_turn in (False, True):
        results = []
        for cut in (False, True):
            groups = make_groups(9)
            if by_turn:
                _silence_first_turns(groups)
            trainer = make_trainer(merge="off")
            stage = rl_stage_of(name)
            if by_turn:
                stage = stage.model_copy(update={"advantage": "turn_reward_to_go"})
            start(trainer, stage)
            results.append(step(trainer, cut_at_turns(groups) if cut else groups))
        assert_equal(*results)


def _silence_first_turns(groups: Groups) -> None:
    """From the first turn on all trajectories of a group still earn the same."""
    for group in groups:
        for index, one in enumerate(group):
            value = float(index % 2) if len(one.steps) > 1 else 0.0
            parts = [-value, *[0.0] * (len(one.steps) - 2), value]
            for step_, part in zip(one.steps, parts if len(one.steps) > 1 else [0.0], strict=True):
                step_.reward = part


def test_supervised_learning_takes_segments_as_they_are() -> None:
    group = mixed_group()
    trainer = make_trainer()
    trainer.begin(SFT)
    figures = sft_step(trainer, group)
    segments = [segment for one in group for segment in one.segments]
    loss, known = by_hand(
        make_trainer(), [(segment, lambda p, _: -p.sum() / 15) for segment in segments]
    )
    assert figures["loss"] == pytest.approx(loss, abs=1e-10)
    assert_same_gradient(gradients(trainer), known)


def test_lengths_count_sampled_tokens_once_and_the_longest_context() -> None:
    one = outcome(mixed_group()[0], 0)
    assert (one.sampled_tokens, one.context_tokens) == (9, 14)


def test_a_list_of_one_segment_is_the_trajectory_itself() -> None:
    groups = make_groups(3)
    again = copy.deepcopy(groups)
    stage = RlStage(algorithm="cispo", steps=20)
    results = []
    for given in (groups, again):
        trainer = make_trainer()
        start(trainer, stage)
        results.append(step(trainer, given))
    assert_equal(*results, tolerance=0.0)
