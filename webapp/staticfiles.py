"""Static files: hashed names (also inside ES modules), what modules import, and what installed
packages bring."""

import importlib.util
import posixpath
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.contrib.staticfiles import finders
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage
from whitenoise.storage import CompressedManifestStaticFilesStorage

from webapp.plotly_core import core_of

PLOTLY = "vendor/plotly.core.min.js"
# Name in static files -> package and the file inside it. Nothing else of the packages is served.
VENDOR = {
    PLOTLY: ("plotly", "package_data/plotly.min.js"),
    "vendor/htmx-2.min.js": ("django_htmx", "static/django_htmx/htmx-2.min.js"),
}
_IMPORTED = re.compile(r"""^(?:import|export)\s[^;]*?["'](\.{1,2}/[^"']+)["'];""", re.MULTILINE)


@cache
def imported(name: str) -> tuple[str, ...]:
    """The modules that an ES module imports, at any depth, those of its own first."""
    found: dict[str, None] = {name: None}
    for one in (names := [name]):
        path = finders.find(one)
        assert path is not None, f"there is no static file {one}"
        folder = posixpath.dirname(one)
        for relative in _IMPORTED.findall(Path(path).read_text()):
            other = posixpath.normpath(posixpath.join(folder, relative))
            if other not in found:
                found[other] = None
                names.append(other)
    return tuple(found)[1:]


class ManifestStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    support_js_module_import_aggregation = True


class VendorFinder(BaseFinder):
    """Serves single files of installed packages under `vendor/`."""

    def check(self, **kwargs: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        found = [str(_vendored(path))] if path in VENDOR else []
        return found if find_all else (found[0] if found else [])

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[Any]:
        for file in map(_vendored, VENDOR):
            storage = FileSystemStorage(file.parent)
            storage.prefix = "vendor"  # type: ignore[attr-defined]
            yield file.name, storage


@cache
def _vendored(name: str) -> Path:
    """Where a file of a package lies; Plotly's core, of which no package has a file, is made."""
    file = _inside(*VENDOR[name])
    if name != PLOTLY:
        return file
    made = Path(_own_folder().name) / posixpath.basename(name)
    made.write_text(core_of(file.read_text()))
    return made


@cache
def _own_folder() -> "TemporaryDirectory[str]":
    """A folder that goes when the process ends."""
    return TemporaryDirectory(prefix="caravan-static-")


def _inside(package: str, path: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, f"the package {package} is not installed"
    return Path(spec.origin).parent / path
