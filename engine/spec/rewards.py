"""What the reward scheme and its use in the stages ask of the other fields."""

from collections.abc import Iterator

from engine.spec.base import Disagreement
from engine.spec.experiment import ExperimentSpec
from engine.spec.rl import RlStage


def disagreements_of(spec: ExperimentSpec) -> Iterator[Disagreement]:
    """Reward terms that could never act, and limits of sampling that nothing reads."""
    longest = spec.environment.max_tokens
    for index, term in enumerate(spec.reward.terms):
        if term.kind != "overlong" or term.budget is None or term.cache is None:
            continue
        if (free := term.budget - term.cache) >= longest:
            yield Disagreement(
                f"The penalty overlong begins above {free} sampled tokens, and a trajectory may "
                f"have {longest} in all: it would never act. Take a smaller budget.",
                (f"reward.terms.{index}.budget", "environment.max_tokens"),
            )
    for index, stage in enumerate(spec.stages):
        if not isinstance(stage, RlStage) or stage.refill_rounds is None:
            continue
        if not stage.needs_spread():
            said = "algorithm" if stage.dynamic_sampling is None else "dynamic_sampling"
            yield Disagreement(
                "Groups with equal rewards are kept here, so that nothing is sampled in their "
                "place: leave refill_rounds empty, or set dynamic_sampling.",
                (f"stages.{index}.refill_rounds", f"stages.{index}.{said}"),
            )
