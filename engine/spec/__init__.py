"""The experiment specification: what a run is launched with. Imports no torch."""

from engine.spec.base import hop_category
from engine.spec.dpo import DpoStage
from engine.spec.evaluate import EvaluateStage
from engine.spec.experiment import (
    CheckpointSpec,
    EnvironmentSpec,
    EvaluationSpec,
    ExperimentSpec,
    GateSpec,
    GraphSpec,
    ModelSpec,
    PoolSpec,
    RolloutSpec,
    TrainerSpec,
)
from engine.spec.lineage import LoraSpec
from engine.spec.loading import SpecProblem, load_spec, problems_of, spec_hash
from engine.spec.opd import OpdStage, TeacherSpec
from engine.spec.optimizer import OptimizerSpec
from engine.spec.rl import RlStage
from engine.spec.sft import SftStage
from engine.spec.synthesise import SynthesiseStage

__all__ = [
    "CheckpointSpec",
    "DpoStage",
    "EnvironmentSpec",
    "EvaluateStage",
    "EvaluationSpec",
    "ExperimentSpec",
    "GateSpec",
    "GraphSpec",
    "LoraSpec",
    "ModelSpec",
    "OpdStage",
    "OptimizerSpec",
    "PoolSpec",
    "RlStage",
    "RolloutSpec",
    "SftStage",
    "SpecProblem",
    "SynthesiseStage",
    "TeacherSpec",
    "TrainerSpec",
    "hop_category",
    "load_spec",
    "problems_of",
    "spec_hash",
]
