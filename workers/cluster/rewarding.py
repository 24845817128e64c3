"""The rewards of a stage in the driver: its curriculum, and the `reward/...` metrics of a step."""

import math
from collections.abc import Mapping

from engine.pool.admission import ALL_FAILED, ALL_SOLVED
from engine.rewards.curriculum import CurriculumState, Look, advance
from engine.spec import ExperimentSpec
from workers.cluster.rollout_stats import Tally


class Rewarding:
    """Looks at what was completed since the step before, trained on or not."""

    def __init__(self, spec: ExperimentSpec, kept: dict[str, object] | None = None) -> None:
        """`kept`: what `to_keep` gave when a checkpoint was written."""
        self._plan = spec.reward.curriculum
        self._state: CurriculumState | None = None
        if self._plan is not None:
            first = CurriculumState.first(self._plan)
            self._state = CurriculumState.from_dict(kept) if kept else first

    @property
    def process_weight(self) -> float | None:
        """For groups that start from now on; None without a curriculum."""
        return self._state.weight if self._state is not None else None

    def to_keep(self) -> dict[str, object] | None:
        return self._state.to_dict() if self._state is not None else None

    def look(self, completed: Tally) -> str:
        """Move the curriculum; a sentence where its phase changed, else ""."""
        seen = Look.of(completed.by_group, completed.by_trajectory)
        if self._plan is None or self._state is None or seen is None:
            return ""
        self._state, sentence = advance(self._plan, self._state, seen)
        return sentence

    def metrics(self, completed: Tally) -> dict[str, float]:
        """Means of what was completed, each term raw; what had no case to count is absent."""
        found = {f"reward/{name}": moments.x for name, moments in completed.terms.items()}
        if "overlong" in completed.terms and completed.valid:
            found["reward/overlong_share"] = completed.overlong / completed.valid
        if self.process_weight is not None:
            found["reward/process_weight"] = self.process_weight
        pairs = completed.by_trajectory
        if pairs.count:
            found |= {"reward/outcome": pairs.x, "reward/process": pairs.y}
        if pairs.correlation is not None:
            found["reward/process_correlation"] = pairs.correlation
        return found


def sampling_metrics(sampled: Mapping[str, int], batch: int) -> dict[str, float]:
    """How many groups one batch took. sampled: groups by what became of them."""
    total = sum(sampled.values())
    if not total:
        return {}
    found = {
        "pool/refill_rounds": float(math.ceil(total / batch)),
        "pool/all_solved_share": sampled.get(ALL_SOLVED, 0) / total,
        "pool/all_failed_share": sampled.get(ALL_FAILED, 0) / total,
    }
    if admitted := sampled.get("admitted"):
        found["pool/sampled_per_accepted"] = total / admitted
    return found
