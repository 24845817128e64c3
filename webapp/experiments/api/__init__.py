"""REST of experiments, one file for each noun."""

from ninja import Router

from webapp.experiments.api import (
    checkpoints,
    compare,
    datasets,
    experiments,
    external,
    launch,
    runs,
    schemes,
)

router = Router()
for area in (launch, runs, external, compare, experiments, schemes, datasets, checkpoints):
    router.add_router("", area.router)
