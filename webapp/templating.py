"""Template tags: icons, numbers that tell missing from zero, times, Markdown, sparklines."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django import template
from django.http import QueryDict
from django.templatetags.static import static
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import pgettext_lazy

from webapp.accounts import saved_views
from webapp.accounts.pages import catalogue as catalogues
from webapp.experiments.models import Job, Run
from webapp.markdown import render_markdown
from webapp.monitoring.headline import metric_named
from webapp.staticfiles import imported

register = template.Library()

SERIES_COLOURS = 8
LINE_STYLES = ("solid", "dash", "dot")
SILENT_S = 15  # as nodes.js has it
PARAM_SHOWN = 80  # characters of a field's value
# Prefix of an id -> name of the page's address.
PAGES = {
    "run": "run",
    "swp": "sweep",
    "exp": "experiment",
    "rws": "reward_scheme",
    "ds": "dataset",
    "que": "queue",
    "job": "job",
    "whk": "webhook",
}


@register.simple_tag
def icon(name: str) -> SafeString:
    return format_html(
        '<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>',
        static("img/icons.svg"),
        name,
    )


@register.simple_tag
@cache  # names of static files do not change while a process runs
def module(name: str) -> SafeString:
    """An ES module with all that it imports asked for at once, not file after file."""
    preloads = format_html_join(
        "", '<link rel="modulepreload" href="{}">', ((static(one),) for one in imported(name))
    )
    return preloads + format_html('<script type="module" src="{}"></script>', static(name))


@register.simple_tag
def catalogue() -> str:
    """Where the translations of the scripts are."""
    return catalogues.address()


STATE_LABELS = {
    "queued": pgettext_lazy("state", "queued"),
    "starting": pgettext_lazy("state", "starting"),
    "running": pgettext_lazy("state", "running"),
    "unreachable": pgettext_lazy("state", "unreachable"),
    "stopping": pgettext_lazy("state", "stopping"),
    "succeeded": pgettext_lazy("state", "succeeded"),
    "stopped": pgettext_lazy("state", "stopped"),
    "failed": pgettext_lazy("state", "failed"),
    "interrupted": pgettext_lazy("state", "interrupted"),
    "lost": pgettext_lazy("state", "lost"),
}


@register.simple_tag
def state_label(state: str) -> str:
    return str(STATE_LABELS.get(state, state))


@register.filter
def number(value: Any, digits: int = 4) -> SafeString | str:
    """A number in `digits` significant digits; missing, NaN and infinite look unlike zero."""
    if value is None or value == "":
        return format_html('<span class="none" title="{}">–</span>', _("No data"))
    if isinstance(value, str):
        return format_html('<span class="nan">{}</span>', value)
    if isinstance(value, float) and not math.isfinite(value):
        name = "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
        return format_html('<span class="nan">{}</span>', name)
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    return significant(value, digits)


def significant(value: float, digits: int = 4) -> str:
    """For example 0.9132, 12.50, 1 234, 3.2e-05: what a column of numbers can be read by."""
    size = abs(value)
    if size < 1e7 and value == int(value):
        return f"{int(value):,}".replace(",", "\u202f").replace("-", "\u2212")
    if size < 1e-4 or size >= 1e7:
        return f"{value:.{max(digits - 2, 1)}e}".replace("-", "\u2212", 1 if value < 0 else 0)
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{places}f}".replace(",", "\u202f")
    return text.replace("-", "\u2212")


def written(value: float) -> str:
    """A number that a person gave, in no more digits than they did: 0.0004, not 0.0004000."""
    if abs(value) < 1e7 and value == int(value):
        return significant(value)
    return f"{value:.6g}".replace("-", "\u2212", 1 if value < 0 else 0)


@register.filter
def percent(value: Any, places: int = 1) -> SafeString | str:
    if isinstance(value, int | float) and math.isfinite(value):
        return f"{100 * value:.{places}f}\u202f%".replace("-", "\u2212")
    return number(value)


@register.filter
def share_of(part: float, whole: float) -> float | None:
    """None where there is nothing to take a share of."""
    return part / whole if whole else None


@register.filter
def points(value: float, places: int = 1) -> str:
    """A difference of two shares, in percentage points with its sign."""
    return f"{100 * value:+.{places}f}".replace("-", "\u2212")


@register.filter
def size(value: Any) -> SafeString | str:
    """Bytes in binary units."""
    if value is None:
        return number(None)
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


@register.filter
def duration(seconds: Any) -> SafeString | str:
    if seconds is None:
        return number(None)
    whole = int(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


@register.filter
def param(value: Any) -> SafeString | str:
    """A value of a spec's field: numbers as numbers, the rest as JSON writes it, its beginning."""
    if isinstance(value, float) and math.isfinite(value):
        return written(value)
    if value is None or isinstance(value, int | float):
        return number(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= PARAM_SHOWN else f"{text[: PARAM_SHOWN - 1]}…"


@register.filter
def moment(value: datetime | float | None) -> SafeString | str:
    """A time that the page turns into a relative one; the absolute one is its title."""
    if value is None:
        return number(None)
    if not isinstance(value, datetime):
        value = datetime.fromtimestamp(value, UTC)
    value = value.astimezone(UTC)
    return format_html(
        '<time datetime="{}" data-time>{}</time>',
        value.isoformat(timespec="milliseconds"),
        value.strftime("%Y-%m-%d %H:%M UTC"),
    )


@register.filter
def silent(at: float) -> float | None:
    """Seconds since a node was heard, None while that is no longer than between its reports."""
    age = datetime.now(UTC).timestamp() - at
    return age if age > SILENT_S else None


@register.filter
def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


@register.filter
def clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


@register.filter
def took(run: Run | Job) -> float | None:
    """Seconds from the first start to the end; None before either."""
    if run.started_at is None or run.ended_at is None:
        return None
    return (run.ended_at - run.started_at).total_seconds()


@register.filter
def pretty(data: Any) -> str:
    """JSON as people read it."""
    return json.dumps(data, indent=2, ensure_ascii=False)


@register.filter
def metric(run: Run, word: str) -> Any:
    """The newest finite value of a headline metric, by its short word; None where there is none."""
    return run.headline.get(metric_named(word))


@register.filter
def completion(run: Run) -> Any:
    """The completion rate on held-out tasks; None before the first evaluation."""
    return metric(run, "success")


@register.filter
def markdown(text: str) -> SafeString:
    return render_markdown(text)


@register.filter
def series_class(run: Run) -> str:
    """The class that gives a run its colour, the same on every page; see `line_styles`."""
    style = getattr(run, "line_style", "solid")
    return f"series-{run_colour(run)}" + ("" if style == "solid" else f" key-{style}")


def run_colour(run: Run) -> int:
    """Index of the run's colour in the palette; neighbours in time differ."""
    return run.number % SERIES_COLOURS


def line_styles(runs: list[Run]) -> None:
    """Give runs of one page that share a colour different line styles."""
    seen: Counter[int] = Counter()
    for run in runs:
        colour = run_colour(run)
        run.line_style = LINE_STYLES[seen[colour] % len(LINE_STYLES)]  # type: ignore[attr-defined]
        seen[colour] += 1


@register.simple_tag
def spark(values: Sequence[float | None] | None, label: str = "") -> SafeString:
    """A line of at most some dozens of points in a box of 100 by 28; gaps stay gaps."""
    finite = [v for v in values or () if v is not None and math.isfinite(v)]
    if len(finite) < 2:
        return format_html('<span class="none small">{}</span>', _("not enough points yet"))
    low, high = min(finite), max(finite)
    span = high / 2 - low / 2 or 1.0  # halves: the difference may be more than a float holds
    step = 100 / (len(values or ()) - 1)
    parts: list[str] = []
    pen_down = False
    for index, value in enumerate(values or ()):
        if value is None or not math.isfinite(value):
            pen_down = False
            continue
        y = 26 - 24 * ((value / 2 - low / 2) / span) if high > low else 14
        parts.append(f"{'L' if pen_down else 'M'}{index * step:.1f} {y:.1f}")
        pen_down = True
    return format_html(
        '<svg class="spark" viewBox="0 0 100 28" preserveAspectRatio="none" role="img" '
        'aria-label="{}"><path d="{}"/></svg>',
        label,
        mark_safe(" ".join(parts)),  # digits and letters that we made
    )


@register.simple_tag(takes_context=True)
def query(context: Any, **changes: Any) -> str:
    """This page's query string with some parameters set, or removed where the value is None."""
    given: QueryDict = context["request"].GET.copy()
    for name, value in changes.items():
        if value is None or value == "":
            given.pop(name, None)
        else:
            given[name] = str(value)
    return "?" + given.urlencode()


@register.simple_tag(takes_context=True)
def saved_views_of(context: Any, page: str) -> saved_views.Here:
    """The saved views of a page; see components/saved_views.html."""
    return saved_views.here(context["request"], context["project"], page)


@register.filter
def page_of(target: str) -> str:
    """Address of the page of what has this id, empty where it has none; it may be deleted."""
    prefix, _, rest = target.partition("_")  # or an email address, which may begin like an id
    return reverse(PAGES[prefix], args=[target]) if prefix in PAGES and rest.isalnum() else ""


@register.filter
def pairs(mapping: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """(key, value) of a mapping whose keys people choose: `.items` would find a key `items`."""
    return list((mapping or {}).items())


@register.filter
def item(given: Any, name: str) -> Any:
    """The entry of a mapping; None where there is none."""
    return given.get(name)


@register.filter
def half_width(interval: Any, share: bool = False) -> SafeString | str:
    """Half of an interval that lies evenly around its value; of shares in percentage points."""
    half = (interval.upper - interval.lower) / 2
    return f"{100 * half:.1f}" if share else number(half, 2)


@register.filter
def unlocalised(value: float) -> str:
    """A number for an attribute, whatever the language of the page."""
    return f"{value:g}"


@register.filter
def tool_ms(lengths: Any) -> float | None:
    """Milliseconds in tools of the mean trajectory; None where there is none."""
    return None if lengths is None else 1000 * float(lengths.tool_s)
