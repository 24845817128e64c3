"""What all tests share: reproducible random shapes, and browser tests only where a browser is."""

import os
import signal

import pytest
from hypothesis import settings

settings.register_profile("caravan", deadline=None, print_blob=True)
settings.load_profile("caravan")


# Being told to end is like Ctrl-C: fixtures still stop what they started.
signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("CARAVAN_CHROMIUM"):
        return
    skip = pytest.mark.skip(reason="Chromium is missing: install the package `chromium`")
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(skip)
