"""Draws an experiment, and writes its verdicts into its place in docs/claims.md."""

from pathlib import Path
from typing import Any

from bench.signature._experiment import Experiment, Results, word
from bench.signature._seeds import shown

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's
NO_MATPLOTLIB = "not drawn: matplotlib is missing (it is in requirements/dev.txt)"


def publish(experiment: Experiment, results: Results, docs: Path) -> str:
    """Draws into images/claims of `docs` and replaces the section's marked part; says what it did.

    Raises ValueError where claims.md has no such part.
    """
    page = docs / "claims.md"
    page.write_text(replaced(page.read_text(), experiment.name, section(experiment, results)))
    image = docs / "images" / "claims" / f"{experiment.name}.svg"
    return "written" if draw(experiment, results, image) else f"written, {NO_MATPLOTLIB}"


def replaced(page: str, name: str, text: str) -> str:
    """The page with another text between the marks of an experiment."""
    start, end = f"<!-- signature.{name} -->\n", f"<!-- end of signature.{name} -->"
    before, found, rest = page.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"docs/claims.md lacks the lines {start.strip()!r} and {end!r}")
    return f"{before}{start}{text}\n{end}{after}"


def section(experiment: Experiment, results: Results) -> str:
    """Claims, verdicts, numbers and drawing of an experiment in Markdown."""
    verdicts = experiment.verdicts(results)
    lines = []
    for claim in experiment.claims:
        verdict = verdicts[claim.key]
        lines += [
            f"**Claim** (`{claim.key}`): {claim.says} *Source: {claim.source}.*",
            "",
            f"**{word(verdict)}.** {verdict.reading}",
            "",
        ]
        if verdict.numbers:
            lines += ["| figure | mean and 95% interval |", "|---|---|"]
            lines += [f"| {name} | {shown(number)} |" for name, number in verdict.numbers.items()]
            lines += [""]
    seeds = len(results.seeds)
    return "\n".join(
        [
            *lines,
            f"![{experiment.name}](images/claims/{experiment.name}.svg)",
            "",
            f"{seeds} seeds an arm; {experiment.budget}. "
            f"`./caravan bench signature.{experiment.name}`",
        ]
    )


def draw(experiment: Experiment, results: Results, path: Path) -> bool:
    """An SVG on a light ground, the same for the same results. False without matplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        return False
    style: Any = {  # its names are a type of their own, which only matplotlib has
        "font.size": 9,
        "svg.fonttype": "none",
        "svg.hashsalt": experiment.name,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(3.6 * experiment.panels + 0.4, 2.9), layout="constrained")
        figure.set_facecolor("#ffffff")
        axes = list(figure.subplots(1, experiment.panels, squeeze=False)[0])
        experiment.draw(results, axes)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})
    return True
