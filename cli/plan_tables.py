"""What `caravan plan` prints for people."""

from rich.console import Console, JustifyMethod
from rich.table import Table

from cli.plan_input import Length
from engine.planner import (
    Architecture,
    Convention,
    Costs,
    Flops,
    LayerKind,
    RunPlan,
    conventions,
    costs,
    kv_bytes_per_token,
    memory,
    parameters,
    ratio,
    state_bytes,
)
from engine.spec import ExperimentSpec

WIDTH = 116  # columns that the tables need; terminals that are narrower wrap lines
WORDS = {
    *("model", "layers", "source", "counted", "versus", "process", "part", "stage"),
    *("algorithm", "phase", "component", "limited by"),
}
NOTES = (
    "A multiply-add is 2 FLOPs. Attention: its share of the cell before. Cache: bf16, states fp32.",
    "Causal: each query meets the keys up to its own. Multi-head, absorbed: the two forms of MLA.",
    "Paper: whole generations as figure 1 of 2506.13585 draws them, query-key products halved and",
    "attention-value products not. Training: forward and backward, with scores computed again.",
)


def show_flops(model: Architecture, others: list[Architecture], lengths: list[Length]) -> None:
    """The models, what they cost at each length, and the first as a share of the others."""
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(_models([model, *others]))
    for length in lengths:
        console.print(_costs([model, *others], length))
    if others:
        console.print(_ratios(model, others, lengths))
    for line in NOTES:
        console.print(line, style="dim", highlight=False)


def show_run(spec: ExperimentSpec, plan: RunPlan) -> None:
    """Memory by component, then each stage at the most."""
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(_models([plan.model]))
    memory_table = table_of("\nMemory", "process", "part", "bytes")
    trainer, rollout = plan.trainer, plan.rollout
    slots = f"{plan.slots} slots of {plan.length:,} tokens"
    for process, part, size in (
        (f"trainer (of {spec.trainer.workers})", "weights, fp32", trainer.weights),
        ("", "gradients, fp32", trainer.gradients),
        ("", "optimizer", trainer.optimizer),
        ("", f"copy in {spec.trainer.precision}, with gradients", trainer.copy),
        *([("", "teachers", trainer.teachers)] if trainer.teachers else []),
        ("", "together", trainer.total),
        (f"rollout worker (of {spec.rollout.workers})", "weights", rollout.weights),
        ("", f"states, {slots}", rollout.states),
        ("", f"keys and values, {slots}", rollout.kv),
        ("", "together", rollout.total),
    ):
        memory_table.add_row(process, part, scaled(size, "B"))
    console.print(memory_table)
    stages = table_of(
        "\nStages, at the most",
        *("stage", "steps", "trajectories/step", "tokens/step", "trained FLOPs/step"),
        *("sampled FLOPs/step", "FLOPs of all steps"),
    )
    for stage in plan.stages:
        step = stage.training_flops + stage.generation_flops
        stages.add_row(
            stage.kind,
            f"{stage.steps:,}",
            f"{stage.trajectories:,}",
            f"{stage.tokens:,}",
            scaled(stage.training_flops, ""),
            scaled(stage.generation_flops, "") if stage.generation_flops else "-",
            scaled(step * stage.steps, ""),
        )
    console.print(stages)
    for line in (
        f"At {plan.length:,} tokens a trained token costs {scaled(plan.trained_token_flops, '')} "
        f"FLOPs, a generated one {scaled(plan.generated_token_flops, '')}.",
        "Activations and evaluations come on top; trajectories that end early and shared prefixes "
        "take away.",
    ):
        console.print(line, style="dim", highlight=False)


def scaled(value: float, unit: str) -> str:
    """Three digits and a decimal prefix: 1.11e16 FLOPs are "11.1 P"."""
    prefixes = ["", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q"]
    power = 0
    while value >= 999.5:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {prefixes[power]}{unit}".strip()


def table_of(title: str, *columns: str) -> Table:
    """A table without lines; columns of words are aligned left, those of figures right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        justify: JustifyMethod = "left" if column in WORDS else "right"
        table.add_column(column, justify=justify, no_wrap=column != "source")
    return table


def _models(models: list[Architecture]) -> Table:
    table = table_of(
        "Models", "model", "layers", "parameters", "active", "KV/token", "state", "source"
    )
    for model in models:
        count = parameters(model)
        kinds = [f"{model.count(kind)} {kind}" for kind in LayerKind if model.count(kind)]
        table.add_row(
            model.name,
            " + ".join(kinds),
            scaled(count.total, "").replace(" G", " B"),  # billions, as people say
            scaled(count.active, "").replace(" G", " B"),
            scaled(kv_bytes_per_token(model), "B"),
            scaled(state_bytes(model), "B"),
            model.source,
        )
    return table


def _costs(models: list[Architecture], length: Length) -> Table:
    table = table_of(
        f"\n{length.tokens:,} tokens ({length.asked}), FLOPs",
        *("model", "counted", "next token", "attention", "generation", "attention"),
        *("prefill", "training", "cache"),
    )
    for model in models:
        cache = scaled(memory(model, length.tokens).sequence, "B")
        for counted in conventions(model):
            found = costs(model, length.tokens, counted)
            table.add_row(model.name, _named(model, counted), *_cells(found), cache)
    return table


def _cells(found: Costs) -> list[str]:
    return [
        *_with_share(found.next_token),
        *_with_share(found.generation),
        scaled(found.prefill.total, "") if found.prefill else "-",
        scaled(found.training.total, "") if found.training else "-",
    ]


def _with_share(flops: Flops | None) -> tuple[str, str]:
    if flops is None:
        return "-", "-"
    return scaled(flops.total, ""), f"{flops.attention / flops.total:.1%}"


def _named(model: Architecture, convention: Convention) -> str:
    if convention is Convention.MULTI_HEAD and not model.count(LayerKind.LATENT):
        return "causal"
    return convention.value


def _ratios(model: Architecture, others: list[Architecture], lengths: list[Length]) -> Table:
    table = table_of(
        f"\n{model.name} as a share of", "versus", "counted", "tokens", "next token", "generation"
    )
    for other in others:
        for counted in conventions(model, other):
            for length in lengths:
                found = ratio(model, other, length.tokens, counted)
                single = "-" if found.next_token is None else f"{found.next_token:.1%}"
                table.add_row(
                    other.name,
                    _named(other, counted),
                    f"{length.tokens:,}",
                    single,
                    f"{found.generation:.1%}",
                )
    return table
