"""An outsider sees nothing: generated from the URL map, the API's routes and its fields.

Whoever adds a route, a field or a noun that the tables do not know makes a test fail here.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLResolver, get_resolver

from tests.webapp.calls import BODIES, QUERIES, REFERENCES, body_of, call, operations, pages
from tests.webapp.law10 import MARK, build_world, fill
from tests.webapp.support import SPEC, Api, person
from webapp.accounts.models import Project, Role, Team, User
from webapp.api import api as rest
from webapp.experiments.models import Run
from webapp.sweeps.models import Sweep
from webapp.urls_ingest import api as ingest

PUBLIC = {"healthz", "readyz", "login", "login-link", "invitation", "set_language"}


# Pages of the person who is signed in, about no project.
PERSONAL = {
    "home", "logout", "account", "theme", "design", "jsi18n", "project_create",
    "trajectories_compare", "inbox", "inbox_read", "notice", "markdown",
}  # fmt: skip


# What a viewer may change: their own tokens and views, and nothing of the project.
FOR_VIEWERS = {"token_create", "token_revoke", "view_save", "view_change"}


PAGES = list(pages())


OPERATIONS = list(operations())


CALLS = [(method, path) for method, path, _ in OPERATIONS]


UNSAFE = [(method, path) for method, path in CALLS if method != "GET"]


# Calls about the caller alone; another project makes no difference to them.
PERSONAL_CALLS = {
    ("GET", "openapi.json"),
    ("GET", "me"),
    ("GET", "recipes"),
    ("GET", "recipes/{name}"),
    ("GET", "specs/schema"),
    ("POST", "specs/validate"),
    ("GET", "tokens"),
    ("POST", "tokens"),
    ("DELETE", "tokens/{token_id}"),
    ("POST", "projects"),
    ("GET", "cluster/devices"),
    ("POST", "inbox/read"),
}


# Fields and parameters that name nothing of a project.
PLAIN = """
    accepted action add after all answer archived archived_trajectories at at_once attempt axis
    bare based_on before buckets budget by category choice closed code_version commented comments
    config count cursor definition devices direction dry_run email enabled events expires_at
    exports failed_calls field file filter format from group halving hops instructions is_default
    keep_checkpoints kind labels level limit mark max_reward max_running method metric metrics
    min_reward name names newest node note notes notices number outcome overrides page pause
    place pools position preview priority purpose q query question read recipe record remove
    replace resolved reviews_per_item role rollouts rubric sample sampled scope scores search
    seed seeds series shared since size sort space span spec start state step steps stop_reason
    style subject success tag tags task tasks temperature text to token tokens training trials
    unread url version
"""


@pytest.fixture(scope="module")
def people(django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[str, Any]]:
    """A world, and people inside and outside of it, for all tests here."""
    with django_db_blocker.unblock():
        project = Project.objects.create(team=Team.objects.create(name="Team"), name="Project")
        owner = person("owner", project, Role.ADMIN)
        elsewhere = Project.objects.create(
            team=Team.objects.create(name="Other team"), name="Elsewhere"
        )
        yield {
            "owner": owner,
            "viewer": person("viewer", project, Role.VIEWER),
            "outsider": person("outsider", elsewhere, Role.ADMIN),
            "world": build_world(project, owner),
        }
        call_command("flush", interactive=False)


@pytest.fixture
def world(people: dict[str, Any], db: None) -> dict[str, str]:
    return dict(people["world"])


@pytest.fixture
def owner(people: dict[str, Any], db: None) -> User:
    return User.objects.get(pk=people["owner"].pk)


@pytest.fixture
def viewer(people: dict[str, Any], db: None) -> User:
    return User.objects.get(pk=people["viewer"].pk)


@pytest.fixture
def outsider(people: dict[str, Any], db: None) -> User:
    return User.objects.get(pk=people["outsider"].pk)


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def text_of(response: Any) -> str:
    if response.streaming:
        return ""
    return str(response.content.decode())


@pytest.mark.django_db
@pytest.mark.parametrize(("route", "name"), PAGES)
def test_without_a_session_a_page_asks_for_a_login(
    world: dict[str, str], route: str, name: str
) -> None:
    if name in PUBLIC:
        return
    url = "/" + fill(route, world)
    for response in (Client().get(url), Client().post(url)):
        assert response.status_code in (302, 405), url
        if response.status_code == 302:
            assert response["Location"].startswith("/login/"), url
        assert MARK not in text_of(response)


@pytest.mark.django_db
@pytest.mark.parametrize(("route", "name"), PAGES)
def test_an_outsider_finds_no_page(
    world: dict[str, str], outsider: User, route: str, name: str
) -> None:
    if name in PUBLIC:
        return
    client, url = signed_in(outsider), "/" + fill(route, world)
    if name == "trajectories_compare":
        url += f"?a={world['trajectories']}&b={world['trajectories']}"
    for response in (client.get(url), client.post(url)):
        assert MARK not in text_of(response), url
        if name not in PERSONAL or name == "trajectories_compare":
            assert response.status_code in (404, 405), url


@pytest.mark.django_db
@pytest.mark.parametrize(("route", "name"), PAGES)
def test_a_viewer_changes_nothing_by_a_page(
    world: dict[str, str], viewer: User, route: str, name: str
) -> None:
    if name in PUBLIC | PERSONAL | FOR_VIEWERS:
        return
    client, url = signed_in(viewer), "/" + fill(route, world)
    assert client.get(url).status_code in (200, 302, 403, 405), url
    with CaptureQueriesContext(connection) as queries:
        response = client.post(url)
    if response.status_code not in (403, 405):  # it shows the page, and writes nothing
        assert response.status_code == 200, url
        written = [q["sql"] for q in queries if re.match(r"INSERT|UPDATE|DELETE", q["sql"])]
        assert [sql for sql in written if '"django_session"' not in sql] == [], url


def test_every_route_of_the_api_is_in_its_schema() -> None:
    routes = {
        str(pattern.pattern).replace("<", "{").replace(">", "}").replace("{path:", "{")
        for resolver in get_resolver().url_patterns
        if isinstance(resolver, URLResolver) and resolver.namespace == "api"
        for pattern in resolver.url_patterns
    }
    assert routes - {""} == {path for _, path in CALLS}
    assert Client().get("/api/v1/").status_code == 404


def test_every_unsafe_call_has_a_body_here() -> None:
    assert set(BODIES) == set(UNSAFE)


@pytest.mark.django_db
@pytest.mark.parametrize(("method", "path"), CALLS)
def test_without_a_token_a_call_is_401(world: dict[str, str], method: str, path: str) -> None:
    for token in ("", "cvn_0123456789_guess", "nonsense"):
        api = Api(None)
        api.token = token
        response = call(api, method, path, world)
        assert response.status_code == 401, path
        assert response["Content-Type"] == "application/problem+json"


@pytest.mark.django_db
@pytest.mark.parametrize(("method", "path"), CALLS)
def test_an_outsider_finds_nothing_by_a_call(
    world: dict[str, str], outsider: User, method: str, path: str
) -> None:
    response = call(Api(outsider), method, path, world)
    assert MARK not in text_of(response), path
    names_something = "{" in path or path in QUERIES
    names_something |= bool(REFERENCES.keys() & BODIES.get((method, path), {}).keys())
    if names_something and (method, path) not in PERSONAL_CALLS:
        assert response.status_code == 404, (path, response.content)
    elif method == "DELETE":
        assert response.status_code == 404
    else:
        assert response.status_code < 300, (path, response.content)


@pytest.mark.django_db
@pytest.mark.parametrize(("method", "path"), UNSAFE)
def test_a_viewer_changes_nothing_by_a_call(
    world: dict[str, str], viewer: User, method: str, path: str
) -> None:
    response = call(Api(viewer), method, path, world)
    if (method, path) in PERSONAL_CALLS - {("POST", "projects")}:
        assert response.status_code in (200, 201, 404)
    else:
        assert response.status_code == 403, (path, response.content)


@pytest.mark.django_db
@pytest.mark.parametrize(("method", "path"), UNSAFE)
def test_a_token_that_reads_changes_nothing(
    world: dict[str, str], owner: User, method: str, path: str
) -> None:
    response = call(Api(owner, scope="read"), method, path, world)
    if (method, path) != ("POST", "specs/validate"):
        assert response.status_code == 403, (path, response.content)


@pytest.mark.django_db
@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_token_of_another_project_finds_nothing(
    world: dict[str, str], owner: User, outsider: User, method: str, path: str
) -> None:
    """A person in two projects, with a token of one: the other does not exist for it."""
    elsewhere = Project.objects.get(name="Elsewhere")
    elsewhere.memberships.create(user=owner, role=Role.ADMIN)
    response = call(Api(owner, project=elsewhere), method, path, world)
    if (method, path) == ("GET", "me"):
        assert [p["name"] for p in response.json()["projects"]] == ["Elsewhere"]
    elif (method, path) not in PERSONAL_CALLS or method == "DELETE":
        assert MARK not in text_of(response), path
        assert response.status_code in (200, 404), (path, response.content)


def fields_of(operation: dict[str, Any]) -> set[str]:
    """Names of the body's fields and of the query's parameters."""
    found = {p["name"] for p in operation.get("parameters", []) if p["in"] == "query"}
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = content["schema"]
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            schema = rest.get_openapi_schema()["components"]["schemas"][name]
        found |= set(schema.get("properties", {}))
    return found


def test_every_field_is_known_as_a_reference_or_as_plain() -> None:
    fields = set().union(*(fields_of(operation) for _, _, operation in OPERATIONS))
    assert fields - set(REFERENCES) - set(PLAIN.split()) == set()


# (call, field) where a foreign id is asked for; the call itself is about one's own project.
FOREIGN = [
    (method, path, field)
    for method, path, operation in OPERATIONS
    for field in sorted(fields_of(operation) & set(REFERENCES))
]


@pytest.mark.django_db
@pytest.mark.parametrize(("method", "path", "field"), FOREIGN)
def test_a_foreign_id_in_a_field_leads_nowhere(
    world: dict[str, str], outsider: User, method: str, path: str, field: str
) -> None:
    """An outsider, in a project of their own, names something of this one."""
    own = build_world(Project.objects.get(name="Elsewhere"), outsider)
    api = Api(outsider)
    foreign: Any = world[REFERENCES[field]]
    if field == "assignees":
        foreign = [int(foreign)]
    filled = fill(path, own)
    if method == "GET":
        query = QUERIES.get(path, "").format(**own)
        kept = [part for part in query.split("&") if part and not part.startswith(f"{field}=")]
        response = api("GET", filled + "?" + "&".join([*kept, f"{field}={foreign}"]))
        theirs = {world[noun] for noun in ("runs", "experiments", "trajectories", "datasets")}
        answered = text_of(response)
        assert response.status_code == 404 or not any(pk in answered for pk in theirs), answered
        return
    body = body_of(method, path, own)
    if isinstance(body.get(field), list):
        foreign = [foreign]
    if field == "preset":
        body.pop("spec")
    response = api(method, filled, {**body, field: foreign})
    if field == "experiment":
        # Here it is a name: what is made goes to one's own experiment of that name.
        made = response.json().get("run_id") or response.json()["id"]
        rows = Sweep.objects if path == "sweeps" else Run.objects
        assert rows.get(pk=made).experiment_id != foreign
    else:
        assert response.status_code in (404, 422), response.content


@pytest.mark.django_db
@pytest.mark.usefixtures("at_ingest")
@pytest.mark.parametrize(("method", "path"), [(m, p) for m, p, _ in operations(ingest)])
def test_ingest_knows_its_tokens_only(owner: User, method: str, path: str) -> None:
    token = Api(owner).token
    for given in ("", token, "cva_guess", "cvs_guess"):
        headers = {"Authorization": f"Bearer {given}"} if given else {}
        data = {"attempt": "a", "ticket": "t", "phase": "p", "stage": 0, "step": 0, "items": []}
        response = Client().generic(
            method,
            f"/ingest/v1/{re.sub('{.*}', '0' * 64, path)}",
            json.dumps({**data, "state": "failed"}),
            content_type="application/json",
            headers=headers,
        )
        assert response.status_code == 401, (path, given, response.content)


@pytest.mark.django_db
def test_a_member_of_nothing_sees_empty_lists() -> None:
    api = Api(person("nobody"))
    assert api("GET", "projects").json() == []
    for path in ("runs", "experiments", "presets", "datasets", "reward-schemes"):
        assert api("GET", path).json()["items"] == []
    assert api("GET", "cluster/devices").status_code == 404
    assert api("POST", "runs", {"spec": SPEC}).status_code == 404
