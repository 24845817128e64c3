"""A step of on-policy distillation: teachers mark the tokens that the student sampled.

Teachers run first, one after the other and each on its own rows; only their last hidden states are
kept. The student's passes then turn these to distributions a few rows at a time, with one teacher's
head after the other, so that what is in memory does not grow with the vocabulary or the teachers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engine.algorithms.advantages import group_normalised
from engine.algorithms.batch import collate
from engine.algorithms.corrections import correction_weights
from engine.algorithms.distillation import divergence, one_token_advantages
from engine.algorithms.statistics import off_policy_statistics
from engine.algorithms.tokens import Terms
from engine.models.logprobs import TokenLogProbs, token_logprobs
from engine.records.trajectory import Segment, Trajectory
from engine.spec.opd import OpdStage
from engine.training.rl_batch import reward_figures
from engine.training.teachers import Teacher
from engine.training.token_record import TokenRecord
from engine.training.trainer import Seen, Trainer

LOG_RATIO_CAP = 2.0  # beyond it a teacher and the student tell different stories of a token

_FIGURES = ("divergence", "agreement", "entropy_gap", "far_share")


def opd_step(
    trainer: Trainer,
    teachers: Sequence[Teacher],
    groups: Sequence[Sequence[Trajectory]],
    demonstrations: Sequence[Trajectory] = (),
    record: TokenRecord | None = None,
) -> dict[str, float]:
    """One step of the stage on groups of the student's own trajectories; its figures.

    demonstrations: trajectories of somebody else among those of the step; only a divergence over
    the whole vocabulary can learn from them. record: is told what the loss sees of each token.
    A batch without a token in the loss makes no update, yet counts as a step.

    Raises ValueError for a token of a version that does not exist yet.
    """
    stage = trainer.stage
    if not isinstance(stage, OpdStage):
        raise RuntimeError("opd_step needs a stage of kind opd: call begin first")
    figures = reward_figures(groups)
    rows = _rows(groups, demonstrations, stage.reward_weight)
    if not rows:
        trainer.skip_step()
        return figures
    step = _Step(trainer, stage, teachers, rows, record)
    figures |= step.learn()
    trainer.version += 1
    return figures


@dataclass(frozen=True)
class _Row:
    """A segment with a token in the loss. advantage: of its trajectory's reward."""

    name: tuple[str, int]  # of its trajectory, and its number there
    segment: Segment
    group: int
    category: str
    advantage: float
    sampled: bool  # by the student


def _rows(
    groups: Sequence[Sequence[Trajectory]],
    demonstrations: Sequence[Trajectory],
    reward_weight: float,
) -> list[_Row]:
    found = []
    for number, group in enumerate(groups):
        values = [0.0] * len(group)
        if reward_weight:
            rewards = [one.trainable_reward for one in group]
            values = [reward_weight * value for value in group_normalised(rewards)]
        for one, value in zip(group, values, strict=True):
            found += _of_one(one, number, value, True)
    for number, one in enumerate(demonstrations, start=len(groups)):
        found += _of_one(one, number, 0.0, False)
    return found


def _of_one(one: Trajectory, group: int, advantage: float, sampled: bool) -> list[_Row]:
    return [
        _Row((one.id, place), segment, group, one.category, advantage, sampled)
        for place, segment in enumerate(one.segments)
        if any(segment.loss_mask)
    ]


class _Step:
    """`taught` [teachers, rows]: the weight of each teacher's divergence on each row."""

    def __init__(
        self,
        trainer: Trainer,
        stage: OpdStage,
        teachers: Sequence[Teacher],
        rows: Sequence[_Row],
        record: TokenRecord | None,
    ) -> None:
        self._trainer, self._stage, self._teachers = trainer, stage, teachers
        self._record, self._names = record, [row.name for row in rows]
        self._batch = collate([row.segment for row in rows])
        self._groups = [row.group for row in rows]
        self._advantages = torch.tensor([row.advantage for row in rows])
        self._sampled = torch.tensor([row.sampled for row in rows])
        self._categories = sorted({row.category for row in rows})
        self._category = torch.tensor([self._categories.index(row.category) for row in rows])
        self._taught = torch.tensor(
            [
                [one.spec.weight if one.spec.teaches(row.category) else 0.0 for row in rows]
                for one in teachers
            ]
        )
        self._staleness = self._check_versions()
        # Sums over the tokens of each teacher, then of each category: how many, and the figures.
        self._sums = torch.zeros(
            len(teachers) + len(self._categories), 1 + len(_FIGURES), dtype=torch.float64
        )

    def learn(self) -> dict[str, float]:
        self._memory = [self._remembered(number) for number in range(len(self._teachers))]
        temperature = self._trainer.spec.rollout.temperature
        if self._record is not None:
            weighed = ("advantage", "weight", "clipped", "correction") if self._weighs else ()
            columns = ("logprob", "entropy", *weighed)
            self._record.begin(self._names, self._batch.loss_mask, columns)
        logprobs, figures = self._trainer.update(
            self._batch, self._groups, self._objective, temperature
        )
        if self._record is not None:
            self._record.settle(self._trainer.ranks)
        self._trainer.ranks.sum(self._sums)
        own = self._batch.loss_mask & self._sampled[:, None]
        if own.any():
            figures |= off_policy_statistics(logprobs[own], self._batch.behaviour[own])
            figures["staleness_mean"] = float(self._staleness.mean())
            figures["staleness_max"] = float(self._staleness.max())
        if not self._weighs:
            figures = {name: one for name, one in figures.items() if not name.startswith("clip_")}
        return {**figures, **self._told()}

    def _check_versions(self) -> Tensor:
        own = self._batch.loss_mask & self._sampled[:, None]
        staleness = (self._trainer.version - self._batch.versions[own]).double()
        if (staleness < 0).any():
            raise ValueError("A trajectory was sampled by a version that does not exist yet")
        return staleness

    def _remembered(self, number: int) -> "_Remembered":
        """What a teacher makes of the rows that it teaches."""
        teacher = self._teachers[number]
        index = self._taught[number].nonzero()[:, 0]
        position = torch.full_like(self._category, -1)
        position[index] = torch.arange(len(index))
        if not len(index):
            return _Remembered(position, teacher.model.norm.weight.new_zeros(0))
        with teacher.present() as model:
            hidden = self._trainer.policy.read(
                self._batch.rows(index),
                [self._groups[row] for row in index.tolist()],
                lambda rows: rows.each(rows.hidden).to(model.head_weight.dtype),
                model,
                (model.config.hidden_size,),
            )
        return _Remembered(position, hidden.to(teacher.model.norm.weight.dtype))

    def _objective(self, seen: Seen) -> Terms:
        """Each token's part of the mean over all tokens of the step."""
        stage, row = self._stage, seen.place[0]
        losses = torch.zeros_like(seen.tokens.logprobs)
        clipped = torch.zeros_like(losses, dtype=torch.int8)
        advantages = self._advantages[row].to(losses.dtype)
        told = {"logprob": seen.tokens.logprobs, "entropy": seen.tokens.entropies}
        for number, teacher in enumerate(self._teachers):
            lesson = _lesson(seen, self._taught[number, row], self._memory[number])
            if not len(lesson.tokens):
                continue
            if stage.form == "one_token":
                values = self._one_token(seen, number, teacher, lesson)
                advantages = advantages.index_add(0, lesson.tokens, lesson.weights * values)
            else:
                values = self._divergence(seen, number, teacher, lesson)
                losses = losses.index_add(0, lesson.tokens, lesson.weights * values)
        if self._weighs:
            low, high = stage.weights
            log_rho = seen.tokens.logprobs - self._batch.behaviour[seen.place]
            weight, clipped = correction_weights(
                "icepop", log_rho, row, {"weight_min": low, "weight_max": high}
            )
            own = self._sampled[row]
            losses = losses - own * weight * advantages * seen.tokens.logprobs
            clipped = clipped * own
            told |= {"advantage": advantages, "weight": torch.exp(log_rho)}
            told |= {"clipped": clipped, "correction": weight}
        if self._record is not None:
            self._record.note(seen.place, told)
        return Terms(losses / self._batch.loss_tokens, clipped)

    @property
    def _weighs(self) -> bool:
        """Whether tokens have an advantage, and with it an importance weight."""
        return self._stage.form == "one_token" or bool(self._stage.reward_weight)

    def _divergence(self, seen: Seen, number: int, teacher: Teacher, lesson: "_Lesson") -> Tensor:
        head = teacher.model.head_weight
        found = divergence(
            seen.rows.hidden[lesson.rows],
            seen.head,
            lesson.hidden,
            head,
            beta=self._stage.resolved().beta,
            temperature=self._temperature,
        )
        told = self._of_targets(seen, teacher, lesson)
        log_ratio = told.logprobs[lesson.row] - seen.tokens.logprobs.detach()[lesson.tokens]
        values, agree, gap = (one[lesson.row] for one in found)
        self._add(number, seen.place[0][lesson.tokens], values, log_ratio, gap, agree)
        return values

    def _one_token(self, seen: Seen, number: int, teacher: Teacher, lesson: "_Lesson") -> Tensor:
        told = self._of_targets(seen, teacher, lesson)
        values = one_token_advantages(
            seen.tokens.logprobs[lesson.tokens], told.logprobs[lesson.row]
        )
        gap = seen.tokens.entropies[lesson.tokens] - told.entropies[lesson.row]
        self._add(number, seen.place[0][lesson.tokens], -values, values, gap, None)
        return values

    @torch.no_grad()
    def _of_targets(self, seen: Seen, teacher: Teacher, lesson: "_Lesson") -> TokenLogProbs:
        targets = seen.rows.targets[lesson.rows]
        head = teacher.model.head_weight
        return token_logprobs(lesson.hidden, head, targets, self._temperature)

    def _add(
        self,
        number: int,
        row: Tensor,
        values: Tensor,
        log_ratio: Tensor,
        gap: Tensor,
        agree: Tensor | None,
    ) -> None:
        """To the sums of a teacher and of the categories of its tokens; all [tokens]."""
        agreed = torch.zeros_like(gap) if agree is None else agree
        far = log_ratio.abs() > LOG_RATIO_CAP
        found = torch.stack(
            [one.detach().double() for one in (torch.ones_like(gap), values, agreed, gap, far)], 1
        )
        self._sums[number] += found.sum(0)
        self._sums.index_add_(0, len(self._teachers) + self._category[row], found)

    def _told(self) -> dict[str, float]:
        """Means over tokens: over all of them, and the divergence by teacher and by category."""
        teachers = len(self._teachers)
        total = self._sums[:teachers].sum(0)
        means = (total[1:] / total[0].clamp(min=1)).tolist()
        found = dict(zip(_FIGURES, means, strict=True))
        names = [f"stage-{one.spec.stage}" for one in self._teachers] + self._categories
        for name, (tokens, value, *_) in zip(names, self._sums.tolist(), strict=True):
            if tokens:  # a category of a dataset may be called as a teacher is, which comes first
                found.setdefault(f"divergence/{name}", value / tokens)
        if self._stage.form == "one_token":
            del found["agreement"]  # nobody asked for the likeliest token
        return found

    @property
    def _temperature(self) -> float:
        return self._trainer.spec.rollout.temperature


class _Remembered(NamedTuple):
    """position [rows]: of each row of the batch in `hidden`, -1 where it is not taught; hidden
    [taught rows, tokens, width]: before each token in the loss."""

    position: Tensor
    hidden: Tensor


class _Lesson(NamedTuple):
    """What one teacher teaches in a pass.

    tokens [n]: numbers of the taught tokens among those of the pass; weights [n]: of each; row [n]:
    of each in `rows` [m], the distinct rows of the pass; hidden [m, width]: the teacher's.
    """

    tokens: Tensor
    weights: Tensor
    row: Tensor
    rows: Tensor
    hidden: Tensor


def _lesson(seen: Seen, weights: Tensor, memory: _Remembered) -> _Lesson:
    """weights: of all tokens of the pass."""
    tokens = weights.nonzero()[:, 0]
    index = tokens if seen.rows.index is None else seen.rows.index[tokens]
    rows, row = torch.unique(index, return_inverse=True)
    one_of_each = torch.empty_like(rows).scatter_(0, row, tokens)
    at = memory.position[seen.place[0][one_of_each]], seen.place[1][one_of_each]
    return _Lesson(tokens, weights[tokens].to(seen.head.dtype), row, rows, memory.hidden[at])
