"""People of a project and outside of it, runs of theirs, and clients that call as each of them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client, override_settings

from tests.webapp.support import SPEC, Api, Driver, person, start
from webapp.accounts.models import Project, Role, Team, User
from webapp.experiments import services
from webapp.experiments.models import Run


@pytest.fixture(scope="session", autouse=True)
def own_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Blobs and runs of these tests lie in a folder of theirs; static files need no manifest."""
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    with override_settings(
        CARAVAN_STORAGE=str(tmp_path_factory.mktemp("storage")),
        STORAGES={**settings.STORAGES, "staticfiles": plain},
        ALLOWED_HOSTS=["testserver", "127.0.0.1", "localhost"],
    ):
        yield


@pytest.fixture
def project(db: None) -> Project:
    team = Team.objects.create(name="Team")
    return Project.objects.create(team=team, name="Project", max_running=2)


@pytest.fixture
def owner(project: Project) -> User:
    return person("owner", project, Role.ADMIN)


@pytest.fixture
def editor(project: Project) -> User:
    return person("editor", project, Role.EDITOR)


@pytest.fixture
def viewer(project: Project) -> User:
    return person("viewer", project, Role.VIEWER)


@pytest.fixture
def outsider(db: None) -> User:
    team = Team.objects.create(name="Other team")
    return person("outsider", Project.objects.create(team=team, name="Elsewhere"), Role.ADMIN)


@pytest.fixture
def api(owner: User) -> Api:
    return Api(owner)


@pytest.fixture
def page(owner: User) -> Client:
    client = Client()
    client.force_login(owner)
    return client


@pytest.fixture
def launch(project: Project, owner: User) -> Callable[..., Run]:
    """Launch a run; keywords replace fields of the spec."""

    def launch(**fields: Any) -> Run:
        return services.launch_run(project, owner, services.check_spec({**SPEC, **fields}))

    return launch


@pytest.fixture
def run(launch: Callable[..., Run]) -> Run:
    return launch()


@pytest.fixture
def driver(run: Run) -> Driver:
    return start(run)


@pytest.fixture
def at_ingest(settings: Any) -> None:
    """Serve the URLs of the ingest process."""
    settings.ROOT_URLCONF = "webapp.urls_ingest"
    settings.MIDDLEWARE = ["webapp.middleware.request_id"]
