"""Judge the stored runs of the signature experiments, and put the verdicts into docs/claims.md.

Each experiment is a module here and a benchmark of its own, `caravan bench signature.NAME`, which
makes the runs that are missing: every arm with every seed, one file a run, so that a benchmark
that was interrupted goes on where it stopped. A module describes itself as an `Experiment`:

    @dataclass(frozen=True)
    class Settings:            # all that decides a result; a change starts the runs anew
        revision: int = 1      # count up where code changes a result and no setting does
        steps: int = 400

    def run_one(settings: Settings, arm: str, seed: int) -> Outcome: ...
    def judge(results: Results) -> dict[str, Verdict]: ...     # one for each claim's key
    def draw(results: Results, panels: list[Axes]) -> None: ...

    EXPERIMENT = Experiment(name="lag", settings=Settings(), arms=("ppo", "decoupled"),
                            claims=(Claim("stale", "says", "source"),), budget="equal ...",
                            run_one=run_one, judge=judge, draw=draw)
    run = EXPERIMENT.run

- `run_one` makes one run on one thread, of about a minute at most, seeds everything that it draws
  from `seed`, and returns numbers, lists of numbers and texts by name: what JSON can hold.
- Arms get equal budgets; `budget` says which. Hyper-parameters are chosen on seeds from 1000 up,
  which no benchmark runs.
- `judge` is given seeds that all arms have, five at least; it says for each claim whether the
  intervals bear it out, by a rule that was fixed before the runs and stands in its code. Means over
  seeds come with `mean_interval` (Student's t), pairs of arms with `paired` (the same over the
  differences by seed), rates with `wilson`; all are in `bench.signature._seeds`.
- All of these names are imported from here: `from bench.signature import Experiment, ...`.
- `draw` gets `panels` matplotlib axes of one SVG. Colours of arms are `COLOURS`.
- A test runs `run_one` with tiny settings and judges made-up results both ways.
"""

import importlib
from pathlib import Path

from bench.figures import Figure, Options
from bench.signature._experiment import Claim, Experiment, Outcome, Results, Verdict
from bench.signature._page import COLOURS, publish
from bench.signature._seeds import mean_interval, paired, wilson

__all__ = [
    "COLOURS", "Claim", "Experiment", "Outcome", "Results", "Verdict", "mean_interval", "paired",
    "wilson",
]  # fmt: skip

DOCS = Path(__file__).parents[2] / "docs"


def experiments() -> list[Experiment]:
    """Every module here that has an EXPERIMENT, by name."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names if name[0] != "_"]
    return [module.EXPERIMENT for module in modules if hasattr(module, "EXPERIMENT")]


def run(options: Options) -> list[Figure]:
    """Makes no runs. Experiments with all their runs are drawn and written into the page."""
    figures = []
    for experiment in experiments():
        results = experiment.stored(options.folder)
        figures += experiment.figures(results)
        if experiment.is_complete(results):
            said = publish(experiment, results, DOCS)
            options.say(f"signature.{experiment.name}: {said}")
    return figures
