"""Experiments, runs and their attempts, jobs, reward schemes, datasets, checkpoints."""

from webapp.experiments.models.fields import ConfigField
from webapp.experiments.models.jobs import Job
from webapp.experiments.models.runs import (
    ACTIVE_STATES,
    HEAVY_BY_RUN,
    HEAVY_FIELDS,
    Attempt,
    Checkpoint,
    Experiment,
    Preset,
    Removal,
    Run,
    Stage,
    StageDataset,
    State,
    Upload,
)
from webapp.experiments.models.versions import (
    Dataset,
    DatasetVersion,
    RewardScheme,
    RewardSchemeVersion,
)

__all__ = [
    "ACTIVE_STATES",
    "HEAVY_BY_RUN",
    "HEAVY_FIELDS",
    "Attempt",
    "Checkpoint",
    "ConfigField",
    "Dataset",
    "DatasetVersion",
    "Experiment",
    "Job",
    "Preset",
    "Removal",
    "RewardScheme",
    "RewardSchemeVersion",
    "Run",
    "Stage",
    "StageDataset",
    "State",
    "Upload",
]
