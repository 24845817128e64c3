"""The replay, two replays side by side, and a review queue, in a real browser."""

import os
import re
from array import array
from collections.abc import Iterator
from functools import partial

import pytest
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from engine.records.trained import TrainedTokens, write_trained
from engine.records.trajectory import ToolCall
from tests.engine.records.test_shards import long_trajectory
from tests.webapp.reviews.samples import lookup, put, trajectory
from tests.webapp.reviews.test_images import b64, png
from tests.webapp.support import person
from webapp import storage
from webapp.accounts.models import Project, Role, Team
from webapp.experiments.models import Attempt, Experiment, Run
from webapp.reviews import html_export, services
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric
from webapp.reviews.templatetags.agent_text import HIDDEN

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PHONE = {"width": 390, "height": 800}
HOSTILE = [
    "<script>window.pwned=1</script>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<svg onload=window.pwned=1>",
    "[click](javascript:window.pwned=1) <javascript:window.pwned=1>",
    '<img src="http://evil.invalid/beacon" onerror="window.pwned=1">',
    "![](http://evil.invalid/beacon)",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "invoice\u202egnp.exe \u2066a\u2069 b\u200bc\ufeff",
    "{{ 7*7 }} {% url 'home' %} ${7*7} <%= 7 %>",
    "=cmd|'/c calc'!A1",
    "</pre></article></body><h1>gone</h1>",
]


@pytest.fixture
def project(tmp_path, settings) -> Iterator[Project]:
    settings.CARAVAN_STORAGE = str(tmp_path / "storage")
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}  # nothing is collected here
    storage._place.cache_clear()
    yield Project.objects.create(team=Team.objects.create(name="Team"), name="Project")
    storage._place.cache_clear()


@pytest.fixture
def owner(project):
    return person("owner", project, Role.ADMIN)


@pytest.fixture
def editor(project):
    return person("editor", project, Role.EDITOR)


@pytest.fixture
def run(project) -> Run:
    experiment = Experiment.objects.create(project=project, name="Question")
    spec = {"reward": {"terms": [{"kind": "exact_answer", "weight": 1.0}]}, "stages": []}
    run = Run.objects.create(project=project, experiment=experiment, name="run", spec=spec)
    Attempt.objects.create(run=run, number=1)
    return run


@pytest.fixture
def store(run):
    return partial(put, run)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Playwright's loop runs in this thread; the tests' own queries are synchronous.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with sync_playwright() as playwright:
        chromium = os.environ.get("CARAVAN_CHROMIUM")
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


def is_wrong(said: ConsoleMessage) -> bool:
    return said.type == "error" and "/ws/" not in said.text  # this server speaks no websockets


@pytest.fixture
def open_as(browser, live_server):
    """A page of a signed-in person; what went wrong on it fails the test."""
    opened, wrong = [], []

    def page_of(user, **options) -> Page:
        client = Client()
        client.force_login(user)
        context = browser.new_context(base_url=live_server.url, **options)
        cookie = client.cookies["caravan_session"]
        context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_server.url}])
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation',"
            "  (event) => console.error('CSP ' + event.violatedDirective + event.blockedURI));"
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: is_wrong(said) and wrong.append(said.text))
        page.on(
            "request",
            lambda asked: (
                asked.url.startswith((live_server.url, "data:")) or wrong.append(asked.url)
            ),
        )
        opened.append(context)
        return page

    yield page_of
    for context in opened:
        context.close()
    assert not wrong


def show(page: Page, path: str) -> None:
    """Open a replay and wait until its script has drawn it."""
    page.goto(path)
    expect(page.locator(".step[data-selected]")).to_be_visible()


def step(page: Page, index: int):
    return page.locator(f'[data-step="{index}"]')


def test_it_renders_calls_as_calls(store, owner, open_as):
    failed = lookup("Paris", "mayor", "There is no such relation.", "no_such_relation")
    store([trajectory([("first", failed, None), ("second", lookup("Lyon", "in", "FR"), None)])])
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    expect(step(page, 0).locator(".call-name")).to_have_text("lookup")
    expect(step(page, 0).locator("dd").first).to_have_text("Paris")
    expect(step(page, 0)).to_contain_text("no_such_relation")
    expect(step(page, 0)).to_contain_text("20 ms")
    expect(step(page, 1).locator(".call-result")).to_have_text("FR")


def test_nothing_that_an_agent_writes_runs_or_hides(store, run, owner, open_as):
    turns = [(text, ToolCall("c", text, {text: text}, text, text, 0.1), text) for text in HOSTILE]
    prompt = " ".join(HOSTILE)
    rows = store([trajectory(turns, name=f"h{i}", prompt=prompt, category="x") for i in range(2)])
    for text in HOSTILE:
        services.add_comment(rows[0], owner, text)
    page = open_as(owner)
    show(page, "/trajectories/h0/")
    for tab in ("step", "tokens", "context", "comments"):
        page.click(f"[data-tab={tab}]")
        page.wait_for_timeout(200)
    page.fill("[data-search]", "<script>")
    expect(page.locator(".match").first).to_be_visible()
    for index, text in enumerate(HOSTILE):
        page.keyboard.press("Escape")
        page.evaluate("location.hash = `#step=${arguments_}`".replace("${arguments_}", str(index)))
        shown = step(page, index).locator(".step-text")
        expect(shown).to_be_visible()
        if not HIDDEN.search(text):
            expect(shown).to_have_text(text)
    expect(step(page, 7).locator(".step-text")).to_contain_text("RLO")
    expect(step(page, 6).locator(".step-text")).to_contain_text("ESC")
    assert page.locator("#replay :is(script, iframe, img, svg[onload])").count() == 0
    assert page.locator('a[href^="javascript:"]').count() == 0
    assert page.evaluate("window.pwned") is None
    for path in (f"/runs/{run.pk}/trajectories/", "/trajectories/compare?a=h0&b=h1"):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("window.pwned") is None
        expect(page.locator("body")).to_contain_text("<script>window.pwned=1</script>")


def test_images_are_shown_in_the_text_and_what_else_is_base64_is_labelled(store, owner, open_as):
    svg = "data:image/svg+xml;base64," + b64(b"<svg onload='window.pwned=1'/>" * 20)
    page_of_html = "data:text/html;base64," + b64(b"<script>window.pwned=1</script>" * 20)
    pictures = "\n".join(f"page {i}: {b64(png(40, 30, 60_000))}" for i in range(50))
    result = f"{svg} {page_of_html}\n{pictures}\nthe end"
    store([trajectory([("look", lookup("a", "b", result), None)])])
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    field = step(page, 0).locator(".call-result")
    expect(field.locator(".embedded")).to_have_count(52)
    expect(field.locator("img")).to_have_count(50)
    expect(field.locator(".embedded").first).to_contain_text("image/svg+xml")
    assert (
        field.locator("img").first.evaluate("async (img) => (await img.decode(), img.naturalWidth)")
        == 40
    )
    assert page.evaluate("document.body.textContent.length") < 50_000
    assert page.evaluate("window.pwned") is None
    page.fill("[data-search]", "the end")
    expect(page.locator(".match")).to_have_count(1)
    page.locator(".match").click()
    expect(field.locator("mark.current")).to_have_text("the end")


def test_an_exported_page_opens_from_a_disk_and_asks_for_nothing(store, owner, browser, tmp_path):
    picture = b64(png(40, 30))
    turns = [(text, ToolCall("c", text, {text: text}, text, text, 0.1), text) for text in HOSTILE]
    turns.append(("a picture", lookup("a", "b", f"here: {picture}"), "done"))
    (row,) = store([trajectory(turns)])
    row.refresh_from_db()
    file = tmp_path / "t0.html"
    file.write_bytes(b"".join(html_export.html(row, with_comments=True)))
    context = browser.new_context(offline=True, color_scheme="dark", viewport=PHONE)
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"file://{file}#step-{len(HOSTILE)}")
    expect(page.locator(f"#step-{len(HOSTILE)}")).to_be_in_viewport()
    assert page.locator("img").evaluate("(img) => img.naturalWidth") == 40
    assert page.locator(":is(script, iframe, svg, a:not([href^='#']))").count() == 0
    assert page.evaluate("window.pwned") is None and said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 19, 22)"
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    context.close()


def test_script_and_templates_agree_on_what_is_hidden(store, owner, open_as):
    store([trajectory()])
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    source = page.evaluate("fetch('/static/js/replay/text.js').then((answer) => answer.text())")
    pattern = re.search(r"const HIDDEN =\s*/(.+)/gu;", source).group(1)
    found = page.evaluate(
        """(pattern) => {
            const hidden = new RegExp(pattern, "u");
            const found = [];
            for (let code = 0; code <= 0x10ffff; code += 1) {
                if (hidden.test(String.fromCodePoint(code))) found.push(code);
            }
            return found;
        }""",
        pattern,
    )
    assert found == [code for code in range(0x110000) if HIDDEN.match(chr(code))]


def test_ten_thousand_steps_stay_smooth(store, owner, open_as):
    (row,) = store([long_trajectory(10_000, "x" * 20_000_000)])
    page = open_as(owner)
    show(page, f"/trajectories/{row.pk}/")
    expect(step(page, 0).locator(".step-text")).to_have_text("step 0")
    frames = page.evaluate(
        """async () => {
            const box = document.querySelector("[data-transcript]");
            const frame = () => new Promise(requestAnimationFrame);
            const times = [];
            let last = await frame();
            for (let i = 1; i <= 120; i += 1) {
                box.scrollTop = (box.scrollHeight * i) / 130;
                const now = await frame();
                times.push(now - last);
                last = now;
            }
            return times.sort((a, b) => a - b);
        }"""
    )
    assert frames[60] < 50, "a frame takes too long while scrolling"
    assert page.evaluate("document.querySelectorAll('*').length") < 3000
    assert page.evaluate("performance.memory.usedJSHeapSize") < 300e6
    page.evaluate("location.hash = '#step=9999'")
    expect(step(page, 9999).locator(".step-text")).to_have_text("step 9999")
    expect(step(page, 9999)).to_be_in_viewport()
    page.evaluate("location.hash = '#step=3'")
    more = step(page, 3).get_by_role("button", name=re.compile("Show more"))
    expect(more).to_have_text("Show more (2\u202f000 of 20\u202f000\u202f000 characters)")
    more.click()
    expect(more).to_have_text("Show more (22\u202f000 of 20\u202f000\u202f000 characters)")
    for shown in ("42", "62", "82", "102"):
        more.click()
        expect(more).to_contain_text(f"({shown}\u202f000 of")
    more.click()  # from here on it pages: no text of 20 million characters is ever in the page
    expect(more).to_contain_text("(characters 102\u202f000 to 122\u202f000 of")
    assert len(step(page, 3).locator(".call-result").inner_text()) == 20_000
    step(page, 3).get_by_role("button", name="Show earlier").click()
    expect(more).to_contain_text("(characters 82\u202f000 to 102\u202f000 of")
    page.evaluate("location.hash = '#step=3&field=result&span=15000000-15000004'")
    expect(step(page, 3).locator("mark.linked")).to_have_text("xxxx")


def test_keys_walk_steps_and_the_group(store, owner, open_as):
    store([trajectory(name=f"t{i}") for i in range(3)])
    page = open_as(owner)
    show(page, "/trajectories/t1/")
    expect(step(page, 0)).to_have_attribute("data-selected", "")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(step(page, 1)).to_have_attribute("data-selected", "")
    assert page.url.endswith("#step=1")
    slider = page.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("Step 1 · lookup"))
    page.keyboard.press("]")
    page.wait_for_url("**/trajectories/t2/*")
    page.go_back()
    page.wait_for_url("**/trajectories/t1/*")
    expect(step(page, 1)).to_have_attribute("data-selected", "")  # the address says which
    page.keyboard.press("[")
    page.wait_for_url("**/trajectories/t0/*")


def test_it_plays_to_the_end_and_stops(store, owner, open_as):
    store([trajectory()])
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    page.select_option("[data-speed]", "32")
    page.click("[data-play]")
    expect(step(page, 2)).to_have_attribute("data-selected", "")
    expect(page.locator("[data-play]")).to_have_attribute("aria-pressed", "false")


def test_tokens_are_coloured_explained_and_never_half_a_character(store, owner, open_as):
    store([trajectory([("法国 Lyon", None, None)])])
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    page.click("[data-tab=tokens]")
    tokens = page.locator(".token")
    expect(tokens.first).to_have_text("法国")
    assert "".join(tokens.all_inner_texts()) == "法国 Lyon"
    expect(page.locator(".token-legend")).to_contain_text("p ≥ 0.99")
    tokens.first.focus()
    # Three tokens make two characters; of each also what training saw.
    expect(page.locator(".token-readout dt")).to_have_count(6)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".token-readout")).to_contain_text("token 3")
    expect(page.locator(".token-readout")).to_contain_text("log-probability")
    page.select_option("[data-colouring]", "version")
    expect(page.locator(".token-legend")).to_contain_text("version 3: 6")
    page.select_option("[data-colouring]", "trained")
    expect(page.locator(".token-legend")).to_contain_text("trained on: 6")


def test_tokens_show_what_training_saw_of_them(store, owner, open_as):
    one, other = store([trajectory(name="t0"), trajectory(name="t1", group="g1")])
    turn = trajectory().steps[0]
    count = turn.stop - turn.start
    numbers = {
        "advantage": [-1.5] * count,
        "weight": [6.0, 1.0, 0.1] + [1.0] * (count - 3),
        "entropy": [0.0] * (count - 1) + [3.5],
    }
    columns = {name: array("f", values).tobytes() for name, values in numbers.items()}
    columns["clipped"] = array("b", [1, 0, 0] + [0] * (count - 3)).tobytes()
    item = TrainedTokens("t0", 12, 5, [(0, turn.start, turn.stop)], columns)
    blob, shard, rows = write_trained([item])
    storage.put_blob(blob)
    place = {name: rows[0][name] for name in ("step", "version", "tokens", "offset", "length")}
    one.run.trained_tokens.create(attempt=one.attempt, trajectory_id="t0", shard=shard, **place)
    page = open_as(owner)
    show(page, f"/trajectories/{one.pk}/")
    page.get_by_role("tab", name="Tokens").click()
    panel = page.locator('[data-panel="tokens"]')
    expect(panel).to_contain_text("Trained on in trainer step 12 (attempt 1), by policy version 5.")
    panel.locator("[data-colouring]").select_option("weight")
    tokens = panel.locator(".token")
    expect(tokens.nth(0)).to_have_class(re.compile("token-plus-4 token-clipped-high"))
    expect(tokens.nth(1)).to_have_class(re.compile("token-neutral"))
    expect(tokens.nth(2)).to_have_class(re.compile("token-minus-4"))
    tokens.nth(0).focus()
    expect(panel.locator("dl")).to_contain_text("importance weight 6×, upper bound held")
    panel.locator("[data-colouring]").select_option("advantage")
    expect(panel.locator(".token.token-minus-3")).to_have_count(tokens.count())
    panel.locator("[data-colouring]").select_option("entropy")
    expect(tokens.last).to_have_class(re.compile("token-h-7"))
    page.goto(f"/trajectories/compare?a={one.pk}&b={other.pk}")
    page.get_by_text("Tokens of the step, coloured").click()
    page.locator("[data-tokens] [data-colouring]").select_option("weight")
    left, right = page.locator("[data-side]").nth(0), page.locator("[data-side]").nth(1)
    expect(left.locator(".token.token-plus-4")).to_have_count(1)
    expect(right).to_contain_text("Not recorded")
    expect(right.locator(".token").first).to_have_class(re.compile("token-unrecorded"))


def test_it_shows_exactly_what_the_model_saw(store, owner, open_as):
    store([trajectory()])
    page = open_as(owner)
    show(page, "/trajectories/t0/#step=1")
    page.click("[data-tab=context]")
    spans = page.locator(".context span")
    expect(spans).to_have_count(3)
    expect(page.locator(".context .context-policy")).to_have_text(
        '{"tool":"lookup","entity":"Lyon"}'
    )
    expect(spans.last).to_have_text("France 法国")
    page.check("[data-show-ids]")
    expect(spans.last).to_have_text(re.compile(r"^[\d ]+$"))


def test_search_finds_chinese_and_goes_there(store, owner, open_as):
    store([trajectory()])
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    page.keyboard.press("/")
    page.keyboard.type("欧元")
    expect(page.locator(".match")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(step(page, 1)).to_have_attribute("data-selected", "")
    expect(step(page, 1).locator("mark.current")).to_have_text("欧元")


SELECT = """(name) => {
    const text = document.querySelector('[data-step="0"] [data-field="result"]').firstChild;
    const range = document.createRange();
    range.setStart(text, text.data.indexOf(name));
    range.setEnd(text, text.data.indexOf(name) + name.length);
    document.getSelection().removeAllRanges();
    document.getSelection().addRange(range);
}"""


def test_a_comment_on_a_span_reaches_a_colleague_without_a_reload(store, owner, editor, open_as):
    result = "😀 France 法国"  # two code units make one character
    store([trajectory([("call", lookup("Lyon", "country", result), None)])])
    colleague = open_as(editor)
    show(colleague, "/trajectories/t0/")
    page = open_as(owner)
    show(page, "/trajectories/t0/")
    expect(step(page, 0).locator(".call-result")).to_be_visible()
    # Comments that arrive draw the steps anew, which ends a selection.
    expect(page.locator("[data-comments]")).to_contain_text("No comments yet")
    page.evaluate(SELECT, "法国")
    page.keyboard.press("c")
    expect(page.locator("[data-comments]")).to_contain_text("characters 9 to 11")
    page.keyboard.type("Is this **right**?")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".comment-body strong")).to_have_text("right")
    expect(step(page, 0).locator("mark.commented")).to_have_text("法国")
    expect(step(colleague, 0).locator("mark.commented")).to_have_text("法国")
    colleague.click("[data-tab=comments]")
    expect(colleague.locator(".comment")).to_contain_text("Owner")
    expect(colleague.get_by_role("button", name="Edit")).to_have_count(0)
    colleague.get_by_role("button", name="Resolve").click()
    expect(page.locator(".comment")).to_contain_text("resolved")
    expect(step(page, 0).locator("mark.commented")).to_have_count(0)


def test_a_link_to_a_span_opens_at_the_span(store, owner, open_as):
    store([trajectory([(f"turn {i}", lookup("a", "b", "c"), None) for i in range(60)])])
    page = open_as(owner)
    show(page, "/trajectories/t0/#step=50&field=text&span=5-7")
    expect(step(page, 50).locator("mark.linked")).to_have_text("50")
    expect(step(page, 50)).to_be_in_viewport()


def test_two_trajectories_are_aligned_and_the_divergence_is_marked(store, owner, open_as):
    turns = [(f"turn {i}", lookup("a", "b", f"result {i}"), None) for i in range(40)]
    other = [*turns[:25], ("turn 25", lookup("a", "b", "result X"), None)]
    store([trajectory(turns, name="a"), trajectory(other, name="b")])
    page = open_as(owner)
    page.goto("/trajectories/compare?a=a&b=b")
    expect(page.locator("[data-verdict]")).to_have_text(
        "They diverge at step 25: result, character 7."
    )
    row = page.locator(".compare-row", has=page.locator(".compare-divergence"))
    expect(row).to_be_in_viewport()
    expect(row.locator("mark.diverged")).to_have_text(["25", "X"])
    page.keyboard.press("j")
    expect(page.locator(".compare-ended").first).to_be_visible()


def test_a_queue_is_reviewed_with_the_keyboard_alone(store, run, owner, open_as):
    store([trajectory(name=f"t{i}") for i in range(2)])
    queue = services.create_queue(
        run, owner, name="Q", rubric=Rubric(labels=["clean"]), wanted=Filter(), size=5
    )
    page = open_as(owner)
    page.goto(f"/queues/{queue.pk}/next")
    expect(page.locator(".verdict")).to_contain_text("1 of 2")
    for keys in ("a1s", "rs"):
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_load_state("networkidle")
    expect(page.locator("body")).to_contain_text("Nothing is left for you")
    verdicts = [item.verdicts.get() for item in queue.items.order_by("position")]
    assert [v.accepted for v in verdicts] == [True, False]
    assert verdicts[0].labels == ["clean"]


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_nothing_overflows_the_page(store, owner, open_as, width):
    store([trajectory([("x" * 300, lookup("y" * 300, "z" * 300, "w" * 300), "v" * 300)])])
    page = open_as(owner, viewport={"width": width, "height": 900})
    show(page, "/trajectories/t0/")
    expect(step(page, 0).locator(".call-result")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
