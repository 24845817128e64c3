"""Pages of reviews."""

from django.urls import path

from webapp.reviews import pages

urlpatterns = [
    path("runs/<str:pk>/trajectories/", pages.run_trajectories, name="run_trajectories"),
    path("trajectories/compare", pages.compare, name="trajectories_compare"),
    path("trajectories/<str:pk>/", pages.replay, name="replay"),
]
