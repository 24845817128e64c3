"""REST of trajectories: who may, windows, fields, damage, export, comments."""

import json
import time

import pytest

from engine.records.trajectory import Step, ToolCall
from tests.engine.records.test_shards import long_trajectory
from tests.webapp.reviews.samples import trajectory
from webapp import storage
from webapp.reviews import services

API = "/api/v1"


@pytest.fixture
def row(store):
    return store([trajectory(name=f"t{i}", success=i != 1) for i in range(3)])[1]


@pytest.fixture
def paths(row, run, owner):
    comment = services.add_comment(row, owner, "text")
    base = f"{API}/trajectories/{row.pk}"
    return {
        "GET": [
            f"{API}/runs/{run.pk}/trajectories",
            f"{API}/runs/{run.pk}/trajectories/export",
            base,
            f"{base}/outline",
            f"{base}/steps",
            f"{base}/steps/0/field/text",
            f"{base}/steps/0/trained",
            f"{base}/context?step=1",
            f"{base}/search?q=a",
            f"{base}/divergence?other=t0",
            f"{base}/comments",
            f"/trajectories/{row.pk}/",
            f"/trajectories/compare?a=t0&b={row.pk}",
            f"/runs/{run.pk}/trajectories/",
        ],
        "POST": [f"{base}/comments"],
        "PATCH": [f"{API}/comments/{comment.pk}"],
        "DELETE": [f"{API}/comments/{comment.pk}"],
    }


BODIES = {"POST": {"text": "hello"}, "PATCH": {"resolved": True}, "DELETE": {}}


def call(client, method, path):
    if method == "GET":
        return client.get(path)
    body = json.dumps(BODIES[method])
    return client.generic(method, path, body, content_type="application/json")


def every(client, paths, methods):
    return {path: call(client, m, path).status_code for m in methods for path in paths[m]}


def test_without_a_session_nothing_is_seen(client, paths):
    for path, status in every(client, paths, paths).items():
        assert status == (401 if path.startswith(API) else 302), path


def test_an_outsider_sees_nothing(as_user, outsider, paths):
    assert set(every(as_user(outsider), paths, paths).values()) == {404}


def test_a_viewer_reads_and_writes_nothing(as_user, viewer, paths):
    client = as_user(viewer)
    assert set(every(client, paths, ["GET"]).values()) == {200}
    assert set(every(client, paths, ["POST", "PATCH", "DELETE"]).values()) == {403}


def test_an_editor_comments_and_resolves_but_deletes_only_own_ones(as_user, editor, paths):
    client = as_user(editor)
    assert call(client, "POST", paths["POST"][0]).status_code == 201
    assert call(client, "PATCH", paths["PATCH"][0]).status_code == 200
    assert call(client, "DELETE", paths["DELETE"][0]).status_code == 403


def test_a_trajectory_of_another_project_cannot_be_compared_with(as_user, outsider, row):
    client = as_user(outsider)
    assert client.get(f"{API}/trajectories/{row.pk}/divergence?other=t0").status_code == 404
    assert client.get(f"/trajectories/compare?a={row.pk}&b=t0").status_code == 404


def test_it_describes_a_trajectory(as_user, viewer, row):
    data = as_user(viewer).get(f"{API}/trajectories/{row.pk}").json()
    assert data["row"]["success"] is False and data["row"]["attempt"] == 1
    assert data["reward"]["terms"] == {"exact_answer": 1.0}
    assert data["reward"]["weights"] == {"exact_answer": 1.0}
    assert [one["id"] for one in data["group"]] == ["t0", "t1", "t2"]


def test_it_gives_windows_of_steps(as_user, viewer, row):
    client = as_user(viewer)
    data = client.get(f"{API}/trajectories/{row.pk}/steps?from=1&count=1").json()
    assert (data["first"], data["total"], len(data["steps"])) == (1, 3, 1)
    step = data["steps"][0]
    assert step["call"]["id"] == "call-France" and step["detour"] is True
    assert set(step["tokens"][0]) == {"id", "text", "logprob", "version", "trained"}
    assert client.get(f"{API}/trajectories/{row.pk}/steps?from=99").json()["steps"] == []


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("steps?from=-1", "from"),
        ("steps?count=201", "count"),
        ("steps/3/field/text", "step"),
        ("steps/0/field/secret", "name"),
        ("context?step=-1", "step"),
        ("context?step=x", "step"),
        ("search?q=", "q"),
    ],
)
def test_it_names_the_field_that_is_wrong(as_user, viewer, row, query, path):
    answer = as_user(viewer).get(f"{API}/trajectories/{row.pk}/{query}")
    assert answer.status_code == 422
    assert path in answer.json()["errors"][0]["path"]


def test_a_very_long_trajectory_answers_fast_and_small(as_user, viewer, store):
    (row,) = store([long_trajectory(10_000, "x" * 20_000_000)])
    client = as_user(viewer)
    path = f"{API}/trajectories/{row.pk}"
    client.get(f"{path}/steps?count=1")  # imports and connections
    for query, seconds, size in [
        ("steps?count=50&tokens=false", 0.5, 60_000),
        ("steps?from=9950&count=50", 0.5, 200_000),
        ("context?step=9999", 0.5, 400_000),
        ("outline", 1.0, 1_000_000),
    ]:
        start = time.perf_counter()
        answer = client.get(f"{path}/{query}")
        assert answer.status_code == 200
        assert time.perf_counter() - start < seconds, query
        assert len(answer.content) < size, query


def test_it_pages_through_a_field_of_any_length(as_user, viewer, store):
    text = "".join(f"{i}法 " for i in range(20_000))
    call_ = ToolCall("c", "lookup", {}, text, None, 0.1)
    (row,) = store([trajectory([("a", call_, None)])])
    client, found = as_user(viewer), ""
    while len(found) < len(text):
        path = f"{API}/trajectories/{row.pk}/steps/0/field/result?from={len(found)}"
        found += client.get(path).json()["text"]
    assert found == text


def test_a_damaged_shard_is_a_clear_error(as_user, viewer, row):
    blob = bytearray(storage.read_blob(row.shard))
    blob[row.offset + 20 : row.offset + 60] = b"\0" * 40
    storage.remove_blob(row.shard)
    with storage._place()[0].open(storage._blob_path(row.shard), "wb") as file:
        file.write(bytes(blob))
    client = as_user(viewer)
    answer = client.get(f"{API}/trajectories/{row.pk}/steps")
    assert answer.status_code == 500 and "damaged" in answer.json()["detail"]
    assert client.get(f"{API}/trajectories/t0/steps").status_code == 200  # its neighbour is whole
    page = client.get(f"/trajectories/{row.pk}/")
    assert page.status_code == 500 and "damaged" in page.content.decode()


def test_a_shard_that_is_gone_is_a_clear_error(as_user, viewer, row):
    storage.remove_blob(row.shard)
    client = as_user(viewer)
    answer = client.get(f"{API}/trajectories/{row.pk}/steps")
    assert answer.status_code == 410 and "no longer in storage" in answer.json()["detail"]
    assert client.get(f"/trajectories/{row.pk}/").status_code == 410


def lines(answer) -> list[dict]:
    async def collect() -> bytes:
        return b"".join([part async for part in answer.streaming_content])

    from asgiref.sync import async_to_sync

    return [json.loads(line) for line in async_to_sync(collect)().splitlines()]


def test_it_exports_json_lines_and_says_what_it_cannot_read(as_user, viewer, run, store):
    store([trajectory(name="good"), trajectory(name="bad", success=False)])
    lost = store([trajectory(name="lost")])[0]
    storage.remove_blob(lost.shard)
    client = as_user(viewer)
    found = lines(client.get(f"{API}/runs/{run.pk}/trajectories/export"))
    assert [one["id"] for one in found] == ["lost", "bad", "good"]
    assert "no longer in storage" in found[0]["problem"]
    assert found[2] == trajectory(name="good").to_dict()
    narrowed = client.get(f"{API}/runs/{run.pk}/trajectories/export?success=false")
    assert [one["id"] for one in lines(narrowed)] == ["bad"]


def test_it_says_where_two_trajectories_part(as_user, viewer, store):
    other = trajectory(name="b")
    other.steps[2] = Step(2, 0, *(other.steps[2].start, other.steps[2].stop), '{"answer":"Franc"}')
    store([trajectory(name="a"), other])
    answer = as_user(viewer).get(f"{API}/trajectories/a/divergence?other=b").json()
    assert answer == {"divergence": {"step": 2, "field": "text", "at": 11}}


def test_comments_travel_rendered_and_say_whose_they_are(as_user, editor, viewer, row):
    client = as_user(editor)
    body = {"text": "**No** <script>x</script>", "step": 0, "field": "result", "span": [7, 9]}
    made = client.post(
        f"{API}/trajectories/{row.pk}/comments", body, content_type="application/json"
    )
    assert made.status_code == 201
    (seen,) = as_user(viewer).get(f"{API}/trajectories/{row.pk}/comments").json()["comments"]
    assert "<strong>No</strong>" in seen["html"] and "<script>" not in seen["html"]
    assert (seen["step"], seen["field"], seen["start"], seen["stop"]) == (0, "result", 7, 9)
    assert seen["author"] == "Editor"
    assert (seen["mine"], seen["may_delete"]) == (False, False)
    assert made.json()["mine"] is True


def test_a_comment_on_nothing_names_the_field(as_user, editor, row):
    answer = as_user(editor).post(
        f"{API}/trajectories/{row.pk}/comments",
        {"text": "x", "step": 7},
        content_type="application/json",
    )
    assert answer.status_code == 422 and answer.json()["errors"][0]["path"] == "step"
