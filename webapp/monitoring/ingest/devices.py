"""Device samples of the nodes."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from engine.records.events import Devices
from webapp.monitoring.models import DeviceSample
from webapp.plain_text import storable_json
from webapp.problems import FieldProblem, RefusedError

Finite = Annotated[float, Field(allow_inf_nan=False)]


class Device(BaseModel):
    """Utilisation from 0 to 1 and memory in bytes; None where the device does not tell."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(max_length=80)
    kind: Literal["gpu", "cpu", "memory"]
    busy: Finite | None = None
    memory_used: Finite | None = None
    memory_total: Finite | None = None


DEVICES = TypeAdapter(list[Device])


def store_devices(items: list[Devices]) -> int:
    """Store samples; a node's sample of the same moment is stored once. Raises RefusedError."""
    samples = []
    for index, item in enumerate(items):
        try:
            found = DEVICES.validate_python(item.devices)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(["items", str(index), "devices", *map(str, first["loc"])])
            raise RefusedError(first["msg"], [FieldProblem(path, first["msg"])]) from None
        devices: list[Any] = [storable_json(device.model_dump()) for device in found]
        samples.append(DeviceSample(node=storable_json(item.node), at=item.at, devices=devices))
    return len(DeviceSample.objects.bulk_create(samples, ignore_conflicts=True))
