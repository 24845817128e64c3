"""What ES modules import, as pages ask for it beforehand."""

import posixpath
import re
from pathlib import Path

import pytest

from webapp import templating
from webapp.staticfiles import imported

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
