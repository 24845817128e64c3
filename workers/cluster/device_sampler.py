"""Utilisation and memory of this machine's devices, every two seconds, to ingest.

GPUs through NVML where there are any; otherwise each CPU core, and memory in both cases. A sample
that cannot be sent is dropped: what devices did an hour ago helps nobody now.
"""

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from engine.telemetry.connection import Connection, IngestError, RefusedError, RevokedError
from workers.alive import show_alive

EVERY_S = 2.0
SAY_AGAIN_S = 60.0

log = logging.getLogger("caravan.sampler")


class Gpus:
    """NVIDIA devices of this machine; none where there is no driver."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        self._handles: list[Any] = []
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        except pynvml.NVMLError as error:
            log.info("No NVIDIA devices (%s): CPU cores are shown.", error)

    def sample(self) -> list[dict[str, Any]]:
        """One entry for each device; `busy` is absent where the device does not say."""
        found = []
        for index, handle in enumerate(self._handles):
            name = self._nvml.nvmlDeviceGetName(handle)
            memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            device: dict[str, Any] = {
                "name": f"{index} {name}",
                "kind": "gpu",
                "memory_used": int(memory.used),
                "memory_total": int(memory.total),
            }
            with contextlib.suppress(self._nvml.NVMLError):  # not of a part of a device
                device["busy"] = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            found.append(device)
        return found


def cpu_and_memory(per_core: bool) -> list[dict[str, Any]]:
    """Busy shares since the last call, and the memory in use."""
    memory = psutil.virtual_memory()
    shares = psutil.cpu_percent(percpu=True) if per_core else [psutil.cpu_percent()]
    names = [f"core {i}" for i in range(len(shares))] if per_core else ["all cores"]
    cores = [
        {"name": name, "kind": "cpu", "busy": share / 100}
        for name, share in zip(names, shares, strict=True)
    ]
    used = memory.total - memory.available
    return [
        *cores,
        {
            "name": "memory",
            "kind": "memory",
            "busy": used / memory.total,
            "memory_used": used,
            "memory_total": memory.total,
        },
    ]


class DeviceSampler:
    """Samples and sends; survives whatever ingest does."""

    def __init__(self, connection: Connection, node: str) -> None:
        self._connection = connection
        self._node = node
        self._gpus = Gpus()
        # Ingest tells samples apart by node and time; the number only has to grow.
        self._seq = time.time_ns()
        self._said_at = float("-inf")
        cpu_and_memory(per_core=True)  # the first call has no interval to measure

    def sample(self) -> dict[str, Any]:
        """One Devices event."""
        self._seq += 1
        gpus = self._gpus.sample()
        return {
            "kind": "devices",
            "source": f"sampler-{self._node}"[:80],
            "seq": self._seq,
            "at": time.time(),
            "node": self._node[:80],
            "devices": gpus + cpu_and_memory(per_core=not gpus),
        }

    def send(self) -> bool:
        """Send one sample; False when it was dropped."""
        try:
            self._connection.devices(self.sample())
        except (IngestError, RefusedError, RevokedError) as error:
            if time.monotonic() - self._said_at >= SAY_AGAIN_S:
                self._said_at = time.monotonic()
                log.warning("Samples are dropped: %s", error)
            return False
        return True


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    token = Path(os.environ["CARAVAN_SAMPLER_TOKEN_FILE"]).read_text().strip()
    connection = Connection(os.environ["CARAVAN_INGEST_URL"], token, timeout_s=EVERY_S * 2)
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    sampler = DeviceSampler(connection, socket.gethostname())
    while not ending.wait(EVERY_S):
        sampler.send()
        show_alive()
    connection.close()


if __name__ == "__main__":
    main()
