"""What the web process serves: health, the REST API, and the pages of each app."""

from django.urls import include, path

from webapp import health
from webapp.api import api

handler404 = "webapp.rest.problem_json.not_found"
handler500 = "webapp.rest.problem_json.server_failed"

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("i18n/", include("django.conf.urls.i18n")),
    path("api/v1/", api.urls),
    path("", include("webapp.accounts.urls")),
    path("", include("webapp.experiments.urls")),
    path("", include("webapp.monitoring.urls")),
    path("", include("webapp.reviews.urls")),
    path("", include("webapp.sweeps.urls")),
]
