"""docker-compose.yml, made from the table of processes: `python -m workers.local.compose`."""

import sys
from typing import Any

import yaml

from workers.local.places import CHECKOUT
from workers.local.processes import SETUP, Layout, Service, control_env, processes

FILE = CHECKOUT / "docker-compose.yml"
HEADER = """\
# Made by `python -m workers.local.compose`; `caravan check` compares it with the table of
# processes. Needed in .env: POSTGRES_PASSWORD, VALKEY_PASSWORD, CARAVAN_SECRET_KEY (32 characters
# or more), CARAVAN_RAY_TOKEN; wanted: CARAVAN_URL, CARAVAN_ALLOWED_HOSTS.
# `docker compose logs setup` shows a login link; `--profile gpu` adds a Ray worker with GPUs.
"""
HOME = "/var/lib/caravan"
WEB_PORT, INGEST_PORT, GCS_PORT, JOBS_PORT = 8000, 8001, 6379, 8265
STORES: dict[str, dict[str, Any]] = {
    "postgres": {
        "image": "postgres:18",
        "environment": {
            "POSTGRES_USER": "caravan",
            "POSTGRES_DB": "caravan",
            "POSTGRES_PASSWORD": "${POSTGRES_PASSWORD:?set it in .env}",
        },
        "user": "postgres",
        "volumes": ["postgres:/var/lib/postgresql"],
        "healthcheck": ["CMD", "pg_isready", "--username", "caravan", "--quiet"],
    },
    "valkey": {
        "image": "valkey/valkey:9",
        "environment": {"REDISCLI_AUTH": "${VALKEY_PASSWORD:?set it in .env}"},
        "command": [
            "sh",
            "-c",
            'exec valkey-server --appendonly yes --requirepass "$$REDISCLI_AUTH"',
        ],
        "user": "valkey",
        "volumes": ["valkey:/data"],
        "healthcheck": ["CMD", "valkey-cli", "ping"],
    },
}
# Ray and the runs in it see the run storage, never the control plane's folder with its secrets.
VOLUMES = {"ray-head": ["storage:/var/lib/caravan/storage"]}
CONTROL_VOLUMES = ["home:/var/lib/caravan", "storage:/var/lib/caravan/storage"]


def compose_layout() -> Layout:
    """Addresses by container name; passwords from the environment of `docker compose`."""
    return Layout(
        python="python",
        home=HOME,
        python_path="/app:/app/client",
        database_url="postgresql://caravan:${POSTGRES_PASSWORD}@postgres:5432/caravan",
        redis_url="redis://:${VALKEY_PASSWORD}@valkey:6379/0",
        web_bind=("0.0.0.0", WEB_PORT),
        web_probe=f"http://127.0.0.1:{WEB_PORT}",
        ingest_bind=("0.0.0.0", INGEST_PORT),
        url="${CARAVAN_URL:-http://127.0.0.1:8700}",
        ingest_url=f"http://ingest:{INGEST_PORT}",
        ray_address=f"ray-head:{GCS_PORT}",
        ray_jobs_url=f"http://ray-head:{JOBS_PORT}",
        ray_head=(
            f"--port={GCS_PORT}",
            "--dashboard-host=0.0.0.0",
            f"--dashboard-port={JOBS_PORT}",
        ),
        ray_token="/run/secrets/ray_token",
        secret_key="/run/secrets/secret_key",
        storage=f"{HOME}/storage",
        sampler_token=f"{HOME}/secrets/sampler_token",
        allowed_hosts="${CARAVAN_ALLOWED_HOSTS:-127.0.0.1,localhost},web,ingest",
        webhook_hosts="${CARAVAN_WEBHOOK_HOSTS:-}",
        behind_proxy=True,  # the port is published on loopback only
        web_options=("--forwarded-allow-ips=*",),
    )


def compose() -> dict[str, Any]:
    """The whole file as data."""
    layout = compose_layout()
    table = processes(layout)
    services: dict[str, Any] = {}
    for service in table:
        services[service.name] = _store(service) if service.name in STORES else _ours(service)
    services["web"]["ports"] = [f"127.0.0.1:8700:{WEB_PORT}"]
    services["setup"] = {
        **_image(),
        "command": ["python", "-m", SETUP],
        "environment": control_env(layout),
        "secrets": ["secret_key", "ray_token"],
        "volumes": CONTROL_VOLUMES,
        "depends_on": {name: {"condition": "service_healthy"} for name in STORES},
        "restart": "no",
    }
    head = next(service for service in table if service.name == "ray-head")
    services["ray-worker"] = {
        **_ours(head),
        "command": [
            "python", "-m", "ray.scripts.scripts", "start", "--block",
            f"--address=ray-head:{GCS_PORT}",
        ],
        "profiles": ["gpu"],
        "depends_on": {"ray-head": {"condition": "service_healthy"}},
        "deploy": {
            "resources": {
                "reservations": {
                    "devices": [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
                }
            }
        },
    }  # fmt: skip
    del services["ray-worker"]["healthcheck"]
    return {
        "name": "caravan",
        "services": services,
        "secrets": {
            "secret_key": {"environment": "CARAVAN_SECRET_KEY"},
            "ray_token": {"environment": "CARAVAN_RAY_TOKEN"},
        },
        "volumes": {name: {} for name in ("postgres", "valkey", "home", "storage")},
    }


def _image() -> dict[str, Any]:
    return {"image": "caravan", "build": ".", "init": True}


def _store(service: Service) -> dict[str, Any]:
    described = dict(STORES[service.name])
    return {
        **described,
        "healthcheck": _check(described["healthcheck"], 5),
        "restart": "unless-stopped",
    }


def _ours(service: Service) -> dict[str, Any]:
    control = "DATABASE_URL" in service.env
    is_ray = service.name == "ray-head"
    described = {
        **_image(),
        "command": list(service.argv),
        "environment": dict(service.env),
        "secrets": ["secret_key", "ray_token"] if control else ["ray_token"],
        "volumes": VOLUMES.get(service.name, CONTROL_VOLUMES),
        "depends_on": {
            **{name: {"condition": "service_healthy"} for name in service.depends_on},
            **({"setup": {"condition": "service_completed_successfully"}} if control else {}),
        },
        "restart": "unless-stopped",
    }
    if is_ray:
        described["shm_size"] = "2gb"
        described.pop("depends_on")
    health = _health_command(service)
    return {**described, "healthcheck": _check(health, 30)} if health else described


def _health_command(service: Service) -> list[str] | None:
    """The table's question as a command; stores bring their own."""
    if service.health is None:
        return None
    target = service.health.target.replace("://ray-head:", "://127.0.0.1:")
    target = target.replace("://ingest:", "://127.0.0.1:")
    return ["CMD", "python", "-m", "workers.local.probes", service.health.kind, target]


def _check(command: list[str], interval: int) -> dict[str, Any]:
    return {
        "test": command,
        "interval": f"{interval}s",
        "timeout": "10s",
        "retries": 5,
        "start_period": "60s",
    }


class _Plain(yaml.SafeDumper):
    """Writes repeated lists out, where YAML would otherwise refer to the first."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render() -> str:
    """The file's text."""
    return HEADER + yaml.dump(compose(), Dumper=_Plain, sort_keys=False, width=100)


def main() -> None:
    """Write the file; with --check, exit 1 if it differs instead."""
    if "--check" not in sys.argv:
        FILE.write_text(render())
    elif FILE.read_text() != render():
        sys.exit("docker-compose.yml differs: run `python -m workers.local.compose`.")


if __name__ == "__main__":
    main()
