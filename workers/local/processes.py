"""The table of processes: the one list that `up` starts and docker-compose.yml is made from."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from workers.alive import VARIABLE
from workers.local.probes import Probe

SERVICES = (
    "postgres", "valkey", "ray-head", "web", "ingest", "worker", "jobs", "webhooks", "beat",
    "sampler",
)  # fmt: skip
# Of those that show in a file that they are alive.
SHOWN_ALIVE = ("worker", "jobs", "webhooks", "beat", "sampler")
# Run once before the services start, as `python -m`.
SETUP = "workers.local.setup_web"


@dataclass(frozen=True)
class Layout:
    """Where everything is: the same table serves unix sockets here and container names there."""

    python: str
    home: str
    python_path: str
    database_url: str
    redis_url: str
    web_bind: tuple[str, int]
    web_probe: str  # the pages' address from this machine
    ingest_bind: tuple[str, int]
    url: str  # of pages and API, as people reach them
    ingest_url: str  # as runs reach it
    ray_address: str  # of the cluster's global control store, host:port
    ray_jobs_url: str
    ray_head: tuple[str, ...]  # addresses, ports and folders of `ray start --head`
    ray_token: str
    secret_key: str
    storage: str
    sampler_token: str
    allowed_hosts: str
    behind_proxy: bool = False
    webhook_hosts: str = ""  # that webhooks may reach though they are private
    path: str = ""
    postgres: tuple[str, ...] = ()  # argv; empty where an image brings its own
    valkey: tuple[str, ...] = ()
    web_options: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Service:
    """One long-running process. Every service is restarted when it ends by itself."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    probe: Probe
    depends_on: tuple[str, ...] = ()
    health: Probe | None = None  # asked while it runs; None: it is well while its process lives
    carries_runs: bool = False  # they would end with it: that it hangs is told, not cured
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 3.0


def control_env(layout: Layout) -> dict[str, str]:
    """The environment of everything that is part of the control plane."""
    return {
        **_shared_env(layout),
        "DJANGO_SETTINGS_MODULE": "webapp.settings",
        "DATABASE_URL": layout.database_url,
        "REDIS_URL": layout.redis_url,
        "RAY_ADDRESS": layout.ray_address,
        "CARAVAN_RAY_JOBS_URL": layout.ray_jobs_url,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": layout.ray_token,
        "CARAVAN_SECRET_KEY_FILE": layout.secret_key,
        "CARAVAN_STORAGE": layout.storage,
        "CARAVAN_URL": layout.url,
        "CARAVAN_ALLOWED_HOSTS": layout.allowed_hosts,
        **({"CARAVAN_WEBHOOK_HOSTS": layout.webhook_hosts} if layout.webhook_hosts else {}),
        **({"CARAVAN_BEHIND_PROXY": "1"} if layout.behind_proxy else {}),
    }


def ray_env(layout: Layout) -> dict[str, str]:
    """What Ray and the runs in it get: no address and no secret of the control plane."""
    return {
        **_shared_env(layout),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": layout.ray_token,
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def _shared_env(layout: Layout) -> dict[str, str]:
    shared = {
        "CARAVAN_HOME": layout.home,
        "CARAVAN_INGEST_URL": layout.ingest_url,
        "PYTHONPATH": layout.python_path,
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        **layout.extra,
    }
    return {**shared, "PATH": layout.path} if layout.path else shared


def processes(layout: Layout) -> tuple[Service, ...]:
    """All services, each after those it depends on."""
    python, control = layout.python, control_env(layout)
    celery = (python, "-m", "celery", "--app", "workers.control.app")
    stores = {
        "postgres": Probe("postgres", layout.database_url),
        "valkey": Probe("valkey", layout.redis_url),
    }
    pages = Probe("http", f"{layout.web_probe}/healthz")
    ingest = Probe("http", f"{layout.ingest_url}/healthz")
    ray_jobs = Probe("http", f"{layout.ray_jobs_url}/api/version")
    alive = {name: f"{layout.home}/alive/{name}" for name in SHOWN_ALIVE}
    return (
        Service(
            "postgres",
            layout.postgres,
            {},
            stores["postgres"],
            health=stores["postgres"],
            stop_signal=signal.SIGINT,  # fast shutdown
            stop_seconds=20.0,
        ),
        Service(
            "valkey",
            layout.valkey,
            {},
            stores["valkey"],
            health=stores["valkey"],
            stop_seconds=10.0,
        ),
        Service(
            "ray-head",
            (
                python, "-m", "ray.scripts.scripts", "start", "--head", "--block",
                "--disable-usage-stats", "--log-color=false", *layout.ray_head,
            ),
            ray_env(layout),
            ray_jobs,
            health=ray_jobs,
            carries_runs=True,
            stop_seconds=4.0,
        ),
        Service(
            "web",
            (*_uvicorn(python, "webapp.asgi:application", layout.web_bind), *layout.web_options),
            control,
            pages,
            depends_on=("postgres", "valkey"),
            health=pages,
        ),
        Service(
            "ingest",
            _uvicorn(python, "webapp.asgi_ingest:application", layout.ingest_bind),
            control,
            ingest,
            depends_on=("postgres", "valkey"),
            health=ingest,
        ),
        Service(
            "worker",
            (*celery, "worker", "--concurrency", "2", "--loglevel", "INFO", "--without-gossip"),
            {**control, VARIABLE: alive["worker"]},
            Probe("log", "ready."),
            depends_on=("postgres", "valkey"),
            health=Probe("alive", alive["worker"]),
        ),
        Service(
            "jobs",
            # A process for each job: what one took is given back at its end, and a job that is
            # killed takes none with it.
            (*celery, "worker", "--queues", "jobs", "--hostname", "jobs@%h", "--concurrency", "2",
             "--max-tasks-per-child", "1", "--loglevel", "INFO", "--without-gossip",
             "--without-mingle"),
            {**control, VARIABLE: alive["jobs"]},
            Probe("log", "ready."),
            depends_on=("postgres", "valkey"),
            health=Probe("alive", alive["jobs"]),
        ),
        Service(
            "webhooks",
            # Receivers may be slow, all at once: they wait for each other here, nothing for them.
            (*celery, "worker", "--queues", "webhooks", "--hostname", "webhooks@%h",
             "--concurrency", "4", "--loglevel", "INFO", "--without-gossip", "--without-mingle"),
            {**control, VARIABLE: alive["webhooks"]},
            Probe("log", "ready."),
            depends_on=("postgres", "valkey"),
            health=Probe("alive", alive["webhooks"]),
        ),
        Service(
            "beat",
            (*celery, "beat", "--loglevel", "INFO", "--pidfile=",
             "--scheduler", "workers.control.beat:WatchedScheduler",
             "--schedule", f"{layout.home}/beat-schedule"),
            {**control, VARIABLE: alive["beat"]},
            Probe("log", "beat: Starting"),
            depends_on=("postgres", "valkey"),
            health=Probe("alive", alive["beat"]),
        ),
        Service(
            "sampler",
            (python, "-m", "workers.cluster.device_sampler"),
            {
                **ray_env(layout),
                "CARAVAN_SAMPLER_TOKEN_FILE": layout.sampler_token,
                VARIABLE: alive["sampler"],
            },
            Probe("log", ""),
            depends_on=("ingest",),
            health=Probe("alive", alive["sampler"]),
        ),
    )  # fmt: skip


def _uvicorn(python: str, application: str, bind: tuple[str, int]) -> tuple[str, ...]:
    host, port = bind
    return (
        python, "-m", "uvicorn", application, "--host", host, "--port", str(port),
        "--lifespan", "auto", "--no-server-header", "--no-access-log",
        "--timeout-graceful-shutdown", "2",
    )  # fmt: skip
