"""What stages have in common that sample their own training data through the data pool."""

from pydantic import Field

from engine.spec.base import DatasetVersionId, Hops, Share
from engine.spec.lineage import TrainedStage


class SampledStage(TrainedStage):
    """A stage whose rollouts fill the data pool with groups, each of one task."""

    dataset: DatasetVersionId | None = Field(
        None,
        description="Id of the version of tasks to train on; empty: those that the first stage "
        "draws",
    )
    hops: list[Hops] = Field(
        default=[3, 4], min_length=1, description="Numbers of hops of the tasks that were drawn"
    )
    prompts_per_step: int
    group_size: int
    stop_at_completion: Share | None = Field(
        None,
        description="Ends the stage before its last step once the completion rate on the quick "
        "tasks is at least this, by the lower end of its 95% interval; empty: never",
    )
    record_tokens: Share = Field(
        1.0,
        description="Share of the stored trajectories of which the trainer records what the loss "
        "saw of each token: advantage, importance weight, entropy; 0: none",
    )

    def draws_tasks(self) -> bool:
        """Whether its tasks are those that the first stage drew."""
        return self.dataset is None

    def needs_spread(self) -> bool:
        """Whether a group teaches only by the differences between its rewards."""
        return True

    def needs_reward(self) -> bool:
        """Whether a group without any valid reward teaches nothing."""
        return self.needs_spread()

    def sampling_rounds(self) -> int | None:
        """Batches that may be sampled for one step, at most; None: any number."""
        return None
