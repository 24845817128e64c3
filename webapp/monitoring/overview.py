"""The curated charts of a run, and what the chart scripts are given with the page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.utils.translation import gettext_lazy

from webapp.experiments.models import Run
from webapp.monitoring.queries import clocks, series_list
from webapp.templating import run_colour


@dataclass(frozen=True)
class Panel:
    """One chart. `share` values lie in [0, 1]; `unit` names the vertical axis.

    `labels` tell the metrics apart; `low` and `high` bound the first one; values are multiplied
    by `scale` to be in the unit. The page derives an empty unit from the metric's name.
    """

    id: str
    title: Any
    metrics: tuple[str, ...]
    unit: Any
    labels: tuple[Any, ...] = ()
    share: bool = False
    low: str = ""
    high: str = ""
    scale: float = 1.0


PANELS = [
    Panel(
        "completion",
        gettext_lazy("Completion rate"),
        ("eval/completion_rate", "rollout/success"),
        gettext_lazy("share of tasks"),
        (gettext_lazy("held out"), gettext_lazy("training")),
        share=True,
        low="eval/completion_rate_low",
        high="eval/completion_rate_high",
    ),
    Panel("reward", gettext_lazy("Reward"), ("rollout/reward_mean",), gettext_lazy("reward")),
    Panel(
        "tool_success",
        gettext_lazy("Tool calls that succeed"),
        ("rollout/tool_success", "eval/tool_success"),
        gettext_lazy("share of calls"),
        (gettext_lazy("training"), gettext_lazy("held out")),
        share=True,
    ),
    Panel(
        "length",
        gettext_lazy("Trajectory length"),
        ("rollout/turns", "eval/turns"),
        gettext_lazy("turns"),
        (gettext_lazy("training"), gettext_lazy("held out")),
    ),
    Panel(
        "loss",
        gettext_lazy("Loss"),
        ("train/loss", "sft/loss"),
        gettext_lazy("loss"),
        (gettext_lazy("reinforcement"), gettext_lazy("cold start")),
    ),
    Panel("entropy", gettext_lazy("Entropy"), ("train/entropy",), gettext_lazy("nats a token")),
    Panel(
        "clip",
        gettext_lazy("Clip fraction"),
        ("train/clip_fraction",),
        gettext_lazy("share of tokens"),
        share=True,
    ),
    Panel(
        "weight",
        gettext_lazy("Importance weight"),
        ("train/importance_weight_mean", "train/importance_weight_max"),
        gettext_lazy("ratio"),
        (gettext_lazy("mean"), gettext_lazy("largest")),
    ),
    Panel(
        "staleness",
        gettext_lazy("Staleness"),
        ("pool/staleness_mean", "pool/staleness_max"),
        gettext_lazy("policy versions"),
        (gettext_lazy("mean"), gettext_lazy("largest")),
    ),
    Panel(
        "busy",
        gettext_lazy("Busy share"),
        ("time/busy_share_trainer", "time/busy_share_rollout"),
        gettext_lazy("share of the time"),
        (gettext_lazy("trainer"), gettext_lazy("rollout")),
        share=True,
    ),
    Panel(
        "throughput",
        gettext_lazy("Trajectories produced"),
        ("rollout/trajectories_per_s",),
        gettext_lazy("trajectories a day"),
        scale=86_400,
    ),
    Panel(
        "flat",
        gettext_lazy("Groups without variance"),
        ("rollout/zero_variance_groups",),
        gettext_lazy("share of groups"),
        share=True,
    ),
]

CURRICULUM_PANELS = [
    Panel(
        "process_weight",
        gettext_lazy("Weight of process terms"),
        ("reward/process_weight",),
        gettext_lazy("factor"),
    ),
    Panel(
        "outcome_process",
        gettext_lazy("Outcome and process reward"),
        ("reward/outcome", "reward/process"),
        gettext_lazy("reward"),
        (gettext_lazy("outcome"), gettext_lazy("process, unweighted")),
    ),
    Panel(
        "process_correlation",
        gettext_lazy("Process against outcome"),
        ("reward/process_correlation",),
        gettext_lazy("correlation; below 0 is an alarm"),
    ),
]

TREE_PANELS = [
    Panel(
        "tree_ratio",
        gettext_lazy("Token ratio"),
        ("train/tree_token_ratio",),
        gettext_lazy("ratio"),
    ),
    Panel(
        "tree_flops",
        gettext_lazy("FLOPs saved"),
        ("train/tree_saved_flops_share",),
        gettext_lazy("share of the batch"),
        share=True,
    ),
    Panel(
        "tree_memory",
        gettext_lazy("Memory saved"),
        ("train/tree_saved_memory_share",),
        gettext_lazy("share of the batch"),
        share=True,
    ),
]

EVALUATION_PANELS = [
    PANELS[0],
    Panel(
        "demonstrations",
        gettext_lazy("Completion and demonstrations"),
        ("eval/completion_rate", "eval/demonstration_token_accuracy"),
        gettext_lazy("share"),
        (gettext_lazy("completion"), gettext_lazy("token accuracy")),
        share=True,
    ),
    Panel(
        "length_split",
        gettext_lazy("Length by success"),
        ("eval/length_solved", "eval/length_unsolved"),
        gettext_lazy("sampled tokens"),
        (gettext_lazy("solved"), gettext_lazy("not solved")),
    ),
    Panel(
        "cost",
        gettext_lazy("Cost of a solved task"),
        ("eval/tokens_per_solved",),
        gettext_lazy("sampled tokens"),
    ),
    Panel(
        "errors",
        gettext_lazy("Faulty calls"),
        ("eval/format_error_rate", "eval/trajectory_error_rate"),
        gettext_lazy("share"),
        (gettext_lazy("calls of wrong form"), gettext_lazy("trajectories with a failed call")),
        share=True,
    ),
    Panel(
        "not_rated",
        gettext_lazy("Cut short, timed out, broken"),
        ("eval/truncated", "eval/timed_out", "eval/infra_failed"),
        gettext_lazy("trajectories"),
        (gettext_lazy("cut short"), gettext_lazy("timed out"), gettext_lazy("broken")),
    ),
]


def panel_row(panel: Panel) -> dict[str, Any]:
    """A panel as the chart scripts take it."""
    words = {"title": str(panel.title), "unit": str(panel.unit)}
    return {**asdict(panel), **words, "labels": [str(label) for label in panel.labels]}


def run_row(run: Run) -> dict[str, Any]:
    """A run as the chart scripts take it."""
    return {
        "id": run.pk,
        "name": run.name,
        "colour": run_colour(run),
        "style": getattr(run, "line_style", "solid"),
        "cursor": run.cursor,
        "active": run.ended_at is None,
    }


def panels_of(run: Run) -> list[Panel]:
    """The curated charts, with those of a reward curriculum where the run has one."""
    reward = run.spec.get("reward") if isinstance(run.spec, dict) else None
    has_curriculum = isinstance(reward, dict) and reward.get("curriculum")
    return [*PANELS, *CURRICULUM_PANELS] if has_curriculum else PANELS


def chart_data(run: Run, panels: Sequence[Panel] | None = None) -> dict[str, Any]:
    """First data of the chart scripts. The cursor is read first: what is stored after it is sent
    once more, which changes nothing, rather than missed.
    """
    return {
        "charts": {
            "runs": [run_row(run)],
            "panels": [panel_row(panel) for panel in panels or panels_of(run)],
            "series": {run.pk: series_list(run)},
            "clocks": {run.pk: clocks(run)},
        }
    }
