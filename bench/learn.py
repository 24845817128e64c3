"""How well the quick start learns, on the running Caravan, beside continued supervised learning.

For each seed the recipe `kg-search` is launched like any run. It is judged on its held-out tasks
of three and four hops, frozen by the seed, after the cold start and at its end. Then a second run
goes on from an equal cold start with supervised steps on the same demonstrations, as long as the
reinforcement learning took. Both are ordinary runs, to be looked at in the browser.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bench._runs import to_the_end
from bench.figures import Figure, Options
from caravan import Client
from workers.local.places import UserError

RECIPE = "kg-search"
SEEDS = 3
ENOUGH = 0.95  # a completion rate at the end that makes up for a small gain


@dataclass(frozen=True)
class Judged:
    """Completion rates of one seed; `gain_low` is of the paired 95% interval."""

    seed: int
    before: float
    after: float
    after_low: float
    gain: float
    gain_low: float
    minutes: float  # from launch to the end
    continued: float  # of the other arm, at its end
    continued_steps: int
    run: str


def run(options: Options) -> list[Figure]:
    with Client() as client:
        try:
            judged = [_judge(client, seed) for seed in range(options.seeds or SEEDS)]
        except UserError as error:
            return [_not_taken(metric, str(error)) for metric in METRICS]
    return _figures(judged)


def _judge(client: Client, seed: int) -> Judged:
    main = _run(client, seed, "rl", {})
    sft, rl = main["stages"][-2], main["stages"][-1]
    steps = round(sft["steps"] * _seconds(rl) / _seconds(sft))
    cold_start = next(stage for stage in main["spec"]["stages"] if stage["kind"] == "sft")
    last = len(main["spec"]["stages"]) - 1
    arm = _run(client, seed, "sft", {f"stages.{last}": {**cold_start, "steps": max(1, steps)}})
    before, after = sft["summary"], rl["summary"]
    return Judged(
        seed=seed,
        before=before["completion_rate"],
        after=after["completion_rate"],
        after_low=after["completion_rate_low"],
        gain=main["summary"]["gain"],
        gain_low=main["summary"]["gain_low"],
        minutes=(_time(main["ended_at"]) - _time(main["created_at"])).total_seconds() / 60,
        continued=arm["stages"][-1]["summary"]["completion_rate"],
        continued_steps=steps,
        run=main["id"],
    )


def _run(client: Client, seed: int, arm: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Launch the recipe and wait for its end. Raises UserError where it does not succeed."""
    launched = client.launch(
        recipe=RECIPE,
        overrides={"seed": seed, **overrides},
        experiment="bench learn",
        name=f"bench-{arm}-seed-{seed}",
        tags=["bench"],
    )
    return to_the_end(client, launched)


def _figures(judged: list[Judged]) -> list[Figure]:
    """Means over the seeds where nothing is asked, the worst seed where a bar is."""
    seeds = f"{RECIPE}, seeds {', '.join(str(one.seed) for one in judged)}"
    each = "; ".join(
        f"seed {one.seed}: {one.before:.3f} -> {one.after:.3f}, continued {one.continued:.3f}, "
        f"{one.minutes:.1f} min, {one.run}"
        for one in judged
    )
    mean = {
        name: sum(getattr(one, name) for one in judged) / len(judged)
        for name in ("before", "after", "continued")
    }
    enough = all(one.after >= ENOUGH for one in judged)
    return [
        Figure("learn", "completion_before", mean["before"], "share", setup=f"{seeds}, mean"),
        Figure("learn", "completion_after", mean["after"], "share", setup=each),
        Figure(
            "learn",
            "completion_after_lower",
            min(one.after_low for one in judged),
            "share",
            "at least 0.88",
            setup="lower end of the 95% Wilson interval, worst seed",
        ),
        Figure(
            "learn",
            "gain",
            min(one.gain for one in judged),
            "share",
            "" if enough else "at least 0.15",
            setup="worst seed"
            + (f"; every seed ends at {ENOUGH} or more, which is enough" if enough else ""),
        ),
        Figure(
            "learn",
            "gain_lower",
            min(one.gain_low for one in judged),
            "share",
            "at least 0.0001",
            setup="lower end of the paired 95% interval, worst seed: it must exclude 0",
        ),
        Figure(
            "learn",
            "continued_sft",
            mean["continued"],
            "share",
            setup=f"mean; {max(one.continued_steps for one in judged)} more supervised steps at "
            "most, for as long as the reinforcement learning took",
        ),
        Figure(
            "learn",
            "minutes",
            max(one.minutes for one in judged),
            "min",
            "at most 15",
            setup="from launch to the end, slowest seed",
        ),
    ]


METRICS = (
    "completion_before",
    "completion_after",
    "completion_after_lower",
    "gain",
    "gain_lower",
    "continued_sft",
    "minutes",
)


def _not_taken(metric: str, why: str) -> Figure:
    return Figure("learn", metric, None, "min" if metric == "minutes" else "share", setup=why)


def _seconds(stage: dict[str, Any]) -> float:
    return (_time(stage["ended_at"]) - _time(stage["started_at"])).total_seconds()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
