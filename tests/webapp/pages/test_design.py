"""One hand drew it: values come from the tokens, and the design page shows all that is used."""

import re
from pathlib import Path

import pytest
from django.test import Client

FRONTEND = Path(__file__).parents[3] / "frontend"
CSS = FRONTEND / "static" / "css"
# plotly.css holds what Plotly itself would write into the page.
SHEETS = sorted(path for path in CSS.glob("*.css") if path.name not in ("tokens.css", "plotly.css"))
TEMPLATES = sorted(
    path for path in (FRONTEND / "templates").rglob("*.html") if path.name != "export_head.html"
)  # the beginning of a file that stands alone, outside the product
SCRIPTS = sorted((FRONTEND / "static" / "js").rglob("*.js"))
RAW_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgba?|hsla?|oklch|oklab|lab|lch)\(")
TYPE = re.compile(r"\bfont(?:-size|-weight|-family)?\s*:([^;}]+)")
INLINE = re.compile(r"\sstyle\s*=\s*[\"']|<style\b|\son[a-z]+\s*=\s*[\"']", re.IGNORECASE)
# Parts of the frame: they are on the design page as on every other.
FRAME = {"help", "mark", "nav", "palette", "person"}


def code(path: Path) -> str:
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda path: path.name)
def test_colours_and_type_are_named_by_tokens(sheet: Path) -> None:
    assert RAW_COLOUR.findall(code(sheet)) == []
    sizes = [re.sub(r"/\s*[\w.]+", "", value) for value in TYPE.findall(code(sheet))]  # no leading
    assert [value for value in sizes if re.search(r"\d", re.sub(r"var\([^)]*\)", "", value))] == []


def test_a_token_that_is_used_exists() -> None:
    known = set(re.findall(r"^\s*(--[\w-]+):", (CSS / "tokens.css").read_text(), re.MULTILINE))
    of_a_place = re.compile(r"^\s*(--[\w-]+):", re.MULTILINE)  # set where it is used, by a class
    for sheet in SHEETS:
        known |= set(of_a_place.findall(code(sheet)))
    for script in SCRIPTS:
        known |= set(re.findall(r"setProperty\([\"'`](--[\w-]+)", script.read_text()))
    used = {
        name: sheet.name for sheet in SHEETS for name in re.findall(r"var\((--[\w-]+)", code(sheet))
    }
    assert {name: where for name, where in used.items() if name not in known} == {}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_a_style_or_a_script_of_its_own(template: Path) -> None:
    text = template.read_text()
    assert INLINE.findall(text) == []
    assert "<script>" not in text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_names_no_colour(script: Path) -> None:
    colour = re.compile(r"[\"'`]#[0-9a-fA-F]{3,8}[\"'`]|\brgb\(\d|\bhsla?\(\d")
    assert colour.findall(script.read_text()) == []


def test_the_design_page_shows_every_component() -> None:
    shown = set(
        re.findall(r"components/(\w+)\.html", (FRONTEND / "templates/design.html").read_text())
    )
    made = {path.stem for path in (FRONTEND / "templates" / "components").glob("*.html")}
    assert made - FRAME - shown == set()


def test_the_design_page_shows_every_token(page: Client) -> None:
    tokens = re.findall(r"^\s*--([\w-]+):", (CSS / "tokens.css").read_text(), re.MULTILINE)
    answer = page.get("/design/").content.decode()
    assert [name for name in tokens if f">--{name}<" not in answer] == []
