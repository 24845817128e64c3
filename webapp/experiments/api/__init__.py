"""REST of experiments, one file for each noun."""

from ninja import Router

from webapp.experiments.api import (
    checkpoints,
    compare,
    datasets,
    evaluations,
    experiments,
    external,
    launch,
    runs,
    schemes,
)

router = Router()
for area in (
    launch,
    runs,
    external,
    compare,
    experiments,
    schemes,
    datasets,
    checkpoints,
    evaluations,
):
    router.add_router("", area.router)
