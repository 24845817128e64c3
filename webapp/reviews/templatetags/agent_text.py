"""Text that agents and tools wrote, in templates: escaped, with hidden characters made visible."""

import re
import unicodedata

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from webapp.reviews import images
from webapp.templating import size

register = template.Library()

# The same characters as in static/js/replay/text.js; a test compares the two.
HIDDEN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
)


@register.filter
def visible(text: str) -> SafeString:
    """The text in a box of its own, so that it cannot turn around what stands beside it."""
    shown = []
    end = 0
    for one in images.find(text) if images.may_hold(text) else ():
        shown += [*_characters(text[end : one.start]), label(one)]
        end = one.stop
    shown += _characters(text[end:])
    return mark_safe(f'<bdi class="agent-text">{"".join(shown)}</bdi>')


def label(one: images.Embedded) -> SafeString:
    """What stands for base64 in a text: nobody reads it."""
    return format_html('<span class="embedded">{}, {}</span>', one.label, size(one.bytes))


def _characters(text: str) -> list[str]:
    shown: list[str] = []
    end = 0
    for found in HIDDEN.finditer(text):
        shown.append(escape(text[end : found.start()]))
        code = f"U+{ord(found[0]):04X}"
        name = unicodedata.name(found[0], "")
        shown.append(
            format_html('<span class="hidden-character" title="{}">{}</span>', name or code, code)
        )
        end = found.end()
    shown.append(escape(text[end:]))
    return shown
