"""Search in all trajectories of a project: what is found, where, in which order, what is not."""

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from engine.records.trajectory import ToolCall
from tests.webapp.reviews.samples import lookup, put, trajectory
from webapp import storage
from webapp.accounts.models import Project
from webapp.problems import RefusedError
from webapp.reviews import search, services
from webapp.reviews.models import TextIndex, Trajectory
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric
from webapp.reviews.search import Wanted
from webapp.reviews.services import indexing


@pytest.fixture
def rows(store):
    long = ToolCall("c", "lookup", {"entity": "埃菲尔铁塔"}, "x" * 20_000 + " Needle", None, 0.1)
    made = store(
        [
            trajectory(name="plain"),
            trajectory([("look", long, None)], name="long", success=False),
            trajectory([("{}", lookup("a", "b", "hay"), "NEEDLE")], name="late", prompt="多少？"),
        ]
    )
    services.index_texts(60)
    return made


def ids(project, q, **wanted) -> list[str]:
    """Of all pages: a page ends early on a machine that is busy."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = search.trajectories(project, Wanted(q=q, **wanted), cursor)
        found += [hit.row.pk for hit in page.items]
        if (cursor := page.next_cursor) is None:
            return found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("needle", {"long", "late"}),  # at the end of a long result, and in an answer
        ("货币", {"plain", "long"}),  # two characters of a prompt
        ("塔", {"long"}),  # one of an argument
        ("多少？", {"late"}),
        ("France 法国", {"plain"}),
        ("no such text", set()),
        ("eedlen", set()),
        ("%currency", set()),
    ],
)
def test_it_finds_a_text_in_any_field_whatever_its_case(rows, project, query, expected):
    assert set(ids(project, query)) == expected


def test_it_says_where_and_links_to_the_characters(rows, project):
    (hit,) = search.trajectories(project, Wanted(q="塔")).items
    assert hit.matches[0]["before"].endswith("埃菲尔铁") and hit.matches[0]["match"] == "塔"
    (hit,) = search.trajectories(project, Wanted(q="法国")).items
    assert hit.address == "/trajectories/plain/#step=0&field=result&span=7-9"
    (hit,) = search.trajectories(project, Wanted(q="多少")).items
    assert hit.address == "/trajectories/late/"


def test_no_false_hit_shows_where_all_parts_occur_apart(store, project):
    store([trajectory([("abcd xbcde", None, None)], name="apart")])
    services.index_texts(60)
    assert ids(project, "abcde") == []  # abc, bcd and cde all occur
    assert ids(project, "xbcde") == ["apart"]


def test_it_narrows_to_a_run_a_result_and_a_purpose(rows, store, run, project):
    store([trajectory(name="shown", purpose="demonstration")])
    services.index_texts(60)
    assert ids(project, "货币", success=False) == ["long"]
    assert ids(project, "货币", purpose="demonstration") == ["shown"]
    assert len(ids(project, "货币", run=run.pk)) == 3
    assert ids(project, "货币", run="run_other") == []


def test_another_project_is_not_searched(rows, project, outsider):
    elsewhere = Project.objects.get(name="Elsewhere")
    assert ids(elsewhere, "needle") == []


def test_it_pages_without_losing_or_repeating_a_hit(store, run, project, monkeypatch):
    for day in range(3):
        made = [trajectory(name=f"t{day}{i}") for i in range(9)]
        for one in made:
            one.started_at = f"2026-01-0{day + 1}T00:00:00+00:00"
        put(run, made)
    services.index_texts(60)
    monkeypatch.setattr(search, "AT_ONCE", 5)
    seen, cursor = [], None
    while True:
        page = search.trajectories(project, Wanted(q="currency"), cursor, limit=4)
        seen += [hit.row.pk for hit in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == sorted((f"t{day}{i}" for day in range(3) for i in range(9)), reverse=True)


def test_a_page_ends_early_where_looking_takes_long(rows, project, monkeypatch):
    monkeypatch.setattr(search, "SECONDS", 0)
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        page = search.trajectories(project, Wanted(q="货币"), cursor)
        seen += [hit.row.pk for hit in page.items]
        cursor, pages = page.next_cursor, pages + 1
    assert set(seen) == {"plain", "long"} and pages == 2


@pytest.mark.parametrize("cursor", ["nonsense", "WyJhIl0", "WzEsMl0"])
def test_it_refuses_a_cursor_that_it_did_not_give(rows, project, cursor):
    with pytest.raises(RefusedError, match="cursor of the page before"):
        search.trajectories(project, Wanted(q="needle"), cursor)


def test_it_refuses_what_is_too_short_to_search_for(project):
    with pytest.raises(RefusedError, match="three letters"):
        search.trajectories(project, Wanted(q="ab"))


def test_it_says_what_is_not_indexed(store, project, monkeypatch):
    monkeypatch.setattr(indexing, "INDEXED_CHARS", 1_000)
    long = lookup("a", "b", "y" * 2_000)
    store([trajectory([("first", long, None), ("second", None, "Hidden")], name="cut")])
    assert search.trajectories(project, Wanted(q="first")).waiting == 1
    services.index_texts(60)
    page = search.trajectories(project, Wanted(q="first"))
    assert (page.waiting, page.cut_short) == (0, 1)
    assert [hit.row.pk for hit in page.items] == ["cut"]
    assert ids(project, "hidden") == []


def test_what_is_gone_or_damaged_is_found_by_its_prompt(store, project):
    (row,) = store([trajectory(name="gone")])
    storage.remove_blob(row.shard)
    (odd,) = store([trajectory(name="odd", prompt="Which oddity?")])
    Trajectory.objects.filter(pk=odd.pk).update(length=odd.length - 40, offset=7)
    services.index_texts(60)
    assert set(ids(project, "which")) == {"gone", "odd"}
    assert search.trajectories(project, Wanted(q="which")).cut_short == 2


def test_indexing_twice_changes_nothing(rows, project):
    assert services.index_texts(60) == 0
    Trajectory.objects.update(is_indexed=False)  # as after a crash between two batches
    assert services.index_texts(60) == 3
    assert set(ids(project, "needle")) == {"long", "late"}


def test_indexing_keeps_what_it_has_done_when_its_time_is_up(store, project, monkeypatch):
    store([trajectory(name=f"t{i}") for i in range(3)])
    now = iter(range(100))
    monkeypatch.setattr(indexing.time, "monotonic", lambda: next(now))
    assert [services.index_texts(1.5), services.index_texts(1.5)] == [1, 1]
    assert services.index_texts(60) == 1
    assert not Trajectory.objects.filter(is_indexed=False).exists()


def test_the_command_indexes_what_an_older_version_stored(store, project, capsys):
    store([trajectory(name=f"t{i}") for i in range(3)])
    call_command("index_texts")
    assert "3 trajectories are indexed, 0 wait" in capsys.readouterr().out
    call_command("index_texts")
    assert "Every trajectory is indexed" in capsys.readouterr().out
    call_command("index_texts", "--again")
    assert TextIndex.objects.count() == 3


def test_queries_do_not_grow_with_hits(store, project, page):
    page.get(f"/projects/{project.pk}/search/")  # which the session remembers
    counts = []
    for start in (0, 2):
        store([trajectory(name=f"t{start + i}") for i in range(2 + 10 * start)])
        services.index_texts(60)
        with CaptureQueriesContext(connection) as queries:
            answer = page.get(f"/projects/{project.pk}/search/?q=currency")
        assert answer.content.decode().count("/trajectories/t") > 2
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_the_page_shows_names_and_texts_and_escapes_both(store, run, project, page):
    run.notes = "关于货币 <script>alert(1)</script>"
    run.save()
    store([trajectory([("<img src=x onerror=alert(1)> 货币", None, None)], name="evil")])
    services.index_texts(60)
    shown = page.get(f"/projects/{project.pk}/search/?q=货币").content.decode()
    assert f'href="/runs/{run.pk}/"' in shown and "#step=0&amp;field=text&amp;span=" in shown
    assert "<img" not in shown and "alert(1)</script>" not in shown


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "What are you looking for?"),
        ("q=ab", "three letters"),
        ("q=%00", "q: "),
        ("q=needle&purpose=odd", "purpose: "),
        ("q=needle&cursor=x", "cursor of the page before"),
        ("q=nowhere-at-all", "No trajectory holds this text"),
    ],
)
def test_the_page_says_what_is_wrong_or_missing(rows, project, page, query, said):
    answer = page.get(f"/projects/{project.pk}/search/?{query}")
    assert answer.status_code == 200 and said in answer.content.decode()


def test_the_api_gives_typed_hits(rows, run, project, owner, api):
    run.experiment.name = "Needle question"
    run.experiment.save()
    services.create_queue(run, owner, name="Needles", rubric=Rubric(), wanted=Filter(), size=1)
    found = api("GET", "search?q=needle").json()
    kinds = [item["kind"] for item in found["items"]]
    assert kinds == ["experiment", "queue", "trajectory", "trajectory"]
    assert found["items"][-1]["url"].startswith("/trajectories/") and found["note"] == ""
    assert "three letters" in api("GET", "search?q=ne").json()["note"]
    assert api("GET", f"search?q={run.pk}").json()["items"][0]["field"] == "id"
    assert api("GET", "search?q=").status_code == 422


def test_the_api_pages_through_trajectories(rows, project, api):
    first = api("GET", "search/trajectories?q=needle&limit=1").json()
    rest = api("GET", f"search/trajectories?q=needle&cursor={first['next_cursor']}").json()
    names = [item["row"]["id"] for item in first["items"] + rest["items"]]
    assert sorted(names) == ["late", "long"] and rest["next_cursor"] is None
    assert first["items"][0]["run_name"]
    assert api("GET", "search/trajectories?q=ab").status_code == 422
