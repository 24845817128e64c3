"""The Lineage tab of a run: what it came from, and what came of it."""

from django.http import HttpRequest, HttpResponse

from webapp.experiments.lineage import lineage_of
from webapp.experiments.models import Run
from webapp.experiments.pages.run import RUNS, run_context
from webapp.experiments.relations import relations_of
from webapp.pages import page_of, show


@page_of(RUNS.select_related("reward_scheme__scheme"))
def lineage(request: HttpRequest, run: Run) -> HttpResponse:
    context = run_context(run, "lineage") | {
        "relations": relations_of(run),
        "lineage": lineage_of(run),
    }
    return show(request, "experiments/run_lineage.html", context)
