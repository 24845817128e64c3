"""What a run that was started from another run's checkpoint begins with, on its own storage.

All of it is copied before the first stage: from then on nobody needs the other run.
"""

import json
import shutil
from dataclasses import asdict
from typing import Any

from workers.cluster import synthesised
from workers.cluster.attempt import Position
from workers.cluster.run_format import check_same_format
from workers.cluster.storage import RunStorage

_FILE = "origin/origin.json"  # written last
_CHECKPOINT = "origin/checkpoint"


class OriginError(Exception):
    """The checkpoint that the run starts from cannot be had; a sentence for people."""


def take_origin(told: dict[str, Any] | None, storage: RunStorage) -> Position | None:
    """The checkpoint that the run starts from, copied with the tasks of its run; None: none.

    `told`: what ingest said of it. Raises OriginError, OtherCodeError.
    """
    done = storage.fetch(_FILE)
    if done is not None:
        return Position(**json.loads(done.read_text()))
    if told is None:
        return None
    source = RunStorage(told["storage"])
    check_same_format(source, told["run_id"])
    wanted = {synthesised.FOLDER: synthesised.FOLDER, told["checkpoint_path"]: _CHECKPOINT}
    for name, target in wanted.items():
        folder = source.fetch(name)
        if folder is None:
            raise OriginError(
                f"This run starts from checkpoint {told['id']} of run {told['run_id']}, and "
                f"{name} is not on that run's storage any more."
            )
        # In the order of writing: what was written last says that the rest is there.
        path = storage.path(target)
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(folder, path)
        storage.publish(target)
    position = Position(told["stage"], told["step"], told["version"], _CHECKPOINT)
    storage.write_json(_FILE, asdict(position))
    return position
