"""Tokens and contexts: what the policy sampled, what training saw of it, what the model saw."""

import re
from array import array

import pytest
from playwright.sync_api import expect

from engine.records.trained import TrainedTokens, write_trained
from tests.browser.replay.pages import show
from tests.webapp.reviews.samples import trajectory
from webapp import storage

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


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
