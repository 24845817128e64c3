"""What no step may depend on, for every preset, in float64: its figures, gradient and weights.

Tolerance 1e-10 where the two ways add the same numbers in another order.
"""

import copy
import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.algorithms import batch
from engine.records.trajectory import Trajectory
from engine.spec import DpoStage, RlStage
from engine.training.trainer import Trainer
from tests.conformance.algorithms.exact import (
    OTHERS,
    STAGES,
    Groups,
    Result,
    assert_equal,
    begun,
    look_one_back,
    make_groups,
    stage_of,
    start,
    step,
)
from tests.engine.training.samples import make_trainer, on_ranks

every_preset = pytest.mark.parametrize("name", [*STAGES, *OTHERS])
of_trajectories = pytest.mark.parametrize(  # a pair has no tokens of the environment's own
    "name", [name for name in (*STAGES, *OTHERS) if not isinstance(OTHERS.get(name), DpoStage)]
)
seeds = st.integers(0, 5)
few = settings(max_examples=2, derandomize=True, deadline=None)


@cache
def expected(name: str, seed: int) -> Result:
    """One step on one rank, all rows in one pass."""
    found = step(begun(name, merge="off", tokens=1000), make_groups(seed))
    assert found[0]["grad_norm"] > 1e-6
    return found


@every_preset
@few
@given(seed=seeds, width=st.sampled_from([1, 48]))
def test_padding_changes_nothing(name: str, seed: int, width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "WIDTH_STEP", width)
        found = step(begun(name, merge="off", tokens=1000), make_groups(seed))
    assert_equal(found, expected(name, seed))


@every_preset
@few
@given(seed=seeds, cut=st.sampled_from([("off", 16), ("off", 60), ("on", 40), ("on", 10_000)]))
def test_the_cut_into_micro_batches_changes_nothing(
    name: str, seed: int, cut: tuple[str, int]
) -> None:
    merge, tokens = cut
    assert_equal(
        step(begun(name, merge=merge, tokens=tokens), make_groups(seed)), expected(name, seed)
    )


@every_preset
@settings(max_examples=2, derandomize=True, deadline=None)
@given(seed=seeds, world=st.sampled_from([2, 3]))
def test_the_number_of_ranks_changes_nothing(name: str, seed: int, world: int) -> None:
    def work(trainer: Trainer) -> Result:
        start(trainer, stage_of(name))
        return step(trainer, make_groups(seed))

    for _, found in on_ranks(world, work, precision="float32", merge="off", tokens=60):
        assert_equal(found, expected(name, seed))


@of_trajectories
@few
@given(seed=seeds, value=st.sampled_from([1e6, float("nan"), float("-inf")]))
def test_values_at_masked_positions_change_nothing(name: str, seed: int, value: float) -> None:
    groups = make_groups(seed)
    for one in _all(groups):
        for segment in one.segments:
            for place, sampled in enumerate(segment.loss_mask):
                if not sampled:
                    segment.logprobs[place] = value
                    segment.versions[place] = 10**6
    assert_equal(step(begun(name, merge="off", tokens=1000), groups), expected(name, seed))


@every_preset
@few
@given(seed=seeds)
def test_the_order_of_samples_changes_nothing(name: str, seed: int) -> None:
    groups = make_groups(seed)
    rng = random.Random(seed)
    rng.shuffle(groups)
    for group in groups:
        rng.shuffle(group)
    assert_equal(step(begun(name), groups), expected(name, seed))


@of_trajectories
@few
@given(seed=seeds)
def test_inserted_observations_change_nothing(name: str, seed: int) -> None:
    """The policy here sees one token back, and what is inserted ends with the token that stood
    there, so that only the algorithm could tell the difference."""
    plain, longer = make_groups(seed), make_groups(seed)
    rng = random.Random(seed)
    for one in _all(longer):
        _insert(one, rng)
    found, known = (
        _of_one_back(step(_looking_one_back(name), one, one_back=True)) for one in (longer, plain)
    )
    assert_equal(found, known)


@every_preset
@settings(max_examples=1, derandomize=True, deadline=None)
@given(seed=seeds)
def test_resuming_changes_nothing(
    name: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder: Path = tmp_path_factory.mktemp("resume") / "step-1"
    whole = begun(name)
    step(whole, make_groups(seed))
    whole.save(folder, {}, {})
    after = step(whole, make_groups(seed + 1))

    resumed = begun(name)
    resumed.load(folder)
    assert (resumed.version, resumed.step) == (1, 1)
    assert_equal(step(resumed, make_groups(seed + 1)), after, tolerance=0.0)


def _all(groups: Groups) -> list[Trajectory]:
    return [one for group in groups for one in group]


def _looking_one_back(name: str) -> Trainer:
    trainer = make_trainer()
    look_one_back(trainer.model)
    trainer.policy.refresh()
    stage = stage_of(name)
    if isinstance(stage, RlStage):  # the second update would see further
        stage = stage.model_copy(update={"epochs": 1, "minibatches": 1})
    start(trainer, stage)
    if trainer.reference is not None:
        look_one_back(trainer.reference)
    return trainer


def _of_one_back(found: Result) -> Result:
    """Without what the cut layers would have added: their weights have gradients all the same."""
    figures, grads, _ = found
    direct = {name: grads[name] for name in ("embedding.weight", "norm.weight")}
    kept = {name: value for name, value in figures.items() if not name.endswith("grad_norm")}
    return kept, direct, {}


def _insert(one: Trajectory, rng: random.Random) -> None:
    """Observations in front of turns; steps move along."""
    old = copy.deepcopy(one.segments[0])
    segment = one.segments[0]
    for step_ in reversed(one.steps):
        at = step_.start
        new = [rng.randrange(40) for _ in range(rng.randint(0, 3))]
        new += [old.ids[at - 1]] if new else []
        for values, filled in (
            (segment.ids, new),
            (segment.loss_mask, [False] * len(new)),
            (segment.logprobs, [9.0] * len(new)),
            (segment.versions, [-1] * len(new)),
        ):
            values[at:at] = filled
        for later in one.steps[step_.index :]:
            later.start += len(new)
            later.stop += len(new)
