"""One case to plan: an algorithm's models on a cluster, what it takes, and whether it fits."""

from dataclasses import dataclass, replace
from functools import cached_property

from engine.planner.architecture import Architecture
from engine.planner.devices import Cluster
from engine.planner.needs import NEEDS, Needs, Roles, roles_of
from engine.planner.phases import Engine, Footprint, Phase, Setup, footprint
from engine.planner.state import OptimizerKind
from engine.planner.timing import StepTime, Workload, step_time

LEAST_SLOTS = 8  # sequences that an engine must hold at once: with fewer, decoding is hopeless
MOST_SLOTS = 256  # and those that engines limit themselves to
MOST_ENGINE_DEVICES = 32


@dataclass(frozen=True)
class Asked:
    """What a person fixes: the rest follows. group: trajectories of one prompt; reference: whether
    algorithms of practice hold one for a KL term, None: those that usually do."""

    context: int
    sampled: int
    prompts: int = 64
    group: int = 8
    optimizer: OptimizerKind = "adamw"
    engine: Engine = "sleep"
    lora_rank: int = 16
    logits_rows: int | None = None
    offload: bool = False
    critic: Architecture | None = None
    teachers: int = 1
    reference: bool | None = None


@dataclass(frozen=True)
class Case:
    """Everything that memory and time are computed from.

    Memory is that of as many slots as the set-up says, the fewest that make sense; time is that
    of as many as what is left holds.
    """

    algorithm: str
    roles: Roles
    cluster: Cluster
    setup: Setup
    work: Workload

    @property
    def needs(self) -> Needs:
        return NEEDS[self.algorithm]

    @cached_property
    def memory(self) -> Footprint:
        return footprint(self.needs, self.roles, self.cluster, self.setup, self.work.context)

    @cached_property
    def time(self) -> StepTime:
        filled = replace(self.setup, slots=self.slots)
        return step_time(self.needs, self.roles, self.cluster, filled, self.work)

    @property
    def fits(self) -> bool:
        return fits(self.memory, self.cluster)

    @cached_property
    def slots(self) -> int:
        """Sequences that an engine can hold at once, up to those it is given and its limit."""
        least = self.setup.slots
        more = footprint(
            self.needs,
            self.roles,
            self.cluster,
            replace(self.setup, slots=least + 1),
            self.work.context,
        )
        most = min(MOST_SLOTS, self.sequences)
        for phase, larger in zip(self.memory.phases, more.phases, strict=True):
            each = larger.total - phase.total
            if each > 0:
                most = min(most, least + int((self.cluster.device.memory - phase.total) // each))
        return max(least, most)

    @property
    def sequences(self) -> int:
        """Trajectories of a step that one engine is given."""
        engines = max(1, self.cluster.count // self.setup.engine_parallel)
        return -(-self.work.trajectories // engines)


@dataclass(frozen=True)
class Broken:
    """What does not fit: the largest component of the peak phase, and bytes too many on a device
    (phase "host": in the RAM of a node)."""

    phase: str
    component: str
    size: float
    over: float


def fits(memory: Footprint, cluster: Cluster) -> bool:
    """Whether every phase fits a device, and what lies on hosts their RAM."""
    return broken(memory, cluster) is None


def broken(memory: Footprint, cluster: Cluster) -> Broken | None:
    """The term that does not fit; None where all do."""
    peak: Phase = memory.peak
    over = peak.total - cluster.device.memory
    if over > 0:
        component = max(peak.components, key=lambda name: peak.components[name])
        return Broken(peak.name, component, peak.components[component], over)
    of_node = memory.host / cluster.nodes
    if of_node > cluster.host_memory:
        return Broken("host", "host", of_node, of_node - cluster.host_memory)
    return None


def case_of(algorithm: str, actor: Architecture, cluster: Cluster, asked: Asked) -> Case:
    """The case that was asked for: sharded over all devices, one trajectory a micro-batch.

    A pair of DPO is two rows of one micro-batch.
    """
    needs = NEEDS[algorithm]
    roles = roles_of(
        algorithm,
        actor,
        critic=asked.critic,
        teachers=asked.teachers,
        reference=asked.reference,
    )
    setup = Setup(
        optimizer=asked.optimizer,
        lora_rank=asked.lora_rank,
        shards=cluster.count,
        micro_tokens=asked.context * needs.rows,
        logits_rows=asked.logits_rows,
        engine=asked.engine,
        offload=asked.offload,
    )
    work = Workload(asked.prompts * asked.group, asked.context, asked.sampled)
    return with_engine(Case(algorithm, roles, cluster, setup, work))


def with_engine(case: Case) -> Case:
    """The same with engines over the number of devices, a power of two, that samples fastest;
    where none fits, over the number that takes least memory."""
    if not case.needs.samples:
        return case
    tried, ways = [], 1
    while ways <= min(case.cluster.count, MOST_ENGINE_DEVICES):
        found = replace(case, setup=replace(case.setup, engine_parallel=ways))
        slots = min(LEAST_SLOTS, found.sequences)
        tried.append(replace(found, setup=replace(found.setup, slots=slots)))
        ways *= 2
    fitting = [one for one in tried if one.fits]
    if fitting:
        return min(fitting, key=lambda one: one.time.seconds)
    return min(tried, key=lambda one: one.memory.peak.total)
