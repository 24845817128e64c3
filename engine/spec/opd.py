"""The stage of on-policy distillation: earlier stages of the run teach the student on its own
samples."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from engine.spec.base import Disagreement, SpecModel, hop_category
from engine.spec.lineage import wrong_source
from engine.spec.optimizer import OptimizerSpec
from engine.spec.sampled import SampledStage
from engine.spec.synthesise import SynthesiseStage

WEIGHTS = (0.5, 5.0)  # importance weights that are let through, as IcePop's


class TeacherSpec(SpecModel):
    """The final weights of an earlier stage, and what they teach."""

    stage: int = Field(ge=0, description="Number of the earlier training stage, from 0 on")
    categories: list[str] = Field(
        [], description="Categories of tasks that it teaches, such as 3 hops; empty: all"
    )
    weight: float = Field(
        1.0, gt=0, description="Of its divergence in the loss, a sum over a task's teachers"
    )

    def teaches(self, category: str) -> bool:
        return not self.categories or category in self.categories


@dataclass(frozen=True)
class Distillation:
    """beta: of the divergence; off_policy_share: of demonstrations among a step's trajectories."""

    beta: float
    off_policy_share: float


PRESETS = {"opd": Distillation(1.0, 0.0), "gkd": Distillation(0.5, 0.5)}  # gkd: 2306.13649


class OpdStage(SampledStage):
    """On-policy distillation of earlier stages into one student, on what it samples itself."""

    kind: Literal["opd"] = "opd"
    algorithm: Literal["opd", "gkd"] = Field(
        "opd",
        description="opd: reverse KL on own samples alone; gkd: Jensen-Shannon divergence, half of "
        "the trajectories demonstrations",
    )
    teachers: list[TeacherSpec] = Field(
        min_length=1, description="Who teaches which tasks; several for one task are added up"
    )
    form: Literal["full_vocabulary", "one_token"] = Field(
        "full_vocabulary",
        description="Divergence over the whole vocabulary, or its estimate from the sampled token, "
        "which is cheaper and noisier",
    )
    beta: float | None = Field(
        None,
        ge=0,
        le=1,
        description="1: reverse KL, 0: forward KL, between: Jensen-Shannon; empty: the algorithm's",
    )
    off_policy_share: float | None = Field(
        None,
        ge=0,
        le=0.9,
        description="Share of demonstrations among a step's trajectories; empty: the algorithm's",
    )
    reward_weight: float = Field(
        0.0, ge=0, description="Weight of the group-normalised reward beside the teachers; 0: none"
    )
    weight_min: float | None = Field(
        None, ge=0, description=f"Smallest importance weight let through; empty: {WEIGHTS[0]:g}"
    )
    weight_max: float | None = Field(
        None, gt=0, description=f"Largest importance weight let through; empty: {WEIGHTS[1]:g}"
    )
    prompts_per_step: int = Field(24, ge=1)
    group_size: int = Field(4, ge=1, description="Trajectories of a task; rewards need two")
    steps: int = Field(40, ge=1)
    optimizer: OptimizerSpec = OptimizerSpec(betas=(0.9, 0.98), clip_norm=0.5, weight_decay=0.0)

    def needs_spread(self) -> bool:
        return False

    def teachers_from(self) -> list[int]:
        return [teacher.stage for teacher in self.teachers]

    def resolved(self) -> Distillation:
        """The algorithm with what this stage says of its own."""
        preset = PRESETS[self.algorithm]
        share = self.off_policy_share
        return Distillation(
            preset.beta if self.beta is None else self.beta,
            preset.off_policy_share if share is None else share,
        )

    @property
    def demonstrations_per_step(self) -> int:
        """Beside all the trajectories that the student samples for a step."""
        share, sampled = self.resolved().off_policy_share, self.prompts_per_step * self.group_size
        return round(sampled * share / (1 - share))

    @property
    def weights(self) -> tuple[float, float]:
        """The importance weights that are let through; others count as 0."""
        low, high = self.weight_min, self.weight_max
        return WEIGHTS[0] if low is None else low, WEIGHTS[1] if high is None else high


def disagreements_of(
    stages: Sequence[SpecModel], index: int, stage: OpdStage, first: SynthesiseStage
) -> Iterator[Disagreement]:
    """Fields of stage `index` that cannot be honoured together."""
    path = f"stages.{index}"
    yield from _of_teachers(stages, index, stage, path)
    yield from _of_form(stage, path)
    if stage.reward_weight and stage.group_size < 2:
        yield Disagreement(
            "A reward teaches by what it is beside the others of its group, and a group of "
            f"{stage.group_size} has none: take at least two, or no reward_weight.",
            (f"{path}.reward_weight", f"{path}.group_size"),
        )
    yield from _of_demonstrations(stage, first, path)


def _of_teachers(
    stages: Sequence[SpecModel], index: int, stage: OpdStage, path: str
) -> Iterator[Disagreement]:
    for number, teacher in enumerate(stage.teachers):
        at = f"{path}.teachers.{number}"
        yield from wrong_source(stages, index, teacher.stage, f"{at}.stage", "learn from")
        if teacher.stage in [other.stage for other in stage.teachers[:number]]:
            yield Disagreement(
                f"Stage {teacher.stage} is a teacher twice: name its categories in one place.",
                (f"{at}.stage",),
            )
    if stage.draws_tasks():
        yield from category_disagreements(stage, [hop_category(hops) for hops in stage.hops], path)


def category_disagreements(
    stage: OpdStage, made: Collection[str], path: str
) -> Iterator[Disagreement]:
    """Where teachers and tasks do not name the same categories. made: those of the stage's tasks,
    which are known from the spec where they are drawn, and else from the rows of its dataset."""
    who, source = (
        ("the stage makes", "hops") if stage.draws_tasks() else ("its dataset has", "dataset")
    )
    for number, teacher in enumerate(stage.teachers):
        if strange := sorted(set(teacher.categories) - set(made)):
            yield Disagreement(
                f"This teacher teaches {' and '.join(strange)}; {who} tasks of "
                f"{' and '.join(made)} only.",
                (f"{path}.teachers.{number}.categories", f"{path}.{source}"),
            )
    untaught = [one for one in made if not any(by.teaches(one) for by in stage.teachers)]
    if untaught:
        yield Disagreement(
            f"Nobody teaches tasks of {' and '.join(untaught)}: give them a teacher, or leave them "
            "out.",
            (f"{path}.teachers", f"{path}.{source}"),
        )


def _of_demonstrations(
    stage: OpdStage, first: SynthesiseStage, path: str
) -> Iterator[Disagreement]:
    share = stage.resolved().off_policy_share
    said = "off_policy_share" if stage.off_policy_share is not None else "algorithm"
    if share and not stage.draws_tasks():
        yield Disagreement(
            f"A share of {share:g} of the trajectories are demonstrations of this stage's tasks, "
            "and those of a dataset have none: take an off_policy_share of 0, or leave dataset "
            "empty.",
            (f"{path}.{said}", f"{path}.dataset"),
        )
    elif share and not any(first.demonstrations.get(str(hops)) for hops in stage.hops):
        yield Disagreement(
            f"A share of {share:g} of the trajectories are demonstrations of this stage's tasks, "
            "and the first stage makes none.",
            (f"{path}.{said}", f"{path}.hops", "stages.0.demonstrations"),
        )


def _of_form(stage: OpdStage, path: str) -> Iterator[Disagreement]:
    how = stage.resolved()
    if stage.form == "one_token":
        if stage.beta not in (None, 1.0) or (stage.algorithm == "gkd" and stage.beta is None):
            said = "algorithm" if stage.beta is None else "beta"
            yield Disagreement(
                f"One token estimates the reverse KL, beta 1, and no divergence of beta "
                f"{how.beta:g}: take the form full_vocabulary.",
                (f"{path}.{said}", f"{path}.form"),
            )
        if how.off_policy_share:
            said = "off_policy_share" if stage.off_policy_share is not None else "algorithm"
            yield Disagreement(
                "One token is an estimate where the student sampled it, which it did not in "
                "demonstrations: take the form full_vocabulary, or an off_policy_share of 0.",
                (f"{path}.{said}", f"{path}.form"),
            )
    elif not stage.reward_weight:
        for name in ("weight_min", "weight_max"):
            if getattr(stage, name) is not None:
                yield Disagreement(
                    f"A divergence over the whole vocabulary has no importance weight, so that "
                    f"{name} is not read: leave it empty.",
                    (f"{path}.{name}", f"{path}.form"),
                )
    low, high = stage.weights
    if low > high:
        yield Disagreement(
            f"No importance weight lies between {low:g} and {high:g}.",
            (f"{path}.weight_min", f"{path}.weight_max"),
        )
