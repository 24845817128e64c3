"""What people read: numbers, Markdown, intervals, colours."""

import math
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webapp import templating
from webapp.experiments.models import Run
from webapp.markdown import render_markdown

TOKENS = Path(__file__).parents[3] / "frontend" / "static" / "css" / "tokens.css"
TEXT_ON = ["page", "surface", "sunken", "hover", "raised"]


def plain(value: object) -> str:
    return re.sub(r"<[^>]+>", "", str(value))


def test_missing_zero_and_not_a_number_differ() -> None:
    shown = [str(templating.number(v)) for v in (None, 0, 0.0, math.nan, math.inf, -math.inf)]
    assert len(set(shown)) == 5  # 0 and 0.0 are the same
    assert 'class="none"' in shown[0]
    assert shown[1] == "0"
    assert 'class="nan"' in shown[3]


def test_numbers_have_four_significant_digits() -> None:
    assert plain(templating.number(0.91321)) == "0.9132"
    assert plain(templating.number(12.5)) == "12.50"
    assert plain(templating.number(1234567)) == "1\u202f234\u202f567"
    assert plain(templating.number(3.2e-5)) == "3.20e-05"
    assert plain(templating.number(-0.5)) == "\u22120.5000"


@given(st.floats(-1e300, 1e300))
def test_a_shown_number_is_near_the_value(value: float) -> None:
    shown = plain(templating.number(value)).replace("\u2212", "-").replace("\u202f", "")
    assert math.isclose(float(shown), value, rel_tol=0.006, abs_tol=1e-12)


def test_durations() -> None:
    shown = [templating.duration(s) for s in (0.42, 59, 60, 61, 3600, 90_000, 200_000)]
    assert shown == [
        "0.4 s",
        "59.0 s",
        "1 min",
        "1 min 01 s",
        "1 h 00 min",
        "25 h 00 min",
        "2 d 7 h",
    ]


PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "[click](javascript:alert(1))",
    "[click](JaVaScRiPt:alert(1))",
    "[click](data:text/html;base64,PHNjcmlwdD4=)",
    "![beacon](https://example.com/pixel.png)",
    '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
    "<https://example.com/><script>",
    '<a href="javascript:alert(1)">x</a>',
    "| a |\n|:-:|\n| <style>*{display:none}</style> |",
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_markdown_does_nothing(payload: str) -> None:
    html = str(render_markdown(payload)).lower()
    tags = re.findall(r"<(/?)(\w+)([^>]*)>", html)
    assert not {name for _, name, _ in tags} & {"script", "img", "svg", "iframe", "style", "object"}
    assert not any(re.search(r"\bon\w+=|javascript:|data:|style=", given) for *_, given in tags)


def test_markdown_keeps_what_people_write() -> None:
    html = render_markdown(
        "**bold** `code`\n\n- one\n\n[a](https://example.com)\n\n| a |\n|---|\n| 1 |"
    )
    for part in ("<strong>bold</strong>", "<code>code</code>", "<li>one</li>", "<td>1</td>"):
        assert part in html
    assert 'href="https://example.com"' in html
    assert "noopener" in html


def test_neighbouring_runs_differ_in_colour() -> None:
    colours = [templating.run_colour(Run(number=number)) for number in range(1, 9)]
    assert len(set(colours)) == 8


def test_runs_of_one_colour_differ_in_line_on_one_page() -> None:
    runs = [Run(number=number) for number in (1, 9, 17, 2)]
    templating.line_styles(runs)
    assert [templating.series_class(run) for run in runs] == [
        "series-1",
        "series-1 key-dash",
        "series-1 key-dot",
        "series-2",
    ]


def test_a_key_called_items_is_a_key() -> None:
    assert templating.pairs({"items": 3, "name": "x"}) == [("items", 3), ("name", "x")]
    assert templating.pairs(None) == []


def test_sparks_hold_the_largest_numbers() -> None:
    assert 'd="M0.0 26.0 L50.0 14.0 L100.0 2.0"' in templating.spark([-1.7e308, 0.0, 1.7e308])


def test_sparks_keep_gaps_and_say_when_there_is_nothing() -> None:
    assert "not enough" in templating.spark([None, 1.0])
    drawn = templating.spark([0.0, 1.0, None, 0.5, 1.0])
    assert drawn.count("M") == 2


def colours(theme: int) -> dict[str, tuple[float, float, float]]:
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", TOKENS.read_text())
    return {
        name: tuple(int(pair[theme][i : i + 2], 16) / 255 for i in (1, 3, 5))  # type: ignore[misc]
        for name, *pair in found
    }


def luminance(rgb: tuple[float, float, float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """WCAG 2.2, contrast ratio."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_reaches_the_contrast_of_wcag_aa(theme: int) -> None:
    tokens = colours(theme)
    for text in ("text", "muted", "faint", "accent", "good", "warn", "bad"):
        for ground in TEXT_ON:
            assert contrast(tokens[text], tokens[ground]) >= 4.5, (text, ground)
    pairs = [("on-accent", "accent"), ("accent-strong", "accent-soft"), ("text", "accent-soft")]
    pairs += [(tone, f"{tone}-soft") for tone in ("good", "warn", "bad")]
    for text, ground in pairs:
        assert contrast(tokens[text], tokens[ground]) >= 4.5, (text, ground)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_lines_and_borders_reach_three_to_one(theme: int) -> None:
    tokens = colours(theme)
    for name in [f"series-{n}" for n in range(8)] + ["line-strong", "focus"]:
        assert contrast(tokens[name], tokens["surface"]) >= 3, name


def test_an_id_leads_to_the_page_of_what_it_names() -> None:
    assert templating.page_of("run_7h2k9q4w0c3mz8xa") == "/runs/run_7h2k9q4w0c3mz8xa/"
    assert templating.page_of("que_7h2k9q4w0c3mz8xa") == "/queues/que_7h2k9q4w0c3mz8xa/"
    addresses = ("ada@example.org", "run_7h2k@example.org", "run_7h/2k@example.org")
    for other in ("tok_7h2k9q4w0c3mz8xa", "run", "run_", "", *addresses):
        assert templating.page_of(other) == ""


def test_only_a_node_that_has_long_not_reported_is_silent() -> None:
    now = time.time()
    assert templating.silent(now - 5) is None
    assert templating.silent(now - 600) == pytest.approx(600, abs=5)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(4e-4, "0.0004"), (2e-5, "2e-05"), (-0.2, "−0.2"), (1.0, "1"), (0.95, "0.95"), (None, "–")],
)
def test_what_a_person_gave_is_shown_in_their_digits(value: float | None, shown: str) -> None:
    assert plain(templating.param(value)) == shown
