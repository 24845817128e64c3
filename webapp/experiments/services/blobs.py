"""Blobs that runs upload: the bytes are shared between equals, the right to refer to them is not.

A run may refer only to what it uploaded itself. Knowing the SHA-256 of another project's bytes
leads nowhere, and whether others hold the same bytes is not told.
"""

from collections.abc import Iterable

from django.db import connection, transaction

from webapp import storage
from webapp.experiments.models import DatasetVersion, Upload
from webapp.problems import RefusedError


def lock_blob(sha256: str) -> None:
    """Until the transaction ends nobody else stores or removes this blob."""
    with connection.cursor() as sql:
        sql.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [sha256])


@transaction.atomic
def put_upload(run_id: str, body: bytes, sha256: str) -> bool:
    """Store bytes for a run; False where it had uploaded them before. Raises RefusedError."""
    lock_blob(sha256)
    try:
        storage.put_blob(body, sha256)
    except storage.WrongHashError as error:
        raise RefusedError(str(error)) from None
    _, is_new = Upload.objects.get_or_create(
        run_id=run_id, sha256=sha256, defaults={"size": len(body)}
    )
    return is_new


def not_uploaded(run_id: str, names: Iterable[str]) -> list[str]:
    """Those of the blobs that this run has not uploaded, in their order."""
    wanted = list(dict.fromkeys(names))
    held = Upload.objects.filter(run_id=run_id, sha256__in=wanted)
    known = set(held.values_list("sha256", flat=True))
    return [name for name in wanted if name not in known]


@transaction.atomic
def remove_unused_blob(sha256: str) -> None:
    """Remove a blob that no run and no dataset refers to any more."""
    lock_blob(sha256)
    used = Upload.objects.filter(sha256=sha256).exists()
    if not used and not DatasetVersion.objects.filter(blob=sha256).exists():
        storage.remove_blob(sha256)
