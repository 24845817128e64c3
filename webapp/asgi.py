"""The web process: pages, REST and sockets. `uvicorn webapp.asgi:application`."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
django_application = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402  (needs the settings)
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.urls import path  # noqa: E402

from webapp.asgi_parts import limit_bodies  # noqa: E402
from webapp.monitoring.consumers import LiveSocket  # noqa: E402

MAX_UPLOAD_BYTES = 512 * 2**20  # of a dataset; Django keeps what is large on disk

websocket_urlpatterns = [path("ws/v1/", LiveSocket.as_asgi())]

application = ProtocolTypeRouter(
    {
        "http": limit_bodies(django_application, MAX_UPLOAD_BYTES),
        "websocket": AuthMiddlewareStack(URLRouter(websocket_urlpatterns)),
    }
)
