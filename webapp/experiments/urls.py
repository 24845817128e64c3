"""Pages of experiments, runs, reward schemes and datasets."""

from django.urls import path

from webapp.experiments.pages import (
    compare,
    datasets,
    evaluation,
    experiments,
    home,
    jobs,
    launch,
    launch_check,
    run,
    runs,
    schemes,
)

urlpatterns = [
    path("projects/<str:pk>/", home.home, name="project_home"),
    path("projects/<str:pk>/experiments/", experiments.listing, name="experiments"),
    path("experiments/<str:pk>/", experiments.one, name="experiment"),
    path("experiments/<str:pk>/edit", experiments.edit, name="experiment_edit"),
    path("projects/<str:pk>/runs/", runs.listing, name="runs"),
    path("projects/<str:pk>/runs/bulk", runs.bulk, name="runs_bulk"),
    path("projects/<str:pk>/launch/", launch.launch, name="launch"),
    path("projects/<str:pk>/launch/check", launch_check.check, name="launch_check"),
    path("projects/<str:pk>/compare/", compare.compare, name="compare"),
    path("runs/<str:pk>/", run.overview, name="run"),
    path("runs/<str:pk>/header", run.header, name="run_header"),
    path("runs/<str:pk>/config", run.config, name="run_config"),
    path("runs/<str:pk>/checkpoints", run.checkpoints, name="run_checkpoints"),
    path("runs/<str:pk>/evaluation", evaluation.evaluation, name="run_evaluation"),
    path("runs/<str:pk>/evaluate", run.evaluate, name="run_evaluate"),
    path("runs/<str:pk>/control", run.control, name="run_control"),
    path("runs/<str:pk>/edit", run.edit, name="run_edit"),
    path("runs/<str:pk>/delete", run.delete, name="run_delete"),
    path("projects/<str:pk>/rewards/", schemes.listing, name="reward_schemes"),
    path("projects/<str:pk>/rewards/new", schemes.new, name="reward_scheme_new"),
    path("rewards/<str:pk>/", schemes.one, name="reward_scheme"),
    path("rewards/<str:pk>/new", schemes.new_version, name="reward_scheme_new_version"),
    path("projects/<str:pk>/datasets/", datasets.listing, name="datasets"),
    path("projects/<str:pk>/datasets/new", datasets.new, name="dataset_new"),
    path("datasets/<str:pk>/", datasets.one, name="dataset"),
    path("datasets/<str:pk>/upload", datasets.upload, name="dataset_upload"),
    path("projects/<str:pk>/jobs/", jobs.listing, name="jobs"),
    path("jobs/<str:pk>/", jobs.one, name="job"),
    path("jobs/<str:pk>/cancel", jobs.cancel, name="job_cancel"),
]
