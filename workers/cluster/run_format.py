"""The format of a run's files: what code of one version wrote, code of another may go on with.

What was launched is frozen, its code included; but a machine is upgraded, and an interrupted run is
there to be resumed. A resume by other code is allowed where the files have a format that this code
reads, and is said on the run's page. Raise FORMAT with every change after which this code and the
code before could not take over from each other: what is synthesised, the graph that a spec gives,
the pool's log, checkpoints, positions, evaluations. Where this code still can, the format before
goes to OLDER.
"""

import json

from pydantic import ValidationError

from engine.spec import ExperimentSpec
from engine.spec.code import code_version
from workers.cluster.storage import RunStorage

FORMAT = 3
OLDER = (2,)  # the pool's log does not say which tickets came to nothing
_FILE = "format.json"


class OtherCodeError(Exception):
    """This code cannot go on with what other code launched or wrote; a sentence for people."""


def check_format(storage: RunStorage, launched_with: str) -> None:
    """Mark a new run's storage, and look at the mark of any other before anything is read.

    Raises OtherCodeError.
    """
    path = storage.fetch(_FILE)
    if path is None and storage.is_empty():
        storage.write_json(_FILE, {"format": FORMAT, "code": code_version()})
        return
    found = json.loads(path.read_text()) if path is not None else {}
    if found.get("format") == FORMAT:
        return
    if found.get("format") in OLDER:  # which the code that wrote it cannot take back
        storage.write_json(_FILE, {"format": FORMAT, "code": code_version()})
        return
    written = found.get("format", "no number")
    raise OtherCodeError(
        f"The files of this run have format {written}, and this code ({shown(code_version())}) "
        f"reads format {FORMAT}: resume it with code {shown(found.get('code') or launched_with)}, "
        "or clone it."
    )


def check_same_format(storage: RunStorage, run_id: str) -> None:
    """Look at the mark of another run's storage before anything is copied from it.

    Raises OtherCodeError.
    """
    path = storage.fetch(_FILE)
    written = json.loads(path.read_text()).get("format") if path is not None else None
    if written not in (FORMAT, *OLDER):
        raise OtherCodeError(
            f"The files of run {run_id}, from which this one starts, have format "
            f"{written or 'of no number'}, and this code ({shown(code_version())}) reads format "
            f"{FORMAT}: launch it with the code of that run."
        )


def read_spec(spec: dict[str, object], launched_with: str) -> ExperimentSpec:
    """The frozen spec. Raises OtherCodeError where this code does not know a field of it."""
    try:
        return ExperimentSpec.model_validate_json(json.dumps(spec))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise OtherCodeError(
            f"This code ({shown(code_version())}) does not take the run's spec ({path}: "
            f"{first['msg']}): resume it with code {shown(launched_with)}, or clone it."
        ) from None


def notice(launched_with: str) -> str:
    """What the run's log says where other code goes on with it; "" where it is the same."""
    if not launched_with or launched_with == code_version():
        return ""
    return (
        f"This attempt runs code {shown(code_version())}; "
        f"the run was launched with {shown(launched_with)}."
    )


def shown(version: str) -> str:
    """A code version as people read it."""
    commit, dash, mark = version.partition("-")
    return f"{commit[:12]}{dash}{mark}" or "of unknown version"
