"""What `caravan plan run` prints for people."""

from rich.console import Console
from rich.table import Table

from cli.plan_fit_tables import phases_table, seconds, suggestion, verdicts_table
from cli.plan_tables import WIDTH, models_table, scaled, table_of
from engine.planner import Advice, RunPlan
from engine.spec import ExperimentSpec

NOTES = (
    "Of one process: master weights and all state in fp32, products and their copy as specified.",
    "Time is an estimate for CPU cores as the quick start's, without tools, evaluations, the pool,",
    "or prefixes that samples share; docs/planner.md compares it with what was measured.",
)


def show_run(spec: ExperimentSpec, plan: RunPlan, advice: Advice) -> None:
    """Memory by process, phase and component, each stage at the most, and what fits the devices."""
    console = Console()
    console.width = max(console.width, WIDTH)
    console.print(models_table([plan.model]))
    for index, stage in enumerate(plan.stages):
        console.print(
            f"\nA trainer (of {spec.trainer.workers}) in stage {index + 1}, {stage.kind}",
            style="bold",
            highlight=False,
        )
        console.print(phases_table(None, stage.phases, plan.slots))
    console.print(
        f"\nA rollout worker (of {spec.rollout.workers}), {plan.length:,} tokens a slot",
        style="bold",
        highlight=False,
    )
    console.print(phases_table(None, (plan.rollout_phase,), plan.slots))
    console.print(
        f"\nAll processes together: {scaled(plan.memory, 'B')}, of them in every trainer "
        f"{scaled(plan.trainer.total, 'B')} of weights, gradients, optimizer and copy.",
        highlight=False,
    )
    console.print(_stages(plan))
    console.print(
        f"\nAll steps: about {seconds(plan.seconds)}. A trained token costs "
        f"{scaled(plan.trained_token_flops, '')} FLOPs, a generated one "
        f"{scaled(plan.generated_token_flops, '')}.",
        highlight=False,
    )
    cluster = advice.verdicts[0].case.cluster
    console.print(f"\nOn {cluster.name}, sharded over all of them:", highlight=False)
    console.print(verdicts_table(advice))
    console.print(suggestion(advice), highlight=False)
    for line in NOTES:
        console.print(line, style="dim", highlight=False)


def _stages(plan: RunPlan) -> Table:
    table = table_of(
        "\nStages, at the most",
        *("stage", "steps", "trajectories/step", "tokens/step", "trained FLOPs/step"),
        *("sampled FLOPs/step", "step", "longest part"),
    )
    for stage in plan.stages:
        longest = stage.time.limiting
        table.add_row(
            stage.kind,
            f"{stage.steps:,}",
            f"{stage.trajectories:,}",
            f"{stage.tokens:,}",
            scaled(stage.training_flops, ""),
            scaled(stage.generation_flops, "") if stage.generation_flops else "-",
            seconds(stage.time.seconds),
            longest.name,
        )
    return table
