"""REST and pages of review queues: who may, and the whole way from filter to dataset."""

import json

import pytest

from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import Api
from webapp.reviews import services
from webapp.reviews.models import Claim, Verdict
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric


@pytest.fixture
def queue(run, store, owner):
    store([trajectory(name=f"t{i}") for i in range(3)])
    return services.create_queue(
        run, owner, name="Queue", rubric=Rubric(), wanted=Filter(), size=10
    )


@pytest.fixture
def paths(queue, run):
    item = queue.items.first().pk
    api, verdict = f"/api/v1/queues/{queue.pk}", {"choice": "accepted"}
    return [
        ("GET", f"/api/v1/queues?project={run.project_id}", None, 200),
        ("GET", api, None, 200),
        ("GET", f"{api}/next", None, 200),
        ("GET", f"/projects/{run.project_id}/review/", None, 200),
        ("GET", f"/queues/{queue.pk}/", None, 200),
        ("GET", f"/queue-items/{item}/", None, 200),
        ("POST", "/api/v1/queues", {"run": run.pk, "name": "n"}, 403),
        ("PUT", f"/api/v1/queue-items/{item}/verdict", verdict, 403),
        ("PATCH", api, {"closed": True}, 403),
        ("POST", f"{api}/dataset", {"dataset": "ds_none"}, 403),
        ("GET", f"/runs/{run.pk}/review", None, 403),
        ("GET", f"/queues/{queue.pk}/next", None, 403),
        ("POST", f"/queue-items/{item}/verdict", None, 403),
        ("POST", f"/queues/{queue.pk}/close", None, 403),
        ("POST", f"/queues/{queue.pk}/dataset", None, 403),
    ]


def call(client, method, path, data):
    body = "" if data is None else json.dumps(data)
    return client.generic(method, path, body, content_type="application/json")


def test_without_a_session_nothing_is_seen(client, paths):
    for method, path, data, _ in paths:
        expected = 401 if path.startswith("/api/") else 302
        assert call(client, method, path, data).status_code == expected, path


def test_an_outsider_sees_nothing(as_user, outsider, paths):
    client = as_user(outsider)
    for method, path, data, _ in paths:
        assert call(client, method, path, data).status_code == 404, path


def test_a_viewer_reads_and_judges_nothing(as_user, viewer, paths):
    client = as_user(viewer)
    for method, path, data, expected in paths:
        assert call(client, method, path, data).status_code == expected, path


def test_the_whole_way_through_the_api(run, store, owner):
    store([trajectory(name=f"t{i}", success=i > 0) for i in range(3)])
    api = Api(owner)
    made = api(
        "POST",
        "queues",
        {
            "run": run.pk,
            "name": "Good ones",
            "rubric": {"labels": ["clean"]},
            "filter": {"success": True},
            "assignees": [owner.pk],
        },
    )
    assert made.status_code == 201
    queue = made.json()
    assert queue["filter"] == {"success": True} and queue["assignees"] == [owner.pk]
    judged = 0
    while item := api("GET", f"queues/{queue['id']}/next").json()["item"]:
        verdict = {
            "choice": "accepted" if judged == 0 else "rejected",
            "labels": ["clean"] if judged == 0 else [],
        }
        assert api("PUT", f"queue-items/{item}/verdict", verdict).status_code == 200
        judged += 1
    assert judged == 2
    detail = api("GET", f"queues/{queue['id']}").json()
    assert detail["counts"] == {"open": 0, "disputed": 0, "accepted": 1, "rejected": 1}
    dataset = api("POST", "datasets", {"name": "SFT", "kind": "trajectories"}).json()
    version = api("POST", f"queues/{queue['id']}/dataset", {"dataset": dataset["id"]})
    assert version.status_code == 201 and version.json()["rows"] == 1
    assert version.json()["source"]["queue"] == queue["id"]


def test_a_wrong_verdict_names_its_field(run, store, owner):
    store([trajectory()])
    rubric = Rubric.model_validate({"scales": [{"name": "Effort"}]})
    queue = services.create_queue(run, owner, name="Q", rubric=rubric, wanted=Filter(), size=1)
    answer = Api(owner)(
        "PUT", f"queue-items/{queue.items.get().pk}/verdict", {"choice": "accepted"}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "scores.Effort"


def test_a_queue_is_made_and_finished_on_pages(run, store, owner, as_user):
    store([trajectory(name=f"t{i}") for i in range(2)])
    client = as_user(owner)
    form = {
        "name": "By hand",
        "size": "5",
        "sample": "newest",
        "labels": "clean\nlucky",
        "scales": "Effort to the end 1 3",
        "reviews_per_item": "1",
        "assignees": [owner.pk],
    }
    assert client.post(f"/runs/{run.pk}/review", {**form, "size": "x"}).status_code == 422
    made = client.post(f"/runs/{run.pk}/review?success=true", form)
    queue = run.queues.get()
    assert made.url == f"/queues/{queue.pk}/"
    assert queue.rubric["scales"] == [{"name": "Effort to the end", "low": 1, "high": 3}]
    item = ""
    for verdict in (
        {"choice": "accepted", "labels": ["lucky"], "score.Effort to the end": "2"},
        {"choice": "rejected", "score.Effort to the end": "3"},
    ):
        item = item or client.post(f"/queues/{queue.pk}/next").url
        item = client.post(f"{item}verdict", verdict).url
    assert item == f"/queues/{queue.pk}/"
    given = Verdict.objects.order_by("pk").values_list("labels", "scores")
    assert list(given) == [(["lucky"], {"Effort to the end": 2}), ([], {"Effort to the end": 3})]
    assert client.post(f"/queues/{queue.pk}/next").url == f"/queues/{queue.pk}/"
    answer = client.post(f"/queues/{queue.pk}/dataset", {"dataset": "", "name": "Mine"})
    assert answer.url == f"/queues/{queue.pk}/#versions"
    assert run.project.datasets.get(name="Mine").versions.get().rows == 1
    client.post(f"/queues/{queue.pk}/close", {"closed": "yes"})
    queue.refresh_from_db()
    assert queue.closed_at is not None


def test_looking_at_an_item_or_at_the_next_one_holds_nothing(queue, owner, as_user):
    item, client = queue.items.first(), as_user(owner)
    assert client.get(f"/queues/{queue.pk}/next").url == f"/queues/{queue.pk}/"
    page = client.get(f"/queue-items/{item.pk}/")
    assert b'"holds": true' in page.content and not Claim.objects.exists()
    assert client.post(f"/queues/{queue.pk}/next").status_code == 302
    assert Claim.objects.get().user == owner


def test_who_closes_what_somebody_reopened_is_told(queue, owner):
    api, path = Api(owner), f"queues/{queue.pk}"
    seen = api("GET", path)["ETag"]
    closed = api("PATCH", path, {"closed": True}, **{"If-Match": seen})
    assert (closed.status_code, closed["ETag"] != seen) == (200, True)
    assert api("PATCH", path, {"closed": False}, **{"If-Match": seen}).status_code == 412
    again = {"If-Match": closed["ETag"]}
    assert api("PATCH", path, {"closed": False}, **again).json()["closed_at"] is None
    assert api("PATCH", path, {"closed": True}).status_code == 200


def test_what_no_database_can_hold_breaks_nothing(queue, run, owner, as_user):
    item, client, api = queue.items.first().pk, as_user(owner), Api(owner)
    for path in (
        f"/queues/{queue.pk}/?outcome=%00&cursor=x",
        f"/queues/{queue.pk}/next?after=99999999999999999999",
        f"/runs/{run.pk}/review?size=99999999999&seed=%00&sample=%00&style=%00",
        f"/rewards/{run.reward_scheme.scheme_id}/suspects?version=99999999&cursor=%00",
        "/inbox/?cursor=%00",
    ):
        assert client.get(path).status_code in (200, 302, 422), path
    assert client.post(f"/queues/{queue.pk}/next?after=99999999999999999999").status_code == 302
    assert client.get("/notices/ntc%00/").status_code == 404
    assert client.post("/inbox/read", {"notice": "a\0"}).status_code == 302
    for form in ({"kind": "\0", "dataset": "\0"}, {"kind": "tasks", "name": "\0"}):
        assert client.post(f"/queues/{queue.pk}/dataset", form).status_code == 302
    assert client.post(f"/queue-items/{item}/verdict", {"choice": "\0"}).status_code == 302
    for method, path, body, status in (
        ("POST", "inbox/read", {"notices": ["a\0"]}, 200),
        ("PUT", f"queue-items/{item}/verdict", {"choice": "first"}, 422),
        ("PUT", f"queue-items/{item}/verdict", {"choice": "accepted", "scores": {"\0": 1}}, 422),
        ("PUT", f"queue-items/{item}/marks/99999999999", {"mark": "good"}, 422),
        ("PUT", f"queue-items/{item}/marks/0", {"mark": "good", "note": "a\0b"}, 200),
        ("GET", f"runs/{run.pk}/queue-preview?size=0", None, 422),
        ("GET", f"runs/{run.pk}/queue-preview?sample=newly_failing", None, 422),
    ):
        assert api(method, path, body).status_code == status, path
    version = 10**30
    path = f"reward-schemes/{run.reward_scheme.scheme_id}/suspects?version={version}"
    assert api("GET", path).json()["items"] == []
