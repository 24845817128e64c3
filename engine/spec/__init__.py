"""The experiment specification: what a run is launched with. Imports no torch."""

from engine.spec.experiment import (
    CheckpointSpec,
    EnvironmentSpec,
    EvaluationSpec,
    ExperimentSpec,
    GateSpec,
    GraphSpec,
    ModelSpec,
    OptimizerSpec,
    PoolSpec,
    RlStage,
    RolloutSpec,
    SftStage,
    SynthesiseStage,
    TrainerSpec,
    hop_category,
)
from engine.spec.loading import SpecProblem, load_spec, problems_of, spec_hash

__all__ = [
    "CheckpointSpec",
    "EnvironmentSpec",
    "EvaluationSpec",
    "ExperimentSpec",
    "GateSpec",
    "GraphSpec",
    "ModelSpec",
    "OptimizerSpec",
    "PoolSpec",
    "RlStage",
    "RolloutSpec",
    "SftStage",
    "SpecProblem",
    "SynthesiseStage",
    "TrainerSpec",
    "hop_category",
    "load_spec",
    "problems_of",
    "spec_hash",
]
