"""What `caravan plan fit` prints for people."""

from rich.console import Console
from rich.table import Table

from cli.plan_tables import scaled, table_of
from engine.planner import (
    REASONS,
    Advice,
    Architecture,
    Case,
    Fix,
    Phase,
    StepTime,
    Verdict,
    parameters,
)

WIDTH = 116
CHANGES = {
    "engine_sleeps": "the engine sleeps while training",
    "logits_chunked": "logits in chunks of 2,048 tokens",
    "sequence_parallel": "a sequence over the devices of a node",
    "offload": "models leave the device when unused",
    "moments_8bit": "bf16 weights with moments of 8 bits",
    "optimizer_on_host": "optimizer in the hosts' RAM",
    "critic_1b": "a critic of 1 billion parameters",
    "no_reference": "no KL term and so no reference",
    "lora": "LoRA",
    "more_devices": "devices",
}
LIMITS = {
    "arithmetic": "arithmetic",
    "weights": "reading weights from memory",
    "caches": "reading keys, values and states from memory",
    "links": "links between devices",
    "host": "the link to the host",
}
LAST = ("fragmentation", "context")  # of the components, where the rest adds up before
OTHERS = (
    "Where only the form of tool calls is wrong, DPO repairs it from pairs; where experts of "
    "several domains are to be one model, distil them on policy (OPD)."
)
NOTES = (
    "Bytes of one device in the largest phase, with 10% for fragmentation and a device's context.",
    "Weights, gradients and moments are sharded over all devices; a micro-batch is one trajectory.",
    "Time is an estimate at full length: training reaches 40% of published FLOP/s, prefill 50%,",
    "decoding 60% of published bandwidth; tools are not waited for. Sources: docs/planner.md.",
)


def show_fit(model: Architecture, advice: Advice, algorithm: str | None) -> None:
    """All algorithms in a table, one of them in full, and the suggestion."""
    console = Console()
    console.width = max(console.width, WIDTH)
    cluster = advice.verdicts[0].case.cluster
    console.print(
        f"{model.name}: {scaled(parameters(model).total, '').replace(' G', ' B')} parameters "
        f"({model.source})\n{cluster.name}: {scaled(cluster.device.memory, 'B')} each "
        f"({cluster.device.source})",
        highlight=False,
    )
    console.print(verdicts_table(advice))
    shown = advice.of(algorithm or advice.suggested or "grpo")
    console.print(_memory(shown.case))
    if shown.fits:
        console.print(_time(shown.case))
    console.print(_help(shown), highlight=False)
    console.print(suggestion(advice), highlight=False)
    for line in NOTES:
        console.print(line, style="dim", highlight=False)


def seconds(value: float) -> str:
    """A time for people: 0.42 s, 12 s, 3.4 min, 5.1 h, 12 d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if value >= 1.5 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"


def verdicts_table(advice: Advice) -> Table:
    """Every algorithm: whether it fits, and its time or what breaks."""
    table = table_of("\nAlgorithms", "algorithm", "fits", "peak", "phase", "step", "limited by")
    for one in advice.verdicts:
        peak = one.case.memory.peak
        row = [one.algorithm, "yes" if one.fits else "NO", scaled(peak.total, "B"), peak.name]
        if one.broken:
            row += ["-", _breaks(one)]
        else:
            longest = one.case.time.limiting
            row += [seconds(one.case.time.seconds), f"{longest.name}: {LIMITS[longest.limit]}"]
        table.add_row(*row)
    return table


def _breaks(verdict: Verdict) -> str:
    broken = verdict.broken
    if broken is None:
        return ""
    over = f"{scaled(broken.over, 'B')} too much"
    if broken.phase == "host":
        return f"RAM of a node: {scaled(broken.size, 'B')}, {over}"
    return f"{over}; most of it {broken.component}, {scaled(broken.size, 'B')}"


def phases_table(title: str | None, phases: tuple[Phase, ...], slots: int) -> Table:
    """Bytes by component and phase; what is proportional to the rest comes last."""
    table = table_of(title, "component", *(phase.name for phase in phases))
    found = dict.fromkeys(name for phase in phases for name in phase.components)
    for name in [*(name for name in found if name not in LAST), *LAST]:
        cells = [phase.components.get(name) for phase in phases]
        label = f"{name} ({slots} sequences)" if name == "keys and values" else name
        table.add_row(label, *("-" if cell is None else scaled(cell, "B") for cell in cells))
    table.add_row("together", *(scaled(phase.total, "B") for phase in phases))
    return table


def _memory(case: Case) -> Table:
    title = f"\n{case.algorithm}: bytes of a device by phase"
    table = phases_table(title, case.memory.phases, case.setup.slots)
    if case.memory.host:
        table.add_row("in RAM, all nodes", scaled(case.memory.host, "B"))
    return table


def _time(case: Case) -> Table:
    table = table_of(f"\n{case.algorithm}: a step", "part", "time", "FLOPs", "limited by")
    for part in case.time.parts:
        cost = scaled(part.flops, "") if part.flops else "-"
        table.add_row(part.name, seconds(part.seconds), cost, LIMITS[part.limit])
    together = f"{case.work.trajectories:,} trajectories"
    if case.needs.samples:
        over = case.setup.engine_parallel
        together += f"; {case.slots} at once in an engine of {over} device{'s' * (over > 1)}"
    total: StepTime = case.time
    table.add_row("together", seconds(total.seconds), scaled(total.flops, ""), together)
    return table


def _help(verdict: Verdict) -> str:
    if verdict.broken is None:
        return ""
    lines = [f"\n{verdict.algorithm} does not fit: {_breaks(verdict)}."]
    if not verdict.fixes:
        lines.append("No change that the planner knows makes it fit.")
    lines += [f"  fits with {_fix(fix)}" for fix in verdict.fixes]
    return "\n".join(lines)


def _fix(fix: Fix) -> str:
    words = [
        f"{fix.case.cluster.count} {CHANGES[name]}" if name == "more_devices" else CHANGES[name]
        for name in fix.changes
    ]
    peak = scaled(fix.case.memory.peak.total, "B")
    return f"{' and '.join(words)}: {peak}, a step in {seconds(fix.case.time.seconds)}"


def suggestion(advice: Advice) -> str:
    """Which algorithm to take, and why."""
    if advice.suggested is None:
        return f"\nSuggested: none. {REASONS['none']}\n"
    chosen = advice.of(advice.suggested)
    how = "" if chosen.fits else f", with {_fix(chosen.fixes[0])}"
    return f"\nSuggested: {advice.suggested}{how}. {REASONS[advice.reason]}\n{OTHERS}\n"
