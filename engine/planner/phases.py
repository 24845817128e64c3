"""Memory of one device through the phases of a step, component by component.

Peak = the largest phase: rollout, log-prob pass, critic pass, actor update, critic update. State
stays where it is between phases, gradients included, unless models are offloaded; an engine that
stays resident adds to every phase, one that sleeps only takes memory in the rollout. On top of a
phase come 10% for what the allocator cannot use, and the device's context.
"""

from dataclasses import dataclass
from typing import Literal

from engine.planner.activations import (
    gathered_bytes,
    logits_bytes,
    passing_bytes,
    saved_bytes,
)
from engine.planner.architecture import Architecture, Latent, Lightning, Softmax
from engine.planner.devices import Cluster
from engine.planner.memory import STATE_BYTES
from engine.planner.needs import Needs, Roles
from engine.planner.parameters import parameters
from engine.planner.sizes import size_of
from engine.planner.state import OptimizerKind, State, frozen, trained

FRAGMENTATION = 0.10  # of all else; between 5 and 15% in the projects' reports
Engine = Literal["resident", "sleep", "apart"]


@dataclass(frozen=True)
class Setup:
    """How the models are laid over devices.

    shards: devices over which weights, gradients and moments are divided (FSDP, or ZeRO 3).
    model_parallel: of these, how many divide one micro-batch between them (tensor and sequence
    parallelism). micro_tokens: tokens of a micro-batch. logits_rows: rows of logits in memory at
    once, None: all of the micro-batch's. engine: whether the sampler keeps its memory while
    training (resident), gives it back (sleep), or has devices of its own (apart).
    engine_parallel: devices of one engine. slots: sequences of full length in one engine at once.
    engine_share: share of a device that the engine reserves instead, as vLLM does. offload: models
    leave the device in phases that do not use them. shared_base: under lora, critic and teachers
    are adapters on the actor's weights.
    """

    optimizer: OptimizerKind = "adamw"
    lora_rank: int = 16
    shards: int = 1
    model_parallel: int = 1
    micro_tokens: int = 8192
    checkpointing: bool = True
    logits_rows: int | None = None
    engine: Engine = "resident"
    engine_parallel: int = 1
    slots: int = 16
    engine_share: float | None = None
    offload: bool = False
    shared_base: bool = True


@dataclass(frozen=True)
class Phase:
    """Bytes of one device by component; zero components are left out."""

    name: str
    components: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.components.values())


@dataclass(frozen=True)
class Footprint:
    """The phases of a step on one device; host: bytes of RAM over all nodes."""

    phases: tuple[Phase, ...]
    host: float

    @property
    def peak(self) -> Phase:
        """The largest phase."""
        return max(self.phases, key=lambda phase: phase.total)


def static_state(roles: Roles, setup: Setup) -> dict[str, State]:
    """What each role keeps, over all shards: before activations, logits and sampling."""
    lora = setup.optimizer == "lora"
    adapters = lora and setup.shared_base
    size = size_of(roles.actor, setup.lora_rank)
    found = {"actor": trained(size, setup.optimizer)}
    if roles.reference and not lora:
        found["reference"] = State(frozen(size), 0, 0)
    if roles.critic:
        critic = size_of(roles.critic, setup.lora_rank)
        shared = adapters and roles.critic == roles.actor
        found["critic"] = trained(critic, setup.optimizer, shared_base=shared)
    if roles.reward:
        found["reward model"] = State(frozen(size_of(roles.reward, setup.lora_rank)), 0, 0)
    if roles.teachers:
        sizes = [size_of(one, setup.lora_rank) for one in roles.teachers]
        found["teachers"] = State(sum(frozen(one, adapter=adapters) for one in sizes), 0, 0)
    return found


def footprint(
    needs: Needs, roles: Roles, cluster: Cluster, setup: Setup, context: int
) -> Footprint:
    """Memory of a device in every phase of a step, for trajectories of `context` tokens."""
    states = static_state(roles, setup)
    phases = [
        _phase(name, used, states, roles, cluster, setup, context)
        for name, used in _phases(needs, roles)
    ]
    host = sum(state.host for state in states.values())
    if setup.offload:
        host += sum(state.device for state in states.values())
    return Footprint(tuple(phases), host)


def engine_bytes(model: Architecture, setup: Setup, context: int) -> dict[str, float]:
    """What one device of an engine holds: its part of the weights, and of every slot's cache.

    Keys and values divide over their heads, lightning states over theirs; the latent of MLA is
    held by every device.
    """
    ways = setup.engine_parallel
    kv = states = 0.0
    for layer, number in model.counted:
        match layer.mixer:
            case Softmax() as mixer:
                kv += number * 4 * mixer.kv_heads * mixer.head_dim / min(ways, mixer.kv_heads)
            case Latent() as mixer:
                kv += number * 2 * (mixer.kv_rank + mixer.rope_dim)
            case Lightning() as mixer:
                each = STATE_BYTES * mixer.heads * mixer.head_dim**2
                states += number * each / min(ways, mixer.heads)
    return {
        "engine weights": 2 * parameters(model).total / ways,
        "keys and values": setup.slots * kv * context,
        "lightning states": setup.slots * states,
    }


def _phases(needs: Needs, roles: Roles) -> list[tuple[str, tuple[str, ...]]]:
    """Phases in order, and the roles that each uses."""
    found: list[tuple[str, tuple[str, ...]]] = []
    if needs.samples:
        found.append(("rollout", ()))
        found.append(("log-prob pass", ("actor", "reference", "reward model")))
    if roles.critic:
        found.append(("critic pass", ("critic",)))
    found.append(("actor update", ("actor", "teachers")))
    if roles.critic:
        found.append(("critic update", ("critic",)))
    return found


def _phase(
    name: str,
    used: tuple[str, ...],
    states: dict[str, State],
    roles: Roles,
    cluster: Cluster,
    setup: Setup,
    context: int,
) -> Phase:
    parts: dict[str, float] = {}
    for role, state in states.items():
        if setup.offload and role not in used:
            continue
        if role == "actor":
            parts["weights"] = state.weights / setup.shards
            parts["gradients"] = state.gradients / setup.shards
            parts["moments"] = state.moments / setup.shards
        else:
            parts[role] = state.device / setup.shards
    parts |= _working(name, roles, setup)
    if name == "rollout" and setup.engine != "apart" or setup.engine == "resident":
        parts |= _engine(roles.actor, cluster, setup, context)
    parts["fragmentation"] = FRAGMENTATION * sum(parts.values())
    parts["context"] = cluster.device.context
    return Phase(name, {part: size for part, size in parts.items() if size})


def _engine(model: Architecture, cluster: Cluster, setup: Setup, context: int) -> dict[str, float]:
    if setup.engine_share is None:
        return engine_bytes(model, setup, context)
    weights = engine_bytes(model, setup, context)["engine weights"]
    reserved = setup.engine_share * cluster.device.memory
    return {"engine weights": weights, "keys and values": max(0.0, reserved - weights)}


def _working(name: str, roles: Roles, setup: Setup) -> dict[str, float]:
    """Activations, logits and gathered weights of a phase's pass."""
    if name == "rollout":
        return {}
    of_critic = name.startswith("critic") and roles.critic is not None
    model = roles.critic if of_critic and roles.critic else roles.actor
    update = name.endswith("update")
    tokens = setup.micro_tokens / setup.model_parallel
    rows = min(tokens, setup.logits_rows or tokens)
    if update:
        parts = saved_bytes(model, tokens, checkpointing=setup.checkpointing)
    else:
        parts = {"layer": passing_bytes(model, tokens)}
    if not of_critic:
        copies = 2 if roles.teachers and update else 1  # the teacher's distribution beside its own
        parts["logits"] = copies * logits_bytes(model, rows, gradients=update)
    if setup.shards > setup.model_parallel:
        parts["gathered weights"] = gathered_bytes(model) / setup.model_parallel
    return parts
