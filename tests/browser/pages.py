"""Every page of the URL map, filled with ids of a project in which everything has something."""

from typing import Any

from django.conf import settings
from django.test import Client, override_settings

from tests.webapp.calls import pages
from tests.webapp.law10 import build_world, fill
from webapp.accounts.models import Project, User
from webapp.experiments.models import Dataset, RewardScheme
from webapp.monitoring.seed import people
from webapp.monitoring.seed.driver import Driver
from webapp.reviews.models import Episode, Queue

# Reached by a secret, by signing in or out, or by a program: no page of a person who is signed in.
NOT_HERE = {"healthz", "readyz", "login", "login-link", "invitation", "logout", "jsi18n"}
PLAIN = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}


def furnished(project: Project, owner: User, driver: Driver) -> dict[str, str]:
    """Ids by the word before them in URLs: of what people made around a run that was played."""
    world = build_world(project, owner)
    people.furnish(project, owner, driver.run)
    run = driver.run
    run.refresh_from_db()
    live = Episode.objects.filter(trajectory_id=world["live"])
    live.update(run=run, attempt=run.attempts.get())
    queue = Queue.objects.filter(run=run).order_by("created_at")[0]
    return world | {
        "runs": run.pk,
        "experiments": run.experiment_id,
        "trajectories": run.trajectories.order_by("-cursor", "-id")[0].pk,
        "datasets": Dataset.objects.get(project=project, name="held-out questions").pk,
        "rewards": RewardScheme.objects.get(project=project, name="strict format").pk,
        "queues": queue.pk,
        "queue-items": str(queue.items.order_by("-position")[0].pk),
    }


def every_page(user: User, world: dict[str, str]) -> dict[str, str]:
    """{name: address} of what a GET shows. Raises KeyError for a noun that the world lacks."""
    client = Client()
    client.force_login(user)
    found = {}
    for route, name in pages():
        if name in NOT_HERE:
            continue
        address = "/" + fill(route, world)
        with override_settings(STORAGES={**settings.STORAGES, "staticfiles": PLAIN}):
            answer = client.get(address)
        if answer.status_code == 200 and "text/html" in answer.get("Content-Type", ""):
            found[name] = address
    return found


def states(world: dict[str, str], others: list[Any]) -> dict[str, str]:
    """{name: address} of pages with something chosen, nothing found, or something wrong."""
    project, run = world["projects"], world["runs"]
    runs = ",".join([run, *(other.pk for other in others)])
    trajectory = world["trajectories"]
    return {
        "runs, none matches": f"/projects/{project}/runs/?q=success%3E2",
        "runs, a wrong filter": f"/projects/{project}/runs/?q=nonsense:1",
        "runs, grouped": f"/projects/{project}/runs/?group=variant",
        "runs, a group opened": f"/projects/{project}/runs/?group=name&open=try",
        "runs, columns searched": f"/projects/{project}/runs/?find=lr&columns=state,m:x,c:seed",
        "compare, chosen": f"/projects/{project}/compare/?runs={runs}",
        "compare, grouped": f"/projects/{project}/compare/?runs={runs}&group=variant",
        "compare, rates": f"/projects/{project}/compare/?runs={runs}&part=completion",
        "compare, tasks": f"/projects/{project}/compare/?runs={runs}&part=tasks",
        "compare, parallel": f"/projects/{project}/compare/?runs={runs}&part=parallel",
        "compare, config": f"/projects/{project}/compare/?runs={runs}&part=config",
        "launch, a recipe": f"/projects/{project}/launch/?recipe=smoke",
        "launch, a clone": f"/projects/{project}/launch/?clone={run}",
        "export, much": f"/runs/{others[0].pk}/export",
        "trajectories side by side": f"/trajectories/compare?a={trajectory}&b={trajectory}",
    }
