"""What is trained on: known devices with their published figures, and clusters of one kind.

Memory is what the device is named after, in decimal bytes; drivers report a little more (an
80 GB card 85.5e9), which is left as a reserve. FLOP/s are those of dense bf16 products without
sparsity, bandwidth that of the device's own memory, `link` one direction to its neighbours in a
node.
"""

import re
from dataclasses import dataclass, replace

from engine.planner.configs import ConfigError

GPU_CONTEXT = 2e9  # CUDA context and NCCL buffers, 1.5 to 3 GB
PROCESS_CONTEXT = 0.46e9  # a Python process on a CPU that has imported torch and Ray, measured
HOST_LINK = 25e9  # bytes a second between a GPU and its host: PCIe 4.0 x16, as reached
NETWORK = 50e9  # bytes a second and device between nodes: 400 Gb/s
NODE = 8  # devices of a node
HOST_MEMORY = 1e12  # bytes of a node's RAM where nothing else is said
MOST_DEVICES = 100_000

COUNTED = re.compile(r"(?:(\d{1,6})\s*x\s*)?([a-z][\w.-]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Device:
    """One device: bytes, dense bf16 FLOP/s, bytes a second of its memory and of its link."""

    name: str
    memory: float
    flops: float
    bandwidth: float
    link: float
    source: str
    context: float = GPU_CONTEXT


@dataclass(frozen=True)
class Cluster:
    """`count` devices, `node` of which share links and `host_memory` bytes of RAM."""

    device: Device
    count: int
    node: int = NODE
    host_memory: float = HOST_MEMORY

    @property
    def nodes(self) -> int:
        return -(-self.count // self.node)

    @property
    def name(self) -> str:
        return f"{self.count}x{self.device.name}"

    def link_over(self, devices: int) -> float:
        """Bytes a second and device among so many devices: beyond a node the network counts."""
        return self.device.link if devices <= self.node else min(self.device.link, NETWORK)

    def of(self, count: int) -> "Cluster":
        """The same devices, so many of them."""
        return replace(self, count=count)


DEVICES = {
    device.name.lower(): device
    for device in (
        Device("A100-40", 40e9, 312e12, 1.555e12, 300e9, "NVIDIA A100 40GB SXM datasheet"),
        Device("A100-80", 80e9, 312e12, 2.039e12, 300e9, "NVIDIA A100 80GB SXM datasheet"),
        Device("A800-80", 80e9, 312e12, 2.039e12, 200e9, "A100 80GB with NVLink of 400 GB/s"),
        Device("H100-80", 80e9, 989e12, 3.35e12, 450e9, "NVIDIA H100 SXM datasheet"),
        Device("H800-80", 80e9, 989e12, 3.35e12, 200e9, "H100 SXM with NVLink of 400 GB/s"),
        Device("H20-96", 96e9, 148e12, 4.0e12, 450e9, "NVIDIA HGX H20 figures"),
        Device("H200-141", 141e9, 989e12, 4.8e12, 450e9, "NVIDIA H200 SXM datasheet"),
        Device("L40S-48", 48e9, 362e12, 0.864e12, 32e9, "NVIDIA L40S datasheet; PCIe 4.0 x16"),
        Device(
            "cpu",
            12e9,
            490e9,
            39e9,
            39e9,
            "one core of an AMD EPYC 9005 with bf16 instructions, measured with torch 2.13: "
            "products of 2048 x 2048 matrices, and a copy of 256 MiB",
            PROCESS_CONTEXT,
        ),
    )
}


def read_cluster(text: str, host_memory: float = HOST_MEMORY) -> Cluster:
    """The cluster that a person wrote as 8xH100-80; one device where no number is given.

    A name may leave its memory out where one device has it (8xH100). Raises ConfigError.
    """
    match = COUNTED.fullmatch(text.strip())
    known = ", ".join(device.name for device in DEVICES.values())
    if match is None:
        raise ConfigError(f"Devices {text!r} cannot be read: write them as 8xH100-80.")
    count, name = int(match[1] or 1), match[2].lower()
    if not 1 <= count <= MOST_DEVICES:
        raise ConfigError(f"Devices {text!r}: there may be 1 to {MOST_DEVICES:,} of them.")
    found = [device for key, device in DEVICES.items() if name in (key, key.partition("-")[0])]
    if not found:
        raise ConfigError(f"There is no device {match[2]!r}: there are {known}.")
    if len(found) > 1:
        names = " or ".join(device.name for device in found)
        raise ConfigError(f"Devices {text!r} may be {names}: say which.")
    return Cluster(found[0], count, host_memory=host_memory)
