"""Runs axe-core in an open page: what it finds there that is serious or critical."""

from functools import cache
from typing import Any

from playwright.sync_api import Page

from cli.node import node_tools

COLOURS = ("color-contrast", "link-in-text-block")  # rules whose outcome depends on the theme
_RUN = """async ([within, options]) => (await axe.run(
        within ? document.querySelectorAll(within) : document, options)).violations
    .filter((found) => ["serious", "critical"].includes(found.impact))
    .flatMap((found) => found.nodes.map((node) =>
        `${found.id} (${found.impact}): ${node.target.join(" ")}: ${node.html.slice(0, 120)}`))"""


@cache
def _source() -> str:
    return (node_tools()[1] / "axe-core/axe.min.js").read_text()


def findings(page: Page, rules: tuple[str, ...] = (), within: str = "") -> list[str]:
    """Serious and critical findings, one text for each node; `rules`: only these; `within`: only
    in elements of this selector, of which there is one at least.

    Raises UserError where axe-core cannot be installed.
    """
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(_source())
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    found: list[str] = page.evaluate(_RUN, [within, options])
    return found
