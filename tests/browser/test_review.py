"""A queue reviewed by keyboard into a DPO dataset and a launch on it; two people in one queue; a
connection that goes away; comments that name people. In a real browser."""

import re

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from bench._axe import COLOURS, findings
from tests.browser.conftest import aside
from tests.webapp.reviews.samples import lookup, put, trajectory
from tests.webapp.support import person
from webapp.accounts.models import Role
from webapp.experiments.models import Dataset, Run
from webapp.reviews import services
from webapp.reviews.models import Queue, QueueItem, StepMark, Verdict
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric

pytestmark = pytest.mark.browser

CALL = ('{"tool":"lookup","entity":"Lyon"}', lookup("Lyon", "country", "France"), None)
RIGHT, WRONG = ('{"answer":"Euro"}', None, "Euro"), ('{"answer":"Franc"}', None, "Franc")
ITEM = re.compile(r"/queue-items/qit_\w+/")


def answered(name: str, solved: bool, group: str = "g0"):
    made = trajectory([CALL, RIGHT if solved else WRONG], name=name, group=group, success=solved,
                      task=f"task-{group}")  # fmt: skip
    for step in made.steps:
        step.detour = False
    return made


@pytest.fixture
def judged_run(played) -> Run:
    run = played().run
    aside(run.trajectories.all().delete)
    aside(put, run, [answered(f"t{g}{n}", n == 0, f"g{g}") for g in range(2) for n in range(2)])
    return run


@pytest.fixture
def editor(project):
    return person("editor", project, Role.EDITOR)


@pytest.fixture
def queue(judged_run, owner):
    rubric = Rubric.model_validate({"labels": ["lucky"], "scales": [{"name": "Effort"}]})
    return aside(
        services.create_queue, judged_run, owner, name="Queue", rubric=rubric, wanted=Filter(),
        size=10,
    )  # fmt: skip


def at_item(page: Page) -> None:
    expect(page).to_have_url(ITEM)
    expect(page.locator("[data-transcript] [data-step]").first).to_be_visible()


def item_of(page: Page) -> str:
    return page.url.split("/queue-items/")[1].split("/")[0]


def test_a_queue_is_reviewed_by_keyboard_into_a_dpo_dataset_and_launched(
    visit, judged_run, owner
) -> None:
    page = visit(owner, reverse("queue_new", args=[judged_run.pk]))
    page.get_by_label("groups that disagree").check()
    expect(page.locator("#preview")).to_contain_text("4 items would be in the queue")
    expect(page.locator("#preview")).to_contain_text("group: 1 solved, 1 not")
    page.get_by_label("Name", exact=True).fill("By keyboard")
    page.get_by_label("Labels, one a line").fill("lucky\nslow")
    page.get_by_label("Scales, one a line").fill("Effort 1 5")
    page.get_by_role("button", name="Make the queue").click()
    page.get_by_role("button", name="Review (4)").click()

    for place in range(4):  # from here on no mouse
        at_item(page)
        expect(page.locator(".verdict")).to_contain_text(f"{place} by you")
        keyboard, url = page.keyboard, page.url.split("#")[0]
        if place == 0:
            keyboard.press("?")
            expect(page.locator("#help")).to_contain_text("Take the last verdict back")
            keyboard.press("Escape")
            keyboard.press("j")
            keyboard.press("-")
            expect(page.locator("[data-mark='1']")).to_contain_text("step 1")
            keyboard.press(",")
            keyboard.type("the country is no currency")
            keyboard.press("Enter")
            assert findings(page) == []
        solved = page.locator(".replay-title .badge-good").count() == 1
        keyboard.press("a" if solved else "r")
        keyboard.press("2")
        keyboard.press("v")
        keyboard.type("4")
        keyboard.press("m")
        keyboard.type("seen, ok" if solved else "a guess")
        keyboard.press("Enter")
        page.wait_for_url(lambda now, before=url: now.split("#")[0] != before)
    queue = Queue.objects.get(name="By keyboard")
    expect(page).to_have_url(re.compile(f"/queues/{queue.pk}/"))
    assert {item.outcome for item in queue.items.all()} == {"accepted", "rejected"}
    verdict = Verdict.objects.filter(item__queue=queue, accepted=True).first()
    assert (verdict.labels, verdict.scores, verdict.note) == (["slow"], {"Effort": 4}, "seen, ok")
    mark = StepMark.objects.get()
    assert (mark.step, mark.mark, mark.note) == (1, "bad", "the country is no currency")

    page.get_by_role("button", name="Make a dataset version").click()
    page.get_by_label("pairs, for DPO").check()
    page.get_by_role("button", name="Make it").click()
    expect(page.locator("#versions")).to_contain_text("pairs")
    page.locator("#versions summary", has_text="Launch DPO on it").click()
    page.get_by_role("link", name="from the start, by the recipe repair").click()
    (version,) = queue.project.datasets.get(kind="pairs").versions.all()
    assert version.rows == 1, "both groups part at the same two turns"
    expect(page.get_by_label("Spec as YAML")).to_have_value(re.compile(f"dataset: {version.pk}"))
    expect(page.locator("#verdict")).to_have_text("can be launched")
    page.get_by_role("button", name="Launch").click()
    expect(page).to_have_url(re.compile(r"/runs/run_\w+/"))
    run = Run.objects.get(stage_datasets__version=version)
    page.goto(reverse("queue", args=[queue.pk]))
    expect(page.locator("#versions")).to_contain_text(run.name)
    assert findings(page) == []


def test_two_people_in_one_queue_never_hold_the_same_item(visit, queue, owner, editor) -> None:
    one = visit(owner, reverse("queue", args=[queue.pk]))
    two = visit(editor, reverse("queue", args=[queue.pk]))
    one.get_by_role("button", name="Review (4)").click()
    two.get_by_role("button", name="Review (4)").click()
    at_item(one)
    at_item(two)
    assert item_of(one) != item_of(two)

    two.goto(f"/queue-items/{item_of(one)}/")  # the second one is told, and gets the next
    expect(two.locator("[data-held]")).to_contain_text("Owner began to review this trajectory")
    expect(two.locator("#verdict")).to_have_count(0)
    two.get_by_role("button", name="Go to the next one").click()
    at_item(two)
    assert item_of(one) != item_of(two)
    expect(two.locator("#verdict")).to_be_visible()

    pk = item_of(one)
    item = QueueItem.objects.get(pk=pk)
    aside(item.claims.all().delete)  # the first one was away for longer than the lease
    aside(services.judge, item, editor, choice="accepted", scores={"Effort": 3})
    visit.wrong.clear()
    one.keyboard.press("r")
    one.keyboard.press("v")
    one.keyboard.type("1")
    one.keyboard.press("m")
    one.keyboard.type("my words")
    one.keyboard.press("Enter")
    expect(one.locator("[data-review-state]")).to_contain_text("Others have judged this")
    expect(one.get_by_label("Note", exact=True)).to_have_value("my words")
    assert [w for w in visit.wrong if "409" not in w] == []
    visit.wrong.clear()
    one.locator("[data-review-state] button").click()
    at_item(one)
    assert item_of(one) != pk


def test_an_item_is_held_by_who_sees_it_and_not_by_its_address(visit, queue, owner, editor) -> None:
    item = queue.items.order_by("position").first()
    address = reverse("queue_item", args=[item.pk])
    page = visit(owner, reverse("queue", args=[queue.pk]))
    looked = page.request.get(address)  # as previews of links do
    assert looked.ok and "verdict" in looked.text()
    assert page.request.get(reverse("queue_next", args=[queue.pk])).ok
    assert aside(item.queue.items.filter(claims__isnull=False).count) == 0
    with page.expect_response(lambda answer: answer.url.endswith(f"/{item.pk}/claim")) as claimed:
        page.goto(address)
    assert claimed.value.ok
    assert aside(item.claims.get).user_id == owner.pk
    other = visit(editor, address)
    expect(other.locator("[data-held]")).to_contain_text("Owner began to review this trajectory")


def test_enter_finds_a_dataset_and_makes_none(visit, queue, owner) -> None:
    for n in range(51):
        Dataset.objects.create(project=queue.project, name=f"hay {n:02}", kind="pairs")
    needle = Dataset.objects.create(project=queue.project, name="the needle", kind="pairs")
    page = visit(owner, reverse("queue", args=[queue.pk]))
    page.locator("[data-open-dialog='#make-dataset']").click()
    choice = page.locator("#target")
    expect(choice).not_to_contain_text("needle")
    page.get_by_label("Find a dataset").fill("needle")
    page.keyboard.press("Enter")
    expect(page.locator("[data-found]")).to_have_text("1 found")
    choice.select_option(needle.pk)
    assert not Dataset.objects.filter(last_number__gt=0).exists()
    expect(page.locator("#make-dataset")).to_be_visible()


def test_a_lost_connection_loses_no_note(visit, queue, owner) -> None:
    page = visit(owner, reverse("queue", args=[queue.pk]))
    page.get_by_role("button", name="Review (4)").click()
    at_item(page)
    url = page.url.split("#")[0]
    page.context.set_offline(True)
    page.keyboard.press("r")
    page.keyboard.press("v")
    page.keyboard.type("2")
    page.keyboard.press("m")
    page.keyboard.type("long thoughts")
    page.keyboard.press("Enter")
    expect(page.locator("[data-review-state]")).to_contain_text("kept in this browser")
    expect(page.get_by_label("Note", exact=True)).to_have_value("long thoughts")
    page.context.set_offline(False)  # it is sent by itself
    page.wait_for_url(lambda now: now.split("#")[0] != url)
    assert Verdict.objects.get().note == "long thoughts"

    page.keyboard.press("u")  # undo
    page.wait_for_url(lambda now: now.split("#")[0] == url)
    at_item(page)
    expect(page.get_by_label("Note", exact=True)).to_have_value("long thoughts")
    assert not Verdict.objects.exists()
    page.get_by_label("Note", exact=True).fill("half a thought")
    page.reload()
    at_item(page)
    expect(page.get_by_label("Note", exact=True)).to_have_value("half a thought")
    expect(page.locator("[data-review-state]")).to_contain_text("not saved yet")


def test_a_person_is_named_in_a_comment_and_finds_it_in_the_inbox(
    visit, judged_run, owner, editor
) -> None:
    page = visit(owner, reverse("replay", args=["t00"]))
    expect(page.locator("[data-transcript] [data-step]").first).to_be_visible()
    page.keyboard.press("c")
    page.keyboard.type("Why France, @ed")
    expect(page.locator(".mentions [role=option]")).to_have_text("@editor Editor")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Comment", exact=True)).to_have_value("Why France, @editor ")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".comment")).to_contain_text("Why France, @editor")

    theirs = visit(editor, "/inbox/")
    expect(theirs.locator("[data-place=inbox] .badge")).to_have_text("1")
    assert findings(theirs) == []
    theirs.get_by_role("link", name="Why France").click()
    expect(theirs).to_have_url(re.compile(r"/trajectories/t00/#"))
    theirs.get_by_role("button", name="Answer").click()
    theirs.keyboard.type("Since Lyon lies there.")
    theirs.keyboard.press("Control+Enter")
    expect(theirs.locator(".replies .comment")).to_contain_text("Since Lyon lies there.")
    theirs.goto("/inbox/")
    expect(theirs.locator("[data-place=inbox] .badge")).to_have_count(0)
    page.goto("/inbox/")
    expect(page.locator("main")).to_contain_text("Since Lyon lies there.")


def test_two_side_by_side_are_judged_by_key(visit, judged_run, owner) -> None:
    aside(
        services.create_queue, judged_run, owner, name="Two", rubric=Rubric(), wanted=Filter(),
        size=1, sample="disagreement", style="pairwise",
    )  # fmt: skip
    queue = Queue.objects.get()
    page = visit(owner, reverse("queue", args=[queue.pk]), color_scheme="dark")
    page.get_by_role("button", name="Review (1)").click()
    expect(page.locator(".compare-row").first).to_be_visible()
    assert findings(page, COLOURS) == []
    page.keyboard.press("w")
    page.keyboard.press("s")
    expect(page).to_have_url(re.compile(f"/queues/{queue.pk}/"))
    assert Verdict.objects.get().preferred == "second"
