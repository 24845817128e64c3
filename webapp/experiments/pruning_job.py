"""The job that prunes, or says what would go: item by item, so that it can be stopped between."""

from collections import Counter
from typing import Any

from webapp.experiments.jobs import Working
from webapp.experiments.services.prune import Item, Wish, candidates, remove

MOST_RUNS = 1000  # that are listed one by one


def work(working: Working) -> dict[str, Any]:
    """The function of jobs of kind `prune`: bytes, files and things by kind and by run.

    `kept`: what something came to refer to between looking and removing.
    """
    wish = Wish.model_validate(working.spec)
    project_id = working.job.project_id
    kinds: dict[str, Counter[str]] = {}
    runs: dict[str, dict[str, Counter[str]]] = {}
    kept = 0
    found: list[Item] = []
    for item in candidates(project_id, wish):
        working.progress(len(found), None, "Looking")
        found.append(item)
    for done, item in enumerate(found):
        working.progress(done, len(found), "Counting" if wish.preview else "Removing")
        if not wish.preview and not remove(item, wish, project_id, working.job.created_by):
            kept += 1
            continue
        by_run = runs.setdefault(item.run_id, {}).setdefault(item.kind, Counter())
        for tally in (kinds.setdefault(item.kind, Counter()), by_run):
            tally.update(count=1, bytes=item.bytes, files=item.files)
    for kind, tally in kinds.items():
        working.log(f"{kind}: {tally['count']}, {tally['files']} files, {tally['bytes']} bytes")
    return {
        "preview": wish.preview,
        "wish": wish.model_dump(exclude={"preview"}),
        "bytes": sum(tally["bytes"] for tally in kinds.values()),
        "files": sum(tally["files"] for tally in kinds.values()),
        "kept": kept,
        "kinds": kinds,
        "runs": dict(list(runs.items())[:MOST_RUNS]),
    }
