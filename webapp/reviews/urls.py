"""Pages of reviews."""

from django.urls import path

from webapp.reviews import (
    export_pages,
    inbox_pages,
    judging_pages,
    pages,
    queue_pages,
    search_pages,
)

urlpatterns = [
    path("runs/<str:pk>/trajectories/", pages.run_trajectories, name="run_trajectories"),
    path("runs/<str:pk>/live/<str:trajectory>/", pages.live_episode, name="live_episode"),
    path("runs/<str:pk>/export", export_pages.page, name="run_export"),
    path("runs/<str:pk>/export/start", export_pages.start, name="run_export_start"),
    path("runs/<str:pk>/tasks", export_pages.collect, name="run_tasks"),
    path("trajectories/compare", pages.compare, name="trajectories_compare"),
    path("trajectories/<str:pk>/", pages.replay, name="replay"),
    path("projects/<str:pk>/search/", search_pages.page, name="search"),
    path("projects/<str:pk>/review/", queue_pages.listing, name="queues"),
    path("runs/<str:pk>/review", queue_pages.new, name="queue_new"),
    path("queues/<str:pk>/", queue_pages.one, name="queue"),
    path("queues/<str:pk>/next", judging_pages.go_on, name="queue_next"),
    path("queues/<str:pk>/undo", judging_pages.undo, name="queue_undo"),
    path("queues/<str:pk>/close", queue_pages.close, name="queue_close"),
    path("queues/<str:pk>/dataset", queue_pages.dataset, name="queue_dataset"),
    path("queue-items/<str:pk>/", judging_pages.item, name="queue_item"),
    path("queue-items/<str:pk>/verdict", judging_pages.verdict, name="queue_verdict"),
    path("inbox/", inbox_pages.inbox, name="inbox"),
    path("inbox/read", inbox_pages.read, name="inbox_read"),
    path("notices/<str:pk>/", inbox_pages.notice, name="notice"),
    path("rewards/<str:pk>/suspects", inbox_pages.scheme_suspects, name="scheme_suspects"),
]
