"""The web process: pages, REST and sockets. `uvicorn webapp.asgi:application`."""

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

application = ProtocolTypeRouter({"http": get_asgi_application()})
