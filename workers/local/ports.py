"""Ports: free ones are chosen once and remembered, so that addresses survive a restart."""

import socket

from workers.local.places import UserError

PREFERRED_WEB_PORT = 8700
NAMES = ("web", "ingest", "ray-gcs", "ray-jobs", "ray-agent", "ray-client", "ray-metrics")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def choose_ports(
    remembered: dict[str, int], held: set[int], web_port: int | None, host: str = "127.0.0.1"
) -> dict[str, int]:
    """A port for every name: the remembered one while it is free or `held` by our own service.

    Raises UserError if the port that the user asked for is taken.
    """
    if web_port is not None and web_port not in held and not is_free(web_port, host):
        raise UserError(
            f"Port {web_port} on {host} is taken by another program: "
            "choose another with --port, or leave it out to get a free one."
        )
    chosen: dict[str, int] = {}
    for name in NAMES:
        wish = remembered.get(name)
        if name == "web":
            wish = web_port or wish or PREFERRED_WEB_PORT
        usable = wish is not None and (wish in held or is_free(wish, host))
        chosen[name] = wish if wish and usable else free_port(set(chosen.values()))
    return chosen


def free_port(taken: set[int]) -> int:
    """A loopback port that nobody listens on now."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            return port
