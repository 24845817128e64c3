"""The people, runs and drivers of the tests of the web tier."""

from tests.webapp.conftest import (  # noqa: F401
    api,
    driver,
    editor,
    launch,
    outsider,
    own_storage,
    owner,
    page,
    project,
    run,
    viewer,
)
