"""Whatever an agent wrote is shown whole, and nothing of it runs or hides."""

import re

import pytest
from playwright.sync_api import expect

from engine.records.trajectory import ToolCall
from tests.browser.replay.pages import show, step
from tests.webapp.reviews.samples import lookup, trajectory
from tests.webapp.reviews.test_images import b64, png
from webapp.reviews import html_export, services
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
