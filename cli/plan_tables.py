"""What `caravan plan flops` prints for people, and what the other tables share."""

from rich.console import Console, JustifyMethod
from rich.table import Table

from cli.plan_input import Length
from engine.planner import (
    Architecture,
    Convention,
    Costs,
    Flops,
    LayerKind,
    conventions,
    costs,
    kv_bytes_per_token,
    memory,
    parameters,
    ratio,
    state_bytes,
)

WIDTH = 116  # columns that the tables need; terminals that are narrower wrap lines
WORDS = {
    *("model", "layers", "source", "counted", "versus", "process", "part", "stage"),
    *("algorithm", "phase", "component", "limited by", "longest part"),
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
    console.print(models_table([model, *others]))
    for length in lengths:
        console.print(_costs([model, *others], length))
    if others:
        console.print(_ratios(model, others, lengths))
    for line in NOTES:
        console.print(line, style="dim", highlight=False)


def scaled(value: float, unit: str) -> str:
    """Three digits and a decimal prefix: 1.11e16 FLOPs are "11.1 P"."""
    prefixes = ["", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q"]
    power = 0
    while value >= 999.5:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {prefixes[power]}{unit}".strip()


def table_of(title: str | None, *columns: str) -> Table:
    """A table without lines; columns of words are aligned left, those of figures right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        justify: JustifyMethod = "left" if column in WORDS else "right"
        table.add_column(column, justify=justify, no_wrap=column != "source")
    return table


def models_table(models: list[Architecture]) -> Table:
    """Models with their layers, parameters and caches."""
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
