"""The machines: nodes and their devices, and the runs that work on them."""

from django.http import HttpRequest, HttpResponse

from webapp.accounts import access
from webapp.accounts.models import Project
from webapp.experiments.queries import active_runs
from webapp.monitoring import queries
from webapp.pages import page_of, show


@page_of(Project.objects.all())
def cluster(request: HttpRequest, project: Project) -> HttpResponse:
    newest = queries.newest_devices()
    data = [{"node": sample.node, "at": sample.at, "devices": sample.devices} for sample in newest]
    context = {
        "section": "cluster",
        "nodes": newest,
        "devices": data,
        "runs": active_runs(access.actor_of(request)).filter(is_external=False),
    }
    return show(request, "monitoring/cluster.html", context)
