"""Exports: every step and token arrives, in three formats; what is hostile stays text."""

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser

import pyarrow.parquet
import pytest

from engine.records import stored
from engine.records.trajectory import Segment, Step, ToolCall, Trajectory
from tests.engine.records.test_shards import long_trajectory
from tests.webapp.reviews.samples import lookup, trajectory
from tests.webapp.support import downloaded
from webapp import storage
from webapp.reviews import exports, html_export, services
from webapp.reviews.models import Trajectory as Row

# What is streamed is read in another thread.
pytestmark = pytest.mark.django_db(transaction=True)

PNG = base64.b64encode(
    base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    + bytes(200)
).decode()
HOSTILE = [
    "<script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "<img src='http://evil.invalid/x' onerror=alert(1)>",
    "<svg onload=alert(1)><iframe src='//evil.invalid'></iframe>",
    "[x](javascript:alert(1)) \\(\\href{javascript:alert(1)}{x}\\) $$x$$",
    "=cmd|'/c calc'!A1",
    "\x00NUL \x1b[31mred\x1b[0m \u202egnp.exe \ufffd",
    "data:text/html;base64," + base64.b64encode(b"<script>alert(1)</script>" * 20).decode(),
    "data:image/svg+xml;base64," + base64.b64encode(b"<svg onload='alert(1)'/>" * 20).decode(),
    "]]></pre></article></main></body><h1>gone</h1>",
]


def hostile(name: str = "h") -> Trajectory:
    turns = [(t, ToolCall("c", t, {t: t}, t, t, 0.1), t) for t in HOSTILE]
    return trajectory(turns, name=name, prompt=" ".join(HOSTILE).replace("\0", ""), category="<b>")


def get(client, path: str) -> bytes:
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.content
    return downloaded(answer)


@pytest.fixture
def client(as_user, viewer):
    return as_user(viewer)


def test_json_lines_hold_everything_that_was_stored(store, run, client):
    made = [trajectory(name="a"), long_trajectory(300, "法" * 50_000), hostile()]
    made[0].segments.append(Segment([7], [True], [-1.0], [9], 0, ["x"]))
    made[0].steps[0].call.arguments = {"long": "y" * 40_000}
    made[1].id = "b"
    store(made)
    lines = get(client, f"runs/{run.pk}/trajectories/export").decode().splitlines()
    found = {data["id"]: Trajectory.from_dict(data) for data in map(json.loads, lines)}
    assert found == {one.id: one for one in made}


def test_one_trajectory_is_a_line(store, client):
    store([trajectory(name="a"), trajectory(name="b")])
    (line,) = get(client, "trajectories/b/export").splitlines()
    assert json.loads(line)["id"] == "b"


def test_a_very_long_one_is_streamed_and_holds_the_same(store, client, monkeypatch):
    made = long_trajectory(500, "x" * 30_000)
    (row,) = store([made])
    monkeypatch.setattr(exports, "_HELD", 10)
    assert Trajectory.from_dict(json.loads(get(client, f"trajectories/{row.pk}/export"))) == made


def test_a_long_one_that_is_damaged_on_the_way_has_what_came_before(
    store, run, client, monkeypatch
):
    (row,) = store([long_trajectory(500, "x" * 30_000)])
    store([trajectory(name="good")])
    Row.objects.filter(pk=row.pk).update(length=row.length - 30)
    monkeypatch.setattr(exports, "_HELD", 10)
    lines = get(client, f"runs/{run.pk}/trajectories/export").splitlines()
    cut = next(one for one in map(json.loads, lines) if one["id"] == row.pk)
    assert len(lines) == 2 and "cannot be read" in cut["problem"]
    assert cut["prompt"] == "Where?" and cut["steps"] == []  # the tokens come first


@pytest.mark.parametrize("tool", [7, "\ud800", ["x"]])
def test_what_arrow_cannot_hold_does_not_end_an_export(store, run, client, tool, monkeypatch):
    odd = trajectory(name="odd")
    monkeypatch.setattr(stored, "_outline", lambda steps: {})
    odd.steps[0].call.name = tool
    odd.segments[0].ids[odd.steps[1].start] = 2**70
    store([odd, trajectory(name="good")])
    data = get(client, f"runs/{run.pk}/trajectories/export?format=parquet")
    rows = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
    assert {row["problem"] for row in rows if row["trajectory_id"] == "good"} == {""}
    first, second, *_ = [row for row in rows if row["trajectory_id"] == "odd"]
    assert "no trajectory" in second["problem"] and second["token_ids"] is None
    assert (first["tool"] == "?") if tool == "\ud800" else ("no trajectory" in first["problem"])


def test_parquet_has_a_row_for_each_step_with_its_tokens(store, run, client):
    made = [trajectory(name="a"), hostile(), trajectory(name="z", reward=None)]
    store(made)
    data = get(client, f"runs/{run.pk}/trajectories/export?format=parquet")
    table = pyarrow.parquet.read_table(io.BytesIO(data))
    assert table.column_names == list(exports.COLUMNS)
    rows = {(row["trajectory_id"], row["step"]): row for row in table.to_pylist()}
    assert len(rows) == sum(len(one.steps) for one in made)
    for one in made:
        for step in one.steps:
            check_row(one, step, rows[one.id, step.index], run.pk)


def check_row(one: Trajectory, step: Step, row: dict, run: str) -> None:
    segment, call = one.segments[step.segment], step.call
    part = slice(step.start, step.stop)
    assert (row["run_id"], row["prompt"], row["right_answer"]) == (run, one.prompt, one.answer)
    assert (row["reward"], row["success"]) == (one.reward.value, one.success)
    assert row["text"] == step.text and row["answer"] == step.answer
    assert row["detour"] == step.detour and row["problem"] == ""
    assert row["token_ids"] == segment.ids[part] and row["versions"] == segment.versions[part]
    assert row["logprobs"] == pytest.approx(segment.logprobs[part])
    assert row["trained"] == segment.loss_mask[part]
    assert row["tool"] == (call.name if call else None)
    assert row["result"] == (call.result if call else None)
    if call:
        assert json.loads(row["arguments"]) == call.arguments


def test_parquet_is_written_in_groups(store, run, client, monkeypatch):
    store([long_trajectory(500, "x" * 30_000)])
    monkeypatch.setattr(exports, "_GROUP_ROWS", 64)
    data = get(client, f"runs/{run.pk}/trajectories/export?format=parquet")
    found = pyarrow.parquet.ParquetFile(io.BytesIO(data))
    assert found.num_row_groups == 8 and found.metadata.num_rows == 500


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_what_cannot_be_read_says_so_and_the_others_come(store, run, client, format):
    store([trajectory(name="good")])
    (gone,) = store([trajectory(name="gone", prompt="lost")])
    storage.remove_blob(gone.shard)
    (odd,) = store([trajectory(name="odd", prompt="odd")])
    Row.objects.filter(pk=odd.pk).update(length=odd.length - 30)
    data = get(client, f"runs/{run.pk}/trajectories/export?format={format}")
    if format == "jsonl":
        rows = {row["id"]: row.get("problem", "") for row in map(json.loads, data.splitlines())}
    else:
        table = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
        rows = {row["trajectory_id"]: row["problem"] for row in table}
    assert rows["good"] == ""
    assert "no longer in storage" in rows["gone"] and "damaged" in rows["odd"]


def test_no_rows_make_a_file_that_can_be_read(store, run, client):
    store([trajectory()])
    data = get(client, f"runs/{run.pk}/trajectories/export?format=parquet&purpose=demonstration")
    assert pyarrow.parquet.read_table(io.BytesIO(data)).num_rows == 0


def test_what_is_gone_is_refused_before_the_answer_begins(store, client):
    (row,) = store([trajectory()])
    storage.remove_blob(row.shard)
    for format in ("jsonl", "parquet", "html"):
        answer = client.get(f"/api/v1/trajectories/{row.pk}/export?format={format}")
        assert answer.status_code == 410 and "no longer in storage" in answer.json()["detail"]


class Elements(HTMLParser):
    """What a browser makes of a page: elements, their attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_the_html_file_stands_alone_and_runs_nothing(store, client):
    store([hostile()])
    page = get(client, "trajectories/h/export?format=html").decode()
    elements = Elements(page)
    tags = {tag for tag, _ in elements.found}
    assert not tags & {"script", "iframe", "svg", "object", "embed", "link", "base", "form", "img"}
    for _, attributes in elements.found:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        assert set(attributes) & {"src", "href"} == set() or attributes["href"].startswith("#step-")
    policies = [a["content"] for t, a in elements.found if a.get("http-equiv")]
    style = re.search(r"<style>(.*?)</style>", page, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policies == [f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:"]
    assert "url(" not in style and "@import" not in style
    text = "".join(elements.texts)
    assert HOSTILE[0] in text and "U+202E" in text and "U+0000" in text and "U+001B" in text
    assert "image/svg+xml" in text and "PHN2ZyBvbmxvYWQ" not in page  # a label, not its base64


def test_the_html_file_shows_images_labels_others_and_marks_errors(store, client):
    result = f"before data:image/png;base64,{PNG} after {PNG}"
    failed = lookup("Lyon", "in", "no such thing", "not_found")
    store([trajectory([("look", lookup("a", "b", result), None), ("x", failed, None)])])
    elements = Elements(get(client, "trajectories/t0/export?format=html").decode())
    shown = [a for tag, a in elements.found if tag == "img"]
    assert len(shown) == 2 and {a["src"].partition(",")[0] for a in shown} == {
        "data:image/png;base64"
    }
    assert (shown[0]["width"], shown[0]["height"]) == ("1", "1")
    assert "not_found" in "".join(elements.texts)
    assert ("article", {"id": "step-1"}) in elements.found


def test_the_html_file_has_comments_only_where_asked_for(store, owner, client):
    (row,) = store([trajectory()])
    services.add_comment(row, owner, "On the **step**", 1)
    services.add_comment(row, owner, "On all <script>of it</script>")
    plain = get(client, "trajectories/t0/export?format=html").decode()
    with_them = get(client, "trajectories/t0/export?format=html&comments=true").decode()
    assert "On the" not in plain and "Owner" not in plain
    assert "<strong>step</strong>" in with_them and "<script" not in with_them


def test_a_file_that_would_be_too_large_is_cut_and_says_where(store, client, monkeypatch):
    monkeypatch.setattr(html_export, "MAX_CHARS", 100_000)
    monkeypatch.setattr(html_export, "MAX_FIELD", 1_000)
    turns = [(f"turn {i}", lookup("a", "b", "y" * 5_000), None) for i in range(100)]
    store([trajectory(turns)])
    page = get(client, "trajectories/t0/export?format=html").decode()
    shown = page.count("<article")
    assert 20 < shown < 100 and len(page) < 250_000
    assert f"it holds the first {shown} of 100 steps" in page
    assert f"after {shown} of 100 steps" in page
    assert page.count("Cut here: the text has 5\u202f000 characters.") == shown


def test_tokens_are_shaded_by_probability_and_characters_stay_whole(store, client):
    store([trajectory([("法国 Lyon", None, None)])])
    page = get(client, "trajectories/t0/export?format=html").decode()
    tokens = re.search(r"<details>.*?<pre>(.*?)</pre>", page, re.S).group(1)
    assert re.sub(r"<[^>]+>", "", tokens) == "法国 Lyon"
    assert re.findall(r'class="(p\d)"', tokens) == ["p1", "p1", "p1", "p1"]


@pytest.mark.parametrize("query", ["format=csv", "format=", "comments=maybe"])
def test_an_unknown_format_is_refused(store, client, query):
    store([trajectory()])
    assert client.get(f"/api/v1/trajectories/t0/export?{query}").status_code == 422
