"""The ingest process: what runs report. `uvicorn webapp.asgi_ingest:application`."""

import os

from django.core.asgi import get_asgi_application

# DJANGO_SETTINGS_MODULE of the stack names the web tier's settings; this process has its own.
os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings_ingest"

application = get_asgi_application()
