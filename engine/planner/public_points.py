"""Public reports of what ran and what ran out of memory, as data, and what the planner says.

Settings are those of the report. Where one is not told, the assumption is written in `assumed`.
With padding removed, a micro-batch of GSM8K has 344 tokens a sequence: 105 of the question and 239
of the answer on average in the log of verl's quick start.
"""

from dataclasses import dataclass

from engine.planner.cases import fits
from engine.planner.configs import shipped
from engine.planner.devices import Cluster, read_cluster
from engine.planner.needs import NEEDS, Roles
from engine.planner.phases import Footprint, Setup, footprint
from engine.planner.sizes import sized

VERL = "https://github.com/verl-project/verl"
OPENRLHF = "https://github.com/OpenRLHF/OpenRLHF"
GUIDE = f"{VERL}/blob/main/docs/perf/device_tuning.rst"
GSM8K = 344  # tokens of a sequence
OFFLOADED = Setup(optimizer="adamw_cpu", engine="sleep", offload=True)
LORA = Setup(optimizer="lora", lora_rank=32, engine="sleep", offload=True)


@dataclass(frozen=True)
class Point:
    """One report. ran: what happened; explained: False where the report's own thread does not
    settle why."""

    name: str
    source: str
    ran: bool
    cluster: Cluster
    roles: Roles
    setup: Setup
    context: int
    algorithm: str = "grpo"
    assumed: str = ""
    explained: bool = True


@dataclass(frozen=True)
class Judged:
    """A point and the planner's word on it."""

    point: Point
    memory: Footprint
    fits: bool

    @property
    def right(self) -> bool:
        return self.fits == self.point.ran


def judged() -> list[Judged]:
    """Every point with the planner's verdict."""
    found = []
    for point in points():
        needs = NEEDS[point.algorithm]
        memory = footprint(needs, point.roles, point.cluster, point.setup, point.context)
        found.append(Judged(point, memory, fits(memory, point.cluster)))
    return found


def points() -> list[Point]:
    """The reports."""
    return [*_guide(), *_lora(), *_failures(), *_deepspeed_chat()]


def _setup(base: Setup, devices: int, micro_tokens: int, **others: object) -> Setup:
    fields = {**vars(base), "shards": devices, "micro_tokens": micro_tokens, **others}
    return Setup(**fields)


def _guide() -> list[Point]:
    seven, fourteen, thirty, seventy = (shipped(f"qwen2.5-{n}b") for n in (7, 14, 32, 72))
    as_14b = _setup(OFFLOADED, 4, 16 * GSM8K, engine_parallel=4, engine_share=0.5)
    big = _setup(OFFLOADED, 32, 16 * GSM8K, engine_parallel=16, engine_share=0.5)
    return [
        Point(
            "verl guide: 7B GRPO on 2 H800, all offloaded",
            GUIDE,
            True,
            read_cluster("2xH800"),
            Roles(seven, reference=True),
            _setup(OFFLOADED, 2, 16 * GSM8K, engine_parallel=2, engine_share=0.6),
            2048,
            assumed="micro-batches of 16 sequences, as in the script for 14B",
        ),
        Point(
            "verl guide: 14B GRPO on 4 H800, all offloaded",
            f"{VERL}/blob/main/examples/tuning/14b/qwen2_14b_grpo_4_h800_fsdp_vllm.sh",
            True,
            read_cluster("4xH800"),
            Roles(fourteen, reference=True),
            as_14b,
            2048,
        ),
        Point(
            "verl guide: 32B GRPO on 8 H20, Megatron TP 8, all offloaded",
            GUIDE,
            True,
            read_cluster("8xH20"),
            Roles(thirty, reference=True),
            _setup(OFFLOADED, 8, 8192, model_parallel=8, engine_parallel=8, engine_share=0.5),
            8192,
            assumed="micro-batches of one sequence; the engine takes half of a device",
        ),
        *(
            Point(
                f"verl guide: 70B GRPO on 32 {name}, all offloaded",
                GUIDE,
                True,
                read_cluster(f"32x{name}"),
                Roles(seventy, reference=True),
                big,
                1024,
                assumed="micro-batches and engine as in the script for 14B",
            )
            for name in ("H20", "H800")
        ),
    ]


@dataclass(frozen=True)
class Script:
    """A tuning script of verl for LoRA of rank 32 on H100s, everything offloaded: sequences of a
    device's micro-batch that ran, and the fewest that its author noted as failing."""

    model: str
    devices: int
    ran: int
    failed: int
    share: float  # of a device, reserved by the engine
    parallel: int  # devices that divide a sequence
    path: str

    def setup(self, rows: int) -> Setup:
        """The script's settings with another micro-batch."""
        return _setup(
            LORA,
            self.devices,
            rows * GSM8K * self.parallel,
            model_parallel=self.parallel,
            engine_parallel=self.devices,
            engine_share=self.share,
        )

    @property
    def cluster(self) -> Cluster:
        return read_cluster(f"{self.devices}xH100")

    @property
    def roles(self) -> Roles:
        return Roles(shipped(self.model), reference=True)


SCRIPTS = (
    Script("qwen2.5-7b", 1, 100, 101, 0.2, 1, "7b/qwen2-7b_grpo-lora_1_h100_fsdp_vllm.sh"),
    Script("qwen2.5-14b", 2, 58, 59, 0.25, 2, "14b/qwen2-14b_grpo-lora_2_h100_fsdp_vllm.sh"),
    Script("qwen2.5-32b", 4, 44, 45, 0.3, 2, "32b/qwen2-32b_grpo-lora_4_h100_fsdp_vllm.sh"),
    Script("qwen2.5-72b", 8, 22, 23, 0.4, 2, "70b/qwen2-72b_grpo-lora_8_h100_fsdp_vllm.sh"),
)
SCRIPT_ROWS = {"qwen2.5-7b": 16}  # what the script runs with, where that is not the most that ran
SCRIPT_CONTEXT = 512 + 1024


def largest_micro_batch(script: Script, most: int = 1000) -> int:
    """Sequences of a micro-batch that would just fit, by the planner; 0: not even one."""
    needs, fitting = NEEDS["grpo"], 0
    for rows in range(1, most + 1):
        memory = footprint(needs, script.roles, script.cluster, script.setup(rows), SCRIPT_CONTEXT)
        if not fits(memory, script.cluster):
            break
        fitting = rows
    return fitting


def _lora() -> list[Point]:
    return [
        Point(
            f"verl script: {script.model} GRPO with LoRA on {script.devices} H100",
            f"{VERL}/blob/main/examples/tuning/{script.path}",
            True,
            script.cluster,
            script.roles,
            script.setup(SCRIPT_ROWS.get(script.model, script.ran)),
            SCRIPT_CONTEXT,
        )
        for script in SCRIPTS
    ]


def _failures() -> list[Point]:
    big, llama = shipped("qwen2.5-72b"), shipped("llama-3.1-70b")
    return [
        Point(
            "verl 855: 14B GRPO on 8 H100, nothing offloaded, 24,000 tokens a device",
            f"{VERL}/issues/855",
            False,
            read_cluster("8xH100"),
            Roles(shipped("qwen2.5-14b"), reference=True),
            _setup(Setup(engine="sleep"), 8, 24_000, engine_parallel=8, engine_share=0.5),
            1024,
            assumed="the engine takes half of a device while it samples",
        ),
        Point(
            "verl 249: 72B PPO with a critic as large on 16 A800",
            f"{VERL}/issues/249",
            False,
            read_cluster("16xA800"),
            Roles(big, critic=big, reference=True),
            _setup(Setup(engine="sleep"), 16, 768, engine_parallel=8, engine_share=0.4),
            768,
            algorithm="ppo",
            assumed="nothing offloaded",
        ),
        Point(
            "OpenRLHF 887: 7B GRPO, 3 H100 for the policy, 38k tokens",
            f"{OPENRLHF}/issues/887",
            False,
            read_cluster("3xH100"),
            Roles(shipped("qwen2.5-7b")),
            _setup(Setup(engine="apart"), 3, 37_888),
            37_888,
            assumed="a 7B of Qwen's shape; checkpointing on",
        ),
        Point(
            "OpenRLHF 776: 70B GRPO, 32 A800 for the policy, optimizer on the host",
            f"{OPENRLHF}/issues/776",
            False,
            read_cluster("32xA800"),
            Roles(llama),
            _setup(Setup(optimizer="adamw_cpu", engine="apart"), 32, 2 * 2048),
            2048,
            assumed="micro-batches of 2 sequences, as its log-prob pass has",
            explained=False,
        ),
    ]


def _deepspeed_chat() -> list[Point]:
    small = sized(0.35e9)
    return [
        Point(
            f"DeepSpeed-Chat: {billions}B PPO, critic of 350M, on {count} {device}",
            "https://arxiv.org/abs/2308.01320",
            True,
            read_cluster(f"{count}x{device}"),
            Roles(sized(billions * 1e9), critic=small, reference=True, reward=small),
            _setup(Setup(engine="sleep"), count, 4 * 512, engine_parallel=8, slots=4),
            512,
            algorithm="ppo",
            assumed="4 sequences of 512 tokens a device, sampled by the hybrid engine on 8 devices",
        )
        for billions, count, device in ((13, 8, "A100-40"), (66, 64, "A100-80"))
    ]
