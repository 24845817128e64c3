"""Which algorithms fit a model, a cluster and a context length, what breaks, and which to take."""

from dataclasses import dataclass

from engine.planner.architecture import Architecture
from engine.planner.cases import Asked, Broken, Case, broken, case_of
from engine.planner.changes import Fix, fixes
from engine.planner.configs import ConfigError
from engine.planner.devices import Cluster
from engine.planner.needs import NEEDS
from engine.planner.parameters import parameters

SMALL = 10e9  # parameters up to which a critic is affordable and groups sample quickly
LONG = 16_384  # tokens from which one advantage for a whole trajectory says little


@dataclass(frozen=True)
class Verdict:
    """One algorithm: its case, what of it does not fit, and what would help."""

    case: Case
    broken: Broken | None
    fixes: tuple[Fix, ...]

    @property
    def algorithm(self) -> str:
        return self.case.algorithm

    @property
    def fits(self) -> bool:
        return self.broken is None


@dataclass(frozen=True)
class Advice:
    """suggested: an algorithm of practice, None where none can be made to fit; reason: why, of
    REASONS; verdicts in the order of NEEDS."""

    verdicts: tuple[Verdict, ...]
    suggested: str | None
    reason: str

    def of(self, algorithm: str) -> Verdict:
        """The verdict on one algorithm."""
        return next(one for one in self.verdicts if one.algorithm == algorithm)


REASONS = {
    "small_long": "The model is small and trajectories are long: a critic fits and judges every "
    "token of them. Without one, take GRPO.",
    "small": "The model is small: GRPO needs no critic and half of the training time; PPO where "
    "credit inside a trajectory matters and its critic fits.",
    "large": "The model is large: there is no critic and no reference to hold, and tokens that "
    "went off policy keep their gradient. REINFORCE++ where groups are too dear: it whitens over "
    "the batch.",
    "none": "No algorithm fits, whatever is changed: take a smaller model, a shorter context or "
    "more devices.",
}


def advise(actor: Architecture, cluster: Cluster, asked: Asked) -> Advice:
    """Verdicts on all algorithms, and a suggestion among those of practice, by the model's size.

    DPO and OPD are for other ends (local faults of form; merging domains), which a person knows
    and a planner does not: they are judged, never suggested. Raises ConfigError for figures that
    contradict each other.
    """
    if not 1 <= asked.sampled <= asked.context:
        raise ConfigError(
            f"{asked.sampled:,} sampled tokens do not go into a context of {asked.context:,}."
        )
    verdicts = []
    for name in NEEDS:
        case = case_of(name, actor, cluster, asked)
        wrong = broken(case.memory, cluster)
        verdicts.append(Verdict(case, wrong, tuple(fixes(case)) if wrong else ()))
    suggested, reason = _suggest(actor, asked, tuple(verdicts))
    return Advice(tuple(verdicts), suggested, reason)


def _suggest(
    actor: Architecture, asked: Asked, verdicts: tuple[Verdict, ...]
) -> tuple[str | None, str]:
    """The first that fits as asked, else the first that can be made to fit."""
    if parameters(actor).total > SMALL:
        order = [("cispo", "large"), ("reinforce_pp", "large")]
    elif asked.context >= LONG:
        order = [("ppo", "small_long"), ("grpo", "small")]
    else:
        order = [("grpo", "small"), ("ppo", "small")]
    by_name = {one.algorithm: one for one in verdicts}
    fitting = [choice for choice in order if by_name[choice[0]].fits]
    helped = [choice for choice in order if by_name[choice[0]].fixes]
    return next(iter([*fitting, *helped]), (None, "none"))
