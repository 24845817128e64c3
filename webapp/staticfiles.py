"""Static files: hashed names (also inside ES modules), and what installed packages bring."""

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage
from whitenoise.storage import CompressedManifestStaticFilesStorage

# Name in static files -> package and the file inside it. Nothing else of the packages is served.
VENDOR = {
    "vendor/plotly.min.js": ("plotly", "package_data/plotly.min.js"),
    "vendor/htmx-2.min.js": ("django_htmx", "static/django_htmx/htmx-2.min.js"),
}


class ManifestStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    support_js_module_import_aggregation = True


class VendorFinder(BaseFinder):
    """Serves single files of installed packages under `vendor/`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.files = {name: _inside(*where) for name, where in VENDOR.items()}

    def check(self, **kwargs: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        found = [str(self.files[path])] if path in self.files else []
        return found if find_all else (found[0] if found else [])

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[Any]:
        for file in self.files.values():
            storage = FileSystemStorage(file.parent)
            storage.prefix = "vendor"  # type: ignore[attr-defined]
            yield file.name, storage


def _inside(package: str, path: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None, f"the package {package} is not installed"
    return Path(spec.origin).parent / path
