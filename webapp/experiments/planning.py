"""What a specification's run takes, and what fits the devices that a person has in mind."""

from typing import Any

from engine.planner import ConfigError, advise_run, own_cluster, plan_run, read_cluster
from engine.planner.report import advice_figures
from engine.spec import ExperimentSpec
from webapp.problems import invalid_field

MAX_DEVICES_TEXT = 80


def planned(spec: ExperimentSpec, devices: str) -> dict[str, Any]:
    """Plan and advice as plain numbers; devices as 8xH100-80, empty: the run's own CPU cores.

    Raises RefusedError, naming the field devices.
    """
    try:
        if len(devices) > MAX_DEVICES_TEXT:
            raise ConfigError(f"Devices are written in at most {MAX_DEVICES_TEXT} characters.")
        cluster = read_cluster(devices) if devices.strip() else own_cluster(spec)
        advice = advise_run(spec, cluster)
    except ConfigError as error:
        raise invalid_field("devices", str(error)) from None
    return {"plan": plan_run(spec).figures(), "advice": advice_figures(advice)}
