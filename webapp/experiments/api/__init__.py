"""REST of experiments, one file for each noun."""

from ninja import Router

from webapp.experiments.api import (
    backtests,
    checkpoints,
    compare,
    datasets,
    evaluations,
    experiments,
    external,
    jobs,
    launch,
    presets,
    relations,
    run_groups,
    run_queue,
    runs,
    schemes,
    storage,
    tries,
)

router = Router()
for area in (
    launch,
    presets,
    relations,
    runs,
    run_groups,
    run_queue,
    external,
    compare,
    experiments,
    schemes,
    backtests,
    storage,
    datasets,
    checkpoints,
    evaluations,
    jobs,
    tries,
):
    router.add_router("", area.router)
