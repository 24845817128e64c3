"""Liveness (this process answers) and readiness (its database, Valkey and migrations do)."""

from django.core.cache import cache
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse


def healthz(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "alive"})


def readyz(request: HttpRequest) -> JsonResponse:
    checks = {"database": _database(), "valkey": _valkey()}
    ready = all(value == "ok" for value in checks.values())
    return JsonResponse(
        {"status": "ready" if ready else "not ready", "checks": checks},
        status=200 if ready else 503,
    )


def _database() -> str:
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except Exception as error:  # whatever is wrong with it, it is not ready
        return type(error).__name__
    return f"{len(missing)} migrations are not applied" if missing else "ok"


def _valkey() -> str:
    try:
        cache.set("readyz", "ok", 5)
        return "ok" if cache.get("readyz") == "ok" else "does not keep what it is given"
    except Exception as error:  # as above
        return type(error).__name__
