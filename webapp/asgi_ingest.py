"""The ingest process: what runs report. `uvicorn webapp.asgi_ingest:application`."""

import os

from django.core.asgi import get_asgi_application

# DJANGO_SETTINGS_MODULE of the stack names the web tier's settings; this process has its own.
os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings_ingest"
django_application = get_asgi_application()

from webapp.asgi_parts import limit_bodies, with_lifespan  # noqa: E402  (needs the settings)
from webapp.monitoring.ingest.pulse import pulse_for_ever  # noqa: E402

application = with_lifespan(limit_bodies(django_application), pulse_for_ever)
