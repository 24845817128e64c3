"""The layout of this machine's stack: unix sockets, loopback ports, the environment's Python."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from workers.local import postgres, valkey
from workers.local.places import CHECKOUT, Places
from workers.local.processes import Layout

OBJECT_STORE_BYTES = 256 * 2**20  # weights of small models; a laptop has no more to give


@dataclass(frozen=True)
class Exposure:
    """How pages are reached from outside: by default not at all."""

    host: str = "127.0.0.1"
    behind_proxy: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def make_layout(
    places: Places, cluster: postgres.Cluster, ports: dict[str, int], exposure: Exposure
) -> Layout:
    """Every address of the stack in `places`."""
    ray_folder = places.run / "ray"
    scheme = "https" if exposure.tls_cert else "http"
    shown = "127.0.0.1" if exposure.host in ("0.0.0.0", "::", "localhost") else exposure.host
    return Layout(
        python=sys.executable,
        home=str(places.home),
        checkout=str(CHECKOUT),
        database_url=cluster.url,
        redis_url=valkey.url(places),
        web_bind=(exposure.host, ports["web"]),
        ingest_bind=("127.0.0.1", ports["ingest"]),
        url=f"{scheme}://{shown}:{ports['web']}",
        ingest_url=f"http://127.0.0.1:{ports['ingest']}",
        ray_address=f"127.0.0.1:{ports['ray-gcs']}",
        ray_jobs_url=f"http://127.0.0.1:{ports['ray-jobs']}",
        ray_head=(
            "--node-ip-address=127.0.0.1",
            f"--port={ports['ray-gcs']}",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={ports['ray-jobs']}",
            f"--dashboard-agent-listen-port={ports['ray-agent']}",
            f"--ray-client-server-port={ports['ray-client']}",
            f"--metrics-export-port={ports['ray-metrics']}",
            "--min-worker-port=0",
            "--max-worker-port=0",
            f"--object-store-memory={OBJECT_STORE_BYTES}",
            f"--temp-dir={ray_folder}",
        ),
        ray_token=str(places.secret("ray_token")),
        secret_key=str(places.secret("secret_key")),
        storage=str(places.storage),
        sampler_token=str(places.secret("sampler_token")),
        allowed_hosts=",".join(sorted({"127.0.0.1", "localhost", "[::1]", shown})),
        path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        postgres=cluster.argv,
        valkey=(str(valkey.program()), str(valkey.write_config(places))),
        web_options=_web_options(exposure),
        cpus=os.cpu_count(),
    )


def _web_options(exposure: Exposure) -> tuple[str, ...]:
    if exposure.tls_cert and exposure.tls_key:
        return (f"--ssl-certfile={exposure.tls_cert}", f"--ssl-keyfile={exposure.tls_key}")
    if exposure.behind_proxy:
        return ("--proxy-headers", "--forwarded-allow-ips=*")
    return ()
