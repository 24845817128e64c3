"""Pages of sweeps."""

from django.urls import path

from webapp.sweeps import pages

urlpatterns = [
    path("projects/<str:pk>/sweeps/", pages.listing, name="sweeps"),
    path("projects/<str:pk>/sweeps/new", pages.new, name="sweep_new"),
    path("projects/<str:pk>/sweeps/check", pages.check, name="sweep_check"),
    path("sweeps/<str:pk>/", pages.one, name="sweep"),
    path("sweeps/<str:pk>/control", pages.control, name="sweep_control"),
]
