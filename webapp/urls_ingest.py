"""What the ingest process serves: nothing but ingest and its health."""

from django.urls import path

from webapp import health
from webapp.monitoring.ingest_api import api

urlpatterns = [
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("ingest/v1/", api.urls),
]
