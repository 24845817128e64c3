"""What the ingest process serves: nothing but ingest and its health."""

from django.urls import path

from webapp import health

urlpatterns = [
    path("healthz", health.healthz),
    path("readyz", health.readyz),
]
