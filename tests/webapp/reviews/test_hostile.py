"""Hostile texts in every field: each way out gives text, whole and as text."""

import io
import json

import pyarrow.parquet
import pytest

from engine.records import stored
from tests.webapp.reviews.samples import put, trajectory
from tests.webapp.reviews.test_exports import hostile
from tests.webapp.reviews.test_images import b64, png
from tests.webapp.support import downloaded
from webapp.reviews import services

pytestmark = pytest.mark.django_db(transaction=True)
LONE = "half \ud83d of a pair"  # no text: UTF-8 has no bytes for it


@pytest.fixture
def broken(run, monkeypatch):
    """A shard of somebody's own making, whose escapes smuggle in what is no text."""
    dumps = json.dumps

    def escaped(value, **options):
        return dumps(value, **{**options, "ensure_ascii": True}).replace("HALF", "\\ud83d")

    monkeypatch.setattr(stored.json, "dumps", escaped)
    made = hostile("broken")
    for step in made.steps:
        step.text = step.answer = step.call.result = step.call.name = "half HALF of a pair"
        step.call.arguments = {"half HALF of a pair": "half HALF of a pair"}
    made.prompt = "whole"
    (row,) = put(run, [made])
    monkeypatch.setattr(stored.json, "dumps", dumps)
    return row


PATHS = [
    "steps",
    "steps/0/field/text",
    "steps/0/field/arguments",
    "steps/0/field/result",
    "context?step=1",
    "outline",
    "search?q=half",
    "divergence?other=broken",
    "",
]


@pytest.mark.parametrize("path", PATHS)
def test_the_api_answers_json_with_what_is_no_text_in_it(broken, as_user, viewer, path):
    answer = as_user(viewer).get(f"/api/v1/trajectories/broken/{path}".rstrip("/"))
    assert answer.status_code == 200, answer.content
    if path == "steps/0/field/result":
        assert answer.json()["text"] == LONE


@pytest.mark.parametrize("format", ["jsonl", "parquet", "html"])
def test_exports_replace_what_is_no_text(broken, as_user, viewer, format):
    answer = as_user(viewer).get(f"/api/v1/trajectories/broken/export?format={format}")
    data = downloaded(answer)
    if format == "parquet":
        row = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()[0]
        assert row["result"] == row["text"] == "half ? of a pair"
    elif format == "jsonl":
        assert json.loads(data)["steps"][0]["call"]["result"] == "half ? of a pair"
    else:
        assert "U+D83D" in data.decode()


def test_pages_and_search_show_what_is_no_text(broken, project, as_user, viewer):
    services.index_texts(60)
    client = as_user(viewer)
    assert client.get("/trajectories/broken/").status_code == 200
    shown = client.get(f"/projects/{project.pk}/search/?q=of a pair").content.decode()
    assert "U+D83D" in shown and "/trajectories/broken/#step=0" in shown


def test_every_hostile_text_comes_back_as_it_was(store, as_user, viewer):
    made = hostile()
    store([made])
    client = as_user(viewer)
    steps = client.get("/api/v1/trajectories/h/steps").json()["steps"]
    for step, written in zip(steps, made.steps, strict=True):
        if step["embedded"]:
            assert {one["kind"] for found in step["embedded"].values() for one in found} == {""}
            continue
        assert (step["text"], step["answer"]) == (written.text, written.answer)
        call = step["call"]
        assert (call["name"], call["result"], call["error"]) == (
            written.call.name,
            written.call.result,
            written.call.error,
        )
        assert call["arguments"] == written.call.arguments


def test_a_prompt_of_images_is_labelled_on_the_page(store, as_user, viewer):
    picture = "data:image/png;base64," + b64(png(extra=20_000))
    store([trajectory(prompt=" ".join([picture] * 50))])
    page = as_user(viewer).get("/trajectories/t0/").content.decode()
    assert page.count('class="embedded"') >= 50 and len(page) < 100_000
