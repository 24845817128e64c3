"""An outsider sees nothing: generated from the URL map, the API's routes and its fields.

Whoever adds a route, a field or a noun that these tables do not know makes a test fail here.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver

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


def pages(patterns: Any = None, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(route, name) of everything that is no API."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            if pattern.namespace != "api":
                yield from pages(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route, pattern.name or route


def operations(of: Any = rest) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path below the API's root, OpenAPI operation)."""
    for path, methods in of.get_openapi_schema(path_prefix="/")["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path.lstrip("/"), operation


PAGES = list(pages())
OPERATIONS = list(operations())
CALLS = [(method, path) for method, path, _ in OPERATIONS]
UNSAFE = [(method, path) for method, path in CALLS if method != "GET"]

SWEEP = {
    "project": "projects",
    "spec": SPEC,
    "space": [{"kind": "choice", "path": "seed", "values": [1, 2]}],
    "budget": {"trials": 2},
}
# A body for every unsafe call that is valid, whoever sends it.
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "projects"): {"name": "New"},
    ("PATCH", "projects/{project_id}"): {"max_running": 3},
    ("PATCH", "projects/{project_id}/members/{user_id}"): {"role": "viewer"},
    ("DELETE", "projects/{project_id}/members/{user_id}"): {},
    ("POST", "projects/{project_id}/invitations"): {"email": "new@example.com"},
    ("DELETE", "invitations/{invitation_id}"): {},
    ("POST", "projects/{project_id}/webhooks"): {
        "url": "https://example.com/",
        "events": ["run.failed"],
    },
    ("PATCH", "webhooks/{webhook_id}"): {"enabled": False},
    ("DELETE", "webhooks/{webhook_id}"): {},
    ("POST", "webhooks/{webhook_id}/rotate"): {},
    ("POST", "webhooks/{webhook_id}/test"): {},
    ("POST", "webhooks/{webhook_id}/deliveries/{delivery_id}/again"): {},
    ("POST", "tokens"): {"name": "mine"},
    ("DELETE", "tokens/{token_id}"): {},
    ("POST", "presets"): {"project": "projects", "name": "p", "text": json.dumps(SPEC)},
    ("DELETE", "presets/{preset_id}"): {},
    ("POST", "specs/validate"): {"spec": SPEC},
    ("POST", "runs"): {"project": "projects", "spec": SPEC},
    ("POST", "external-runs"): {"project": "projects", "name": "x"},
    ("POST", "external-runs/{run_id}/attempts"): {},
    ("PATCH", "runs/{run_id}"): {"notes": "x"},
    ("DELETE", "runs/{run_id}"): {},
    ("POST", "runs/{run_id}/tags"): {"add": ["x"]},
    ("POST", "runs/{run_id}/stop"): {},
    ("POST", "runs/{run_id}/resume"): {},
    ("POST", "runs/{run_id}/pause"): {"rollouts": True},
    ("POST", "runs/{run_id}/queue"): {"priority": 1},
    ("POST", "experiments"): {"project": "projects", "name": "New"},
    ("PATCH", "experiments/{experiment_id}"): {"notes": "x"},
    ("DELETE", "experiments/{experiment_id}"): {},
    ("POST", "reward-schemes"): {"project": "projects", "definition": {"name": "New"}},
    ("POST", "reward-schemes/{scheme_id}/versions"): {"definition": {"name": "New"}},
    ("POST", "datasets"): {"project": "projects", "name": "New", "kind": "tasks"},
    ("POST", "datasets/{dataset_id}/versions"): {},
    ("DELETE", "datasets/{dataset_id}"): {},
    ("DELETE", "datasets/{dataset_id}/versions/{number}"): {},
    ("DELETE", "checkpoints/{checkpoint_id}"): {},
    ("POST", "checkpoints/{checkpoint_id}/evaluate"): {},
    ("POST", "checkpoints/{checkpoint_id}/try"): {},
    ("POST", "trajectories/{pk}/comments"): {"text": "x"},
    ("PATCH", "comments/{pk}"): {"text": "x"},
    ("DELETE", "comments/{pk}"): {},
    ("POST", "sweeps/preview"): SWEEP,
    ("POST", "sweeps"): SWEEP,
    ("POST", "sweeps/{sweep_id}/pause"): {},
    ("POST", "sweeps/{sweep_id}/continue"): {},
    ("POST", "sweeps/{sweep_id}/stop"): {},
    ("POST", "queues"): {"run": "runs", "name": "New"},
    ("PATCH", "queues/{pk}"): {"closed": True},
    ("POST", "run-changes"): {"project": "projects", "action": "tag", "tag": "x", "all": True},
    ("POST", "saved-views"): {"project": "projects", "page": "runs", "name": "V", "shared": True},
    ("PATCH", "saved-views/{view_id}"): {"name": "W"},
    ("DELETE", "saved-views/{view_id}"): {},
    ("POST", "queues/{pk}/next"): {},
    ("POST", "queue-items/{pk}/claim"): {},
    ("DELETE", "queue-items/{pk}/claim"): {},
    ("PUT", "queue-items/{pk}/verdict"): {"choice": "accepted"},
    ("DELETE", "queue-items/{pk}/verdict"): {},
    ("PUT", "queue-items/{pk}/marks/{step}"): {"mark": "good"},
    ("DELETE", "queue-items/{pk}/marks/{step}"): {},
    ("POST", "inbox/read"): {},
    ("POST", "queues/{pk}/dataset"): {"dataset": "datasets"},
    ("POST", "jobs/{job_id}/again"): {},
    ("POST", "jobs/{job_id}/cancel"): {},
    ("POST", "projects/{project_id}/storage/measure"): {},
    ("POST", "projects/{project_id}/storage/prune"): {"pools": True},
    ("POST", "backtests"): {"scheme_version": "scheme-version", "runs": ["runs"]},
}
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
# Queries that a call needs, or that make it ask for something foreign.
QUERIES = {
    "compare": "runs={runs}",
    "compare/curves": "runs={runs}&names=train/loss",
    "compare/completion": "runs={runs}",
    "compare/tasks": "first={runs}&second={runs}",
    "evaluations/compare": "first={evaluations}&second={evaluations}",
    "trajectories/{pk}/divergence": "other={trajectories}",
    "search": "project={projects}&q=Zan",
    "search/trajectories": "project={projects}&q=Zan",
    "trajectories/{pk}/search": "q=e",
    "trajectories/{pk}/steps/{step}/field/{name}/image": "at=0",
    "trajectories/{pk}/context": "step=0",
    "runs/{run_id}/points": "after=0",
}
# Fields and parameters that name something of a project, with the noun they name ...
REFERENCES = {
    "project": "projects",
    "parent": "runs",
    "checkpoint": "checkpoints",
    "first": "evaluations",
    "second": "evaluations",
    "preset": "presets",
    "reward": "scheme-versions",
    "baseline": "runs",
    "run": "runs",
    "runs": "runs",
    "dataset": "datasets",
    "other": "trajectories",
    "experiment": "experiments",
    "assignees": "members",
    "reply_to": "comments",
    "scheme_version": "scheme-version",
    "dataset_version": "dataset-version",
    "against": "scheme-version",
}
# ... and those that do not.
PLAIN = """
    accepted add after answer archived attempt axis before buckets category closed code_version
    at_once budget direction dry_run halving method metric seed space
    based_on
    commented config count cursor definition devices email expires_at failed_calls field file filter
    from group hops instructions kind labels level limit max_reward max_running min_reward name
    names node note notes number overrides pause place priority purpose q recipe remove resolved
    reviews_per_item role rollouts rubric scope scores search series since size sort span
    names node note notes number overrides pause place position priority
    purpose q question recipe remove resolved
    reviews_per_item role rollouts rubric sampled scope scores search series since size sort span
    spec start step steps stop_reason success tags task tasks temperature text to
    enabled at events format comments token tokens training trials url
    is_default page query shared
    choice mark notices outcome read sample seed style unread version
    record state subject
    state subject
    replace
    action all by is_default metrics page query shared tag
    archived_trajectories keep_checkpoints newest pools preview record replace state subject
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


def body_of(method: str, path: str, world: dict[str, str]) -> dict[str, Any]:
    """The valid body of a call, with ids of the world for the nouns it names, one or a list."""

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(one) for one in value]
        return world.get(value, value) if isinstance(value, str) else value

    body = BODIES.get((method, path), {})
    return {key: filled(value) if key in REFERENCES else value for key, value in body.items()}


def call(api: Api, method: str, path: str, world: dict[str, str]) -> Any:
    """Call with a valid body, query and ids of the world."""
    body = body_of(method, path, world)
    filled = fill(path, {**world, "recipes": "kg-search"})
    if query := QUERIES.get(path):
        filled += "?" + query.format(**world)
    if path.endswith("/versions") and path.startswith("datasets") and method == "POST":
        return upload(api, filled)
    return api(method, filled, body if method != "GET" else None)


def upload(api: Api, path: str) -> Any:
    file = SimpleUploadedFile("rows.jsonl", b'{"prompt": "a", "answer": "b"}')
    headers = {"Authorization": f"Bearer {api.token}"} if api.token else {}
    return api.client.post(f"/api/v1/{path}", {"file": file}, headers=headers)


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
    for path in ("projects", "presets", "datasets", "reward-schemes"):
        assert api("GET", path).json() == []
    assert api("GET", "runs").json()["items"] == []
    assert api("GET", "cluster/devices").status_code == 404
    assert api("POST", "runs", {"spec": SPEC}).status_code == 404
