"""Static files: hashed names (also inside ES modules), and Plotly from its installed package."""

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage
from whitenoise.storage import CompressedManifestStaticFilesStorage


class ManifestStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    support_js_module_import_aggregation = True


class PlotlyFinder(BaseFinder):
    """Serves `plotly.min.js` of the `plotly` package as `vendor/plotly.min.js`, nothing else."""

    NAME = "vendor/plotly.min.js"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        spec = importlib.util.find_spec("plotly")
        assert spec is not None and spec.origin is not None, "the plotly package is not installed"
        self.folder = Path(spec.origin).parent / "package_data"
        self.storage = FileSystemStorage(self.folder)
        self.storage.prefix = "vendor"  # type: ignore[attr-defined]

    def check(self, **kwargs: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        found = [str(self.folder / "plotly.min.js")] if path == self.NAME else []
        return found if find_all else (found[0] if found else [])

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[Any]:
        yield "plotly.min.js", self.storage
