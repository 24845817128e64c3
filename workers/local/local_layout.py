"""The layout of this machine's stack: unix sockets, loopback ports, the environment's Python."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from workers.local import postgres, valkey
from workers.local.places import PYTHON_PATH, Places, UserError
from workers.local.processes import Layout

OBJECT_STORE_BYTES = 256 * 2**20  # weights of small models; a laptop has no more to give
LOCAL_RAY = {
    # Ray replaces loopback addresses by reachable ones unless this (misnamed) switch is off.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Nothing of a single machine could move elsewhere while it drains for 30 s.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}
ANY_ADDRESS = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Exposure:
    """How pages are reached: by default from this machine alone."""

    host: str = "127.0.0.1"
    url: str = ""  # what people type, where that is not the address we listen on
    behind_proxy: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def check(self) -> None:
        """Raises UserError where passwords would travel in the clear, or a file is missing."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UserError("--tls-cert and --tls-key go together: give both or neither.")
        for path in (self.tls_cert, self.tls_key):
            if path is not None and not path.is_file():
                raise UserError(f"The TLS file {path} does not exist.")
        if not self.is_loopback and not self.behind_proxy and self.tls_cert is None:
            raise UserError(
                f"--host {self.host} can be reached from other machines and would carry passwords "
                "unencrypted: add --tls-cert and --tls-key, or --behind-proxy if a proxy in front "
                "speaks TLS."
            )
        if self.url and urlsplit(self.url).scheme not in ("http", "https"):
            raise UserError(f"--url {self.url} must start with http:// or https://.")

    def address(self, port: int) -> str:
        """The address of the pages as people see it."""
        if self.url:
            return self.url.rstrip("/")
        host = "127.0.0.1" if self.host in (*ANY_ADDRESS, "localhost") else self.host
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{port}"

    def allowed_hosts(self, port: int) -> str:
        named = urlsplit(self.address(port)).hostname or ""
        own = [] if self.host in ANY_ADDRESS else [self.host]
        names = {"127.0.0.1", "localhost", "::1", named, *own}
        return ",".join(sorted(f"[{n}]" if ":" in n else n for n in names))

    def uvicorn_options(self) -> tuple[str, ...]:
        if self.tls_cert and self.tls_key:
            files = (self.tls_cert.resolve(), self.tls_key.resolve())
            return (f"--ssl-certfile={files[0]}", f"--ssl-keyfile={files[1]}")
        if self.behind_proxy:
            return (f"--forwarded-allow-ips={'127.0.0.1' if self.is_loopback else '*'}",)
        return ("--no-proxy-headers",)


def make_layout(
    places: Places, cluster: postgres.Cluster, ports: dict[str, int], exposure: Exposure
) -> Layout:
    """Every address of the stack in `places`."""
    scheme = "https" if exposure.tls_cert else "http"
    near = "[::1]" if ":" in exposure.host else "127.0.0.1"
    probed = near if exposure.host in ANY_ADDRESS or exposure.is_loopback else exposure.host
    return Layout(
        python=sys.executable,
        home=str(places.home),
        python_path=PYTHON_PATH,
        database_url=cluster.url,
        redis_url=valkey.url(places),
        web_bind=(exposure.host, ports["web"]),
        web_probe=f"{scheme}://{probed}:{ports['web']}",
        ingest_bind=("127.0.0.1", ports["ingest"]),
        url=exposure.address(ports["web"]),
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
            f"--num-cpus={os.cpu_count()}",
            f"--temp-dir={places.run / 'ray'}",
        ),
        ray_token=str(places.secret("ray_token")),
        secret_key=str(places.secret("secret_key")),
        storage=str(places.storage),
        sampler_token=str(places.secret("sampler_token")),
        allowed_hosts=exposure.allowed_hosts(ports["web"]),
        behind_proxy=exposure.behind_proxy,
        webhook_hosts=os.environ.get("CARAVAN_WEBHOOK_HOSTS", ""),
        path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        postgres=cluster.argv,
        valkey=(str(valkey.program()), str(valkey.write_config(places))),
        web_options=exposure.uvicorn_options(),
        extra=LOCAL_RAY,
    )
