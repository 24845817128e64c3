"""A run with stored trajectories, and people who may and may not see it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from django.test import Client

from engine.records.shards import write_shard
from engine.records.trajectory import Trajectory as Record
from webapp import storage
from webapp.accounts.models import Membership, Project, Role, Team, User
from webapp.experiments.models import Attempt, Experiment, Run, State
from webapp.reviews.models import Trajectory

Store = Callable[[Sequence[Record]], list[Trajectory]]


@pytest.fixture(autouse=True)
def own_storage(tmp_path: Path, settings) -> None:
    settings.CARAVAN_STORAGE = str(tmp_path / "storage")
    storage._place.cache_clear()
    yield
    storage._place.cache_clear()


@pytest.fixture
def project(db) -> Project:
    return Project.objects.create(team=Team.objects.create(name="Team"), name="Project")


def _person(name: str, project: Project | None, role: Role | None) -> User:
    email = f"{name}@example.com"
    user = User.objects.create(username=email, email=email, display_name=name.title())
    if project and role:
        Membership.objects.create(project=project, user=user, role=role)
    return user


@pytest.fixture
def owner(project: Project) -> User:
    return _person("owner", project, Role.ADMIN)


@pytest.fixture
def teammate(project: Project) -> User:
    return _person("teammate", project, Role.EDITOR)


@pytest.fixture
def viewer(project: Project) -> User:
    return _person("viewer", project, Role.VIEWER)


@pytest.fixture
def outsider(db) -> User:
    other = Project.objects.create(team=Team.objects.create(name="Other"), name="Other")
    return _person("outsider", other, Role.ADMIN)


@pytest.fixture
def run(project: Project, owner: User) -> Run:
    experiment = Experiment.objects.create(project=project, name="Question")
    spec = {"reward": {"terms": [{"kind": "exact_answer", "weight": 2.0}]}, "stages": []}
    run = Run.objects.create(
        project=project,
        experiment=experiment,
        name="run",
        spec=spec,
        spec_hash="0" * 64,
        state=State.SUCCEEDED,
        created_by=owner,
    )
    Attempt.objects.create(run=run, number=1, state=State.SUCCEEDED)
    return run


@pytest.fixture
def store(run: Run) -> Store:
    """Store trajectories as ingest does: a shard in storage, and its index rows."""

    def stored(records: Sequence[Record]) -> list[Trajectory]:
        blob, shard, rows = write_shard(records)
        storage.put_blob(blob)
        first = Trajectory.objects.filter(run=run).count()
        return Trajectory.objects.bulk_create(
            Trajectory(
                run=run,
                attempt=run.attempts.get(),
                project=run.project,
                shard=shard,
                cursor=first + position,
                **row,
            )
            for position, row in enumerate(rows)
        )

    return stored


@pytest.fixture
def as_user() -> Callable[[User], Client]:
    def signed_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return signed_in
