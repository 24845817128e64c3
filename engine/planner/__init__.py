"""What a model costs, from its configuration alone: parameters, FLOPs, memory. No torch."""

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
from engine.planner.comparison import Costs, Ratio, conventions, costs, ratio
from engine.planner.configs import (
    ConfigError,
    from_spec,
    read_config,
    read_config_file,
    shipped,
    shipped_names,
)
from engine.planner.flops import Convention, Flops, generation, next_token, prefill, training
from engine.planner.memory import Memory, kv_bytes_per_token, memory, state_bytes
from engine.planner.parameters import Parameters, parameters
from engine.planner.run import (
    RolloutMemory,
    RunPlan,
    StagePlan,
    TrainerMemory,
    optimizer_bytes,
    plan_run,
)

__all__ = [
    "Architecture",
    "ConfigError",
    "Convention",
    "Costs",
    "Flops",
    "Latent",
    "Layer",
    "LayerKind",
    "Lightning",
    "Memory",
    "Mlp",
    "Parameters",
    "Ratio",
    "RolloutMemory",
    "RunPlan",
    "Softmax",
    "StagePlan",
    "TrainerMemory",
    "conventions",
    "costs",
    "from_spec",
    "generation",
    "kv_bytes_per_token",
    "memory",
    "next_token",
    "optimizer_bytes",
    "parameters",
    "plan_run",
    "prefill",
    "ratio",
    "read_config",
    "read_config_file",
    "shipped",
    "shipped_names",
    "softmax_twin",
    "state_bytes",
    "training",
]
