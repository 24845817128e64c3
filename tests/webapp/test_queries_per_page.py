"""A page asks the database as often for a thousand rows as for ten: every page of the URL map."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.browser.pages import every_page, furnished
from webapp.accounts.models import ApiToken, AuditEntry, Invitation, Project, User
from webapp.experiments import services
from webapp.experiments.models import (
    Checkpoint,
    Dataset,
    DatasetVersion,
    Experiment,
    Job,
    Preset,
    RewardScheme,
    RewardSchemeVersion,
    Run,
)
from webapp.experiments.recipes import recipe
from webapp.experiments.services import Launch
from webapp.monitoring.models import RunEvent
from webapp.monitoring.seed import driver as seed
from webapp.reviews.models import Comment, Queue, Trajectory

FEW, MANY = 10, 1_000
# What lists show, and what of a copied row must differ from the others.
COPIED: list[tuple[type[Model], dict[str, Callable[[int], Any]]]] = [
    (Experiment, {"name": lambda n: f"experiment {n}"}),
    (Run, {"name": lambda n: f"run {n}", "number": lambda n: 1000 + n}),
    (Checkpoint, {"path": lambda n: f"checkpoints/copy-{n}"}),
    (Preset, {"name": lambda n: f"preset {n}"}),
    (RewardScheme, {"name": lambda n: f"scheme {n}"}),
    (RewardSchemeVersion, {"number": lambda n: 100 + n}),
    (Dataset, {"name": lambda n: f"dataset {n}"}),
    (DatasetVersion, {"number": lambda n: 100 + n}),
    (Job, {}),
    (Trajectory, {"id": lambda n: f"copy-{n}"}),
    (Comment, {}),
    (Queue, {"name": lambda n: f"queue {n}"}),
    (RunEvent, {"seq": lambda n: 10**6 + n}),
    (ApiToken, {"prefix": lambda n: f"copy{n}"}),
    (Invitation, {"digest": lambda n: f"copy {n}"}),
    (AuditEntry, {}),
]


def copies(model: type[Model], vary: dict[str, Callable[[int], Any]], numbers: range) -> None:
    """Rows like the newest one, with another key."""
    first = model.objects.order_by("-pk").first()  # type: ignore[attr-defined]
    assert first is not None, f"there is no {model.__name__} to copy"
    key = model._meta.pk
    fields = [f for f in model._meta.concrete_fields if f is not key]
    same = {field.attname: getattr(first, field.attname) for field in fields}
    made = []
    for number in numbers:
        own = {name: of(number) for name, of in vary.items()}
        made.append(model(**{**same, **own}))
    model.objects.bulk_create(made, batch_size=500)  # type: ignore[attr-defined]


@pytest.fixture
def addresses(project: Project, owner: User) -> dict[str, str]:
    project.max_running = 3
    project.save()
    spec = services.check_spec(recipe("kg-search").text)
    made = seed.begin(project, owner, spec, Launch(name="played"), 2, 1.8e9)
    for _ in seed.play(made, 10):
        pass
    made.send()
    seed.end(made, "succeeded")
    return every_page(owner, furnished(project, owner, made))


def asked(client: Client, addresses: dict[str, str]) -> dict[str, int]:
    counts = {}
    for name, address in addresses.items():
        client.get(address)  # what a first visit writes is not counted
        with CaptureQueriesContext(connection) as queries:
            assert client.get(address).status_code == 200, address
        counts[name] = len(queries)
    return counts


def test_it_is_constant(page: Client, addresses: dict[str, str]) -> None:
    for model, vary in COPIED:
        copies(model, vary, range(FEW))
    few = asked(page, addresses)
    assert len(few) > 40
    for model, vary in COPIED:
        copies(model, vary, range(FEW, MANY))
    many = asked(page, addresses)
    assert {name: (few[name], many[name]) for name in few if many[name] > few[name]} == {}
