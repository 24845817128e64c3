"""What ES modules import, as pages ask for it beforehand, and what they get of packages."""

import posixpath
import re
from importlib.resources import files
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders

from webapp import templating
from webapp.plotly_core import core_of
from webapp.staticfiles import PLOTLY, imported

STATIC = Path(__file__).parents[2] / "frontend/static"
MODULES = sorted(str(path.relative_to(STATIC)) for path in STATIC.glob("js/**/*.js"))


def told(name: str) -> set[str]:
    """Every relative path after `from` or `import` of a file, comments left out."""
    text = re.sub(r"/\*.*?\*/|^\s*//.*$", "", (STATIC / name).read_text(), flags=re.S | re.M)
    found = re.findall(r"""(?:\bfrom|\bimport)\s*["'](\.[^"']+)["']""", text)
    return {posixpath.normpath(posixpath.join(posixpath.dirname(name), one)) for one in found}


@pytest.mark.parametrize("name", MODULES)
def test_it_finds_what_a_module_and_its_imports_import(name: str) -> None:
    reached, fresh = {name}, {name}
    while fresh:
        fresh = set().union(*(told(one) for one in fresh)) - reached
        reached |= fresh
    found = imported(name)
    assert set(found) == reached - {name} and len(set(found)) == len(found)


def test_a_page_asks_for_all_of_a_modules_files_at_once() -> None:
    text = templating.module("js/runs.js")
    assert text.count('rel="modulepreload"') == len(imported("js/runs.js")) > 0
    assert text.count("<script") == 1 and text.endswith(
        'type="module" src="/static/js/runs.js"></script>'
    )


WHOLE = files("plotly").joinpath("package_data/plotly.min.js").read_text()
# As modules begin in the bundle of the pinned version.
MODULE = re.compile(r"(?<![\w$.])([\w$]+)=(?:W|Ea)\(\(")


def test_pages_get_a_quarter_of_plotly_with_its_licence_and_without_other_traces() -> None:
    found = finders.find(PLOTLY)
    assert found is not None
    core = Path(found).read_text()
    assert core[: core.index("(")] == WHOLE[: WHOLE.index("(")] and "MIT license" in core[:300]
    assert len(core) < len(WHOLE) / 4
    assert 'name:"scatter"' in core
    assert 'name:"parcoords"' in WHOLE and 'name:"parcoords"' not in core


def test_what_is_left_of_plotly_asks_for_no_module_that_is_left_out() -> None:
    core = core_of(WHOLE)
    left_out = set(MODULE.findall(WHOLE)) - set(MODULE.findall(core))
    asked = set(re.findall(r"(?<![\w$.])([\w$]+)\(", core))
    assert len(left_out) > 500 and not left_out & asked


@pytest.mark.parametrize(
    "wrong",
    ["", WHOLE.replace(".register([", ".enrol(["), WHOLE[-6000:]],
    ids=["nothing", "traces told otherwise", "its end alone"],
)
def test_it_takes_no_script_that_is_built_otherwise(wrong: str) -> None:
    with pytest.raises(ValueError, match="Plotly's script"):
        core_of(wrong)
