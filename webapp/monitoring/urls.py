"""Pages of monitoring."""

from django.urls import path

from webapp.monitoring.pages import cluster, run_tabs

urlpatterns = [
    path("runs/<str:pk>/charts", run_tabs.charts, name="run_charts"),
    path("runs/<str:pk>/pool", run_tabs.pool, name="run_pool"),
    path("runs/<str:pk>/tree", run_tabs.tree, name="run_tree"),
    path("runs/<str:pk>/devices", run_tabs.devices, name="run_devices"),
    path("runs/<str:pk>/logs", run_tabs.logs, name="run_logs"),
    path("projects/<str:pk>/cluster/", cluster.cluster, name="cluster"),
    path("runs/<str:pk>/queue", cluster.move, name="run_queue_move"),
]
