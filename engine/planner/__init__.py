"""What a model or a run costs, from configurations alone: FLOPs, memory, time, advice. No torch."""

from engine.planner.advice import REASONS, Advice, Verdict, advise
from engine.planner.architecture import (
    Architecture,
    Latent,
    Layer,
    LayerKind,
    Lightning,
    Mlp,
    Softmax,
    softmax_twin,
)
from engine.planner.cases import Asked, Broken, Case, case_of
from engine.planner.changes import CHANGES, Fix
from engine.planner.comparison import Costs, Ratio, conventions, costs, ratio
from engine.planner.configs import (
    ConfigError,
    from_spec,
    read_config,
    read_config_file,
    shipped,
    shipped_names,
)
from engine.planner.devices import DEVICES, Cluster, Device, read_cluster
from engine.planner.flops import Convention, Flops, generation, next_token, prefill, training
from engine.planner.memory import Memory, kv_bytes_per_token, memory, state_bytes
from engine.planner.needs import NEEDS
from engine.planner.parameters import Parameters, parameters
from engine.planner.phases import Footprint, Phase
from engine.planner.run import RunPlan, StagePlan, advise_run, own_cluster, plan_run
from engine.planner.run_memory import RolloutMemory, TrainerMemory, optimizer_bytes
from engine.planner.sizes import sized
from engine.planner.state import OPTIMIZERS
from engine.planner.timing import Part, StepTime

__all__ = [
    "CHANGES",
    "DEVICES",
    "NEEDS",
    "OPTIMIZERS",
    "REASONS",
    "Advice",
    "Architecture",
    "Asked",
    "Broken",
    "Case",
    "Cluster",
    "ConfigError",
    "Convention",
    "Costs",
    "Device",
    "Fix",
    "Flops",
    "Footprint",
    "Latent",
    "Layer",
    "LayerKind",
    "Lightning",
    "Memory",
    "Mlp",
    "Parameters",
    "Part",
    "Phase",
    "Ratio",
    "RolloutMemory",
    "RunPlan",
    "Softmax",
    "StagePlan",
    "StepTime",
    "TrainerMemory",
    "Verdict",
    "advise",
    "advise_run",
    "case_of",
    "conventions",
    "costs",
    "from_spec",
    "generation",
    "kv_bytes_per_token",
    "memory",
    "next_token",
    "optimizer_bytes",
    "own_cluster",
    "parameters",
    "plan_run",
    "prefill",
    "ratio",
    "read_cluster",
    "read_config",
    "read_config_file",
    "shipped",
    "shipped_names",
    "sized",
    "softmax_twin",
    "state_bytes",
    "training",
]
