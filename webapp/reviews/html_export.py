"""A trajectory as one HTML file that opens from a disk: no script, no request, no server.

Its content security policy allows the one style sheet inside it, by its hash, and images that
stand in it. Text goes through the same escaping as on the pages.
"""

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from math import exp
from typing import Any

from django.conf import settings
from django.template.loader import get_template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from engine.records.frames import DamagedShardError
from engine.records.stored import StoredTrajectory
from webapp.reviews import finding, images, queries, reading
from webapp.reviews.models import Comment, Trajectory
from webapp.reviews.templatetags.agent_text import label, visible

MAX_CHARS = 20_000_000  # of texts in a file: what a browser still opens at once
MAX_FIELD = 100_000  # characters of one text
MAX_TOKENS = 20_000  # sampled ones: with more than that their colours are left out
MAX_IMAGE_BYTES = 20_000_000  # of all images together
PROBABILITIES = (0.99, 0.9, 0.7, 0.5, 0.2, 0.05, 0.01, 0.0)  # least one of each shade
_AT_ONCE = 64


def html(row: Trajectory, with_comments: bool) -> Iterator[bytes]:
    """The file, a few steps at a time. Raises RefusedError: 410 and 500 as `reading.stored`."""
    with reading.stored(row) as source:
        shown = _shown_steps(source.outline()["chars"])
        with_tokens = row.sampled_tokens <= MAX_TOKENS
        comments = list(queries.comments_on(row)) if with_comments else []
        yield _part(
            "head",
            row=row,
            stored=source.fields,
            terms=reading.terms_of(row.run.spec, source.fields["reward"]),
            style=style(),
            policy=f"default-src 'none'; style-src '{_hash()}'; img-src data:",
            shown=shown,
            max_field=MAX_FIELD,
            with_tokens=with_tokens,
            comments=[c for c in comments if c.step is None or c.step >= shown],
        )
        problem = ""
        try:
            yield from _steps(source, shown, with_tokens, comments)
        except DamagedShardError as error:
            problem = str(error)
        yield _part("foot", row=row, shown=shown, problem=problem)


@finding.sound
def _steps(
    source: StoredTrajectory, shown: int, with_tokens: bool, comments: list[Comment]
) -> Iterator[bytes]:
    budget = [MAX_IMAGE_BYTES]
    for first in range(0, shown, _AT_ONCE):
        for step in source.steps(first, min(_AT_ONCE, shown - first)):
            yield _part(
                "step",
                step=step,
                texts=_texts(source, step, budget),
                tokens=_tokens(source, step) if with_tokens else None,
                comments=[c for c in comments if c.step == step["index"]],
            )


@cache
def style() -> SafeString:
    folder = settings.CHECKOUT / "frontend" / "static" / "css"
    texts = [(folder / name).read_text("utf-8") for name in ("tokens.css", "export.css")]
    assert not any("<" in text for text in texts), "a style sheet must not end its element"
    return SafeString("\n".join(texts))


def _hash() -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()


def _shown_steps(chars: list[int]) -> int:
    """How many steps fit into a file of MAX_CHARS."""
    left = MAX_CHARS
    for index, size in enumerate(chars):
        left -= min(size, 2 * MAX_FIELD) + 500  # the frame of a step takes some, too
        if left < 0:
            return index
    return len(chars)


def _part(name: str, **context: Any) -> bytes:
    text = get_template(f"reviews/export_{name}.html").render(context)
    return str(text).encode("utf-8", "replace")


def _texts(
    source: StoredTrajectory, step: dict[str, Any], budget: list[int]
) -> dict[str, SafeString | None]:
    """The step's texts as HTML, None where there is none."""
    found: dict[str, SafeString | None] = {}
    for name in ("text", "arguments", "result", "answer"):
        text = finding.field(source, step, name)
        found[name] = _rich(text, budget) if text else None
    return found


def _rich(text: str, budget: list[int]) -> SafeString:
    """Text with its images shown, others labelled, cut to MAX_FIELD characters beside them."""
    parts: list[SafeString] = []
    at, left = 0, MAX_FIELD
    for one in images.find(text) if images.may_hold(text) else ():
        if one.start - at >= left:
            break
        parts.append(visible(text[at : one.start]))
        left -= one.start - at
        image = images.decode(text[one.start : one.stop]) if one.bytes <= budget[0] else None
        if image:
            budget[0] -= one.bytes
        parts.append(_image(one, image))
        at = one.stop
    parts.append(visible(text[at : at + left]))
    if at + left < len(text):
        size = f"{len(text):,}".replace(",", "\u202f")
        cut = _("Cut here: the text has %(size)s characters.") % {"size": size}
        parts.append(format_html('<span class="cut">{}</span>', cut))
    return format_html_join("", "{}", ((part,) for part in parts))


def _image(one: images.Embedded, image: images.Image | None) -> SafeString:
    if image is None:
        return label(one)
    return format_html(
        '<img src="data:image/{};base64,{}" width="{}" height="{}" alt="{}">',
        image.kind,
        base64.b64encode(image.data).decode(),
        image.width,
        image.height,
        one.label,
    )


def _tokens(source: StoredTrajectory, step: dict[str, Any]) -> SafeString | None:
    """The policy's tokens, each in the shade of its probability; None where texts are unknown."""
    part = source.tokens(step["segment"], step["start"], step["stop"])
    if not part.texts or not part.ids or max(part.versions) < 0:
        return None
    groups: list[list[Any]] = []  # [text, log-probability], characters kept whole
    for text, logprob in zip(part.texts, part.logprobs, strict=True):
        if text is None and groups:
            groups[-1][1] += logprob
        else:
            groups.append([text or "", logprob])
    return format_html_join(
        "", '<span class="p{}">{}</span>', ((_shade(lp), visible(text)) for text, lp in groups)
    )


def _shade(logprob: float) -> int:
    probability = exp(min(0.0, logprob))
    return next(i for i, least in enumerate(PROBABILITIES) if probability >= least)
