"""How long a step takes on a cluster, part by part, and what limits each part. An estimate.

A pass takes the longer of its arithmetic (FLOPs over what the devices reach) and of gathering
sharded weights over links, which overlap. Decoding takes, token by token, the longer of its
arithmetic and of reading weights and caches from memory. Assumed, and stated wherever a time is
shown: training reaches 40% of the published FLOP/s (Llama 3 405B: 38 to 43%, 2407.21783, table 4),
prefill 50%, decoding 60% of the published bandwidth; a sum over the devices of an engine, of which
a layer has two a token, takes 10 us and its bytes. CPU cores reach 15% of their bf16 products in
training and 8% in decoding on models of a million parameters, measured (`docs/planner.md`).
"""

from dataclasses import dataclass
from typing import Literal

from engine.planner.activations import BF16
from engine.planner.architecture import Architecture
from engine.planner.devices import HOST_LINK, NODE, Cluster
from engine.planner.flops import next_token, prefill, training
from engine.planner.memory import kv_bytes_per_token, state_bytes
from engine.planner.needs import Needs, Roles
from engine.planner.parameters import parameters
from engine.planner.phases import Setup, static_state

Limit = Literal["arithmetic", "weights", "caches", "links", "host"]


@dataclass(frozen=True)
class Reached:
    """Shares of published figures that are reached: of FLOP/s in training, in prefill, and in
    decoding, where its arithmetic limits it; of the memory's bandwidth in decoding."""

    training: float
    prefill: float
    products: float
    bandwidth: float


GPU_REACHED = Reached(training=0.40, prefill=0.50, products=0.50, bandwidth=0.60)
CPU_REACHED = Reached(training=0.15, prefill=0.15, products=0.08, bandwidth=0.60)


@dataclass(frozen=True)
class Workload:
    """A step's data: trajectories of `context` tokens, of which `sampled` are the policy's."""

    trajectories: int
    context: int
    sampled: int


@dataclass(frozen=True)
class Part:
    """Seconds of one part of a step, and what it waits for."""

    name: str
    seconds: float
    limit: Limit
    flops: float = 0.0


@dataclass(frozen=True)
class StepTime:
    """Parts of a step, one after the other; `apart`: the rollout runs beside the rest."""

    parts: tuple[Part, ...]
    apart: bool

    @property
    def seconds(self) -> float:
        rollout = sum(part.seconds for part in self.parts if part.name in ROLLOUT)
        rest = sum(part.seconds for part in self.parts if part.name not in ROLLOUT)
        return max(rollout, rest) if self.apart else rollout + rest

    @property
    def limiting(self) -> Part:
        """The longest part."""
        return max(self.parts, key=lambda part: part.seconds)

    @property
    def flops(self) -> float:
        return sum(part.flops for part in self.parts)


ROLLOUT = ("prefill", "decoding")
ALL_REDUCE = 10e-6  # seconds of a small one within a node, whatever its size


def reached(cluster: Cluster) -> Reached:
    """What is assumed of the cluster's devices."""
    return CPU_REACHED if cluster.device.name == "cpu" else GPU_REACHED


def step_time(
    needs: Needs, roles: Roles, cluster: Cluster, setup: Setup, work: Workload
) -> StepTime:
    """The parts of one step: sampling, log-prob passes, updates, and moving weights."""
    rows = work.trajectories * needs.rows
    found: list[Part] = []
    if needs.samples:
        found += sampling(roles.actor, cluster, setup, work)
        askers = [roles.actor, *([roles.actor] if roles.reference else [])]
        askers += [roles.reward] if roles.reward else []
        found.append(_passes("log-probs", askers, cluster, setup, rows, work.context))
    if roles.teachers:
        asked = [roles.teachers[0]]  # each sample has one teacher, that of its domain
        found.append(_passes("teachers", asked, cluster, setup, rows, work.context))
    if roles.critic:
        found.append(_passes("values", [roles.critic], cluster, setup, rows, work.context))
        found.append(update("critic update", roles.critic, cluster, setup, rows, work.context))
    found.append(update("actor update", roles.actor, cluster, setup, rows, work.context))
    found += _moving(needs, roles, cluster, setup)
    return StepTime(tuple(found), setup.engine == "apart")


def sampling(
    model: Architecture, cluster: Cluster, setup: Setup, work: Workload
) -> tuple[Part, Part]:
    """Prefill of what is not sampled, and decoding, all engines at once.

    Sequences run in rounds of as many as the slots hold; a token reads the weights once for all
    of them (of experts, those that any sequence is sent to) and each sequence's cache at half of
    its full length.
    """
    device, share = cluster.device, reached(cluster)
    given = work.context - work.sampled
    flops = work.trajectories * prefill(model, given).total if given else 0.0
    prefilling = flops / (cluster.count * device.flops * share.prefill)
    ways = min(setup.engine_parallel, cluster.count)
    engines = max(1, cluster.count // ways)
    each = -(-work.trajectories // engines)
    rounds, slots = -(-each // setup.slots), min(each, setup.slots)
    middle = max(1, given + work.sampled // 2)
    cache = slots * (kv_bytes_per_token(model) * middle + 2 * state_bytes(model))  # read, written
    weights = BF16 * _read(model, slots)
    token_flops = slots * next_token(model, middle).total
    by_memory = (weights + cache) / (ways * device.bandwidth * share.bandwidth)
    by_products = token_flops / (ways * device.flops * share.products)
    between = 0.0
    if ways > 1:
        summed = 2 * BF16 * slots * model.width / cluster.link_over(ways)
        between = 2 * len(model.layers) * (ALL_REDUCE + summed)
    limit: Limit = "weights" if weights >= cache else "caches"
    if by_products > by_memory:
        limit = "arithmetic"
    if between > max(by_memory, by_products):
        limit = "links"
    seconds = rounds * work.sampled * (max(by_memory, by_products) + between)
    decoded = work.trajectories * work.sampled * next_token(model, middle).total
    return (
        Part("prefill", prefilling, "arithmetic", flops),
        Part("decoding", seconds, limit, decoded),
    )


def update(
    name: str, model: Architecture, cluster: Cluster, setup: Setup, rows: int, context: int
) -> Part:
    """Forward and backward over all rows; layers twice forward with checkpointing."""
    found = learning_flops(model, context, adapters=setup.optimizer == "lora")
    flops = found + (prefill(model, context).total if setup.checkpointing else 0.0)
    crossings = 3 if setup.checkpointing else 2  # gathered forward, again, backward; + reduced
    return _pass(name, model, cluster, setup, rows, context, flops, crossings + 1)


def learning_flops(model: Architecture, tokens: int, *, adapters: bool) -> float:
    """Forward and backward of one sequence. Where adapters alone are trained, frozen weights have
    no gradient: that spares a third of the dense part."""
    found = training(model, tokens)
    return found.attention + found.dense * (2 / 3 if adapters else 1)


def _passes(
    name: str, models: list[Architecture], cluster: Cluster, setup: Setup, rows: int, context: int
) -> Part:
    """One pass without gradients of each model."""
    parts = [
        _pass(name, one, cluster, setup, rows, context, prefill(one, context).total, 1)
        for one in models
    ]
    limit = max(parts, key=lambda part: part.seconds).limit
    seconds, flops = sum(part.seconds for part in parts), sum(part.flops for part in parts)
    return Part(name, seconds, limit, flops)


def _pass(
    name: str,
    model: Architecture,
    cluster: Cluster,
    setup: Setup,
    rows: int,
    context: int,
    flops: float,
    crossings: int,
) -> Part:
    device = cluster.device
    share = reached(cluster).training if crossings > 1 else reached(cluster).prefill
    arithmetic = rows * flops / (cluster.count * device.flops * share)
    links = 0.0
    if setup.shards > setup.model_parallel:
        replicas = cluster.count / setup.model_parallel
        micro = max(1.0, rows * context / (setup.micro_tokens * replicas))
        gathered = BF16 * parameters(model).total / setup.model_parallel
        links = micro * crossings * gathered / cluster.link_over(setup.shards)
    limit: Limit = "arithmetic" if arithmetic >= links else "links"
    return Part(name, max(arithmetic, links), limit, rows * flops)


def _moving(needs: Needs, roles: Roles, cluster: Cluster, setup: Setup) -> list[Part]:
    """Weights to the sampler, and what offloading moves between devices and hosts."""
    found = []
    states = static_state(roles, setup)
    if needs.samples:
        weights = BF16 * parameters(roles.actor).total / min(setup.engine_parallel, NODE)
        found.append(Part("weight sync", weights / cluster.link_over(cluster.count), "links"))
    moved = 0.0
    if setup.optimizer == "adamw_cpu":  # gradients down, weights up
        moved += sum(state.gradients + BF16 / 2 * state.gradients for state in states.values())
    if setup.offload:
        moved += 2 * sum(state.device for state in states.values())
    if moved:
        found.append(Part("offload", moved / setup.shards / HOST_LINK, "host"))
    return found


def _read(model: Architecture, sequences: int) -> float:
    """Parameters that one decoding step of so many sequences reads: of experts, those chosen."""
    total = float(parameters(model).total)
    for layer, number in model.counted:
        mlp = layer.mlp
        if mlp.experts:
            untouched = (1 - mlp.active / mlp.experts) ** sequences
            total -= number * untouched * 3 * model.width * mlp.width * mlp.experts
    return total
