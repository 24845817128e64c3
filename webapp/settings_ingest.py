"""Settings of the ingest process: no sessions, no pages, no static files."""

from webapp.settings import *  # noqa: F403

ROOT_URLCONF = "webapp.urls_ingest"
MIDDLEWARE = ["webapp.middleware.request_id"]
