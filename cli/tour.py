"""`caravan tour`: the pictures of docs/tour.md, taken anew of a seeded stack of their own."""

import io
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from bench.ui._live import live_run
from bench.ui._place import Place, Theme, done, place_of
from workers.local.places import CHECKOUT
from workers.local.scratch import scratch_stack

FOLDER = CHECKOUT / "docs" / "images" / "tour"
PAGE = CHECKOUT / "docs" / "tour.md"
SERVICES = ("postgres", "valkey", "web", "ingest", "jobs")
RUNS = 12
MINUTES = 6.0  # that a run is at work meanwhile
COLOURS = 128  # of a picture's palette: a page has few, and the files stay small
SETTLE_MS = 1200  # charts are drawn after their data has come
SIZES: dict[str, tuple[Theme, int, int]] = {
    "": ("light", 1280, 800),
    "-dark": ("dark", 1280, 800),
    "-phone": ("light", 390, 780),
}
# Pictures by name: the page's address, with words in braces that `_ids` fills. Those in TWICE are
# taken in the dark theme too, those in POCKET on a phone.
PICTURES = {
    "home": "/projects/{project}/",
    "experiments": "/projects/{project}/experiments/",
    "experiment": "/experiments/{experiment}/",
    "runs": "/projects/{project}/runs/?sort=-success",
    "launch": "/projects/{project}/launch/?recipe=kg-search",
    "clone": "/projects/{project}/launch/?clone={run}",
    "run": "/runs/{run}/",
    "charts": "/runs/{run}/charts",
    "pool": "/runs/{run}/pool",
    "devices": "/runs/{run}/devices",
    "tree": "/runs/{run}/tree",
    "evaluation": "/runs/{run}/evaluation",
    "checkpoints": "/runs/{run}/checkpoints",
    "trajectories": "/runs/{run}/trajectories/",
    "replay": "/trajectories/{trajectory}/#step=1",
    "side-by-side": "/trajectories/compare?a={trajectory}&b={other}",
    "compare": "/projects/{project}/compare/?runs={runs}",
    "review": "/projects/{project}/review/",
    "queue": "/queues/{queue}/",
    "rewards": "/rewards/{scheme}/?version=2&against=1",
    "dataset": "/datasets/{dataset}/",
    "sweep": "/sweeps/{sweep}/",
    "sweeps": "/projects/{project}/sweeps/new",
    "cluster": "/projects/{project}/cluster/",
    "jobs": "/projects/{project}/jobs/",
    "storage": "/projects/{project}/storage/",
    "team": "/projects/{project}/team/",
    "design": "/design/",
}
TWICE = ("run", "replay", "compare")
POCKET = ("runs", "run")


def names() -> list[str]:
    """The files that the script writes, without their folder."""
    made = [f"{name}.png" for name in PICTURES]
    return [*made, *(f"{n}-dark.png" for n in TWICE), *(f"{n}-phone.png" for n in POCKET)]


def take(say: Callable[[str], None] = print) -> None:
    """Start a stack, seed it, and write every picture."""
    with scratch_stack(SERVICES) as stack:
        done(stack.python("-m", "webapp.manage", "seed_demo", "--runs", str(RUNS)))
        with place_of(stack, say) as place, live_run(place, MINUTES):
            ids = _ids(place)
            FOLDER.mkdir(parents=True, exist_ok=True)
            for suffix, (theme, width, height) in SIZES.items():
                chosen = {"": list(PICTURES), "-dark": list(TWICE), "-phone": list(POCKET)}[suffix]
                size = {"width": width, "height": height}
                with place.page(theme, viewport=size) as page:
                    for name in chosen:
                        page.goto(place.url + PICTURES[name].format(**ids))
                        page.wait_for_load_state("networkidle")
                        page.wait_for_timeout(SETTLE_MS)
                        _write(FOLDER / f"{name}{suffix}.png", page.screenshot())
                        say(f"{name}{suffix}.png")


def _ids(place: Place) -> dict[str, str]:
    """What the addresses name: the run that people worked on, and what belongs to it."""
    project = place.project()
    queue = place.api("queues", project=project)["items"][-1]
    found = place.api("runs", q="tag:demo status:succeeded", limit=RUNS)["items"]
    run = place.api(f"runs/{queue['run']}")
    rows = place.api(f"runs/{run['id']}/trajectories", limit=100)["items"]
    groups = [[row for row in rows if row["group_id"] == one["group_id"]] for one in rows]
    group = max(groups, key=lambda rows: len({row["success"] for row in rows}))
    schemes = place.api("reward-schemes", project=project)["items"]
    datasets = place.api("datasets", project=project)["items"]
    sweeps = place.api("sweeps", project=project)["items"]
    return {
        "project": project,
        "run": run["id"],
        "experiment": run["experiment"]["id"],
        "runs": ",".join(one["id"] for one in found[:6]),
        "trajectory": group[0]["id"],
        "other": next((row for row in group if row["success"] != group[0]["success"]), group[1])[
            "id"
        ],
        "queue": queue["id"],
        "sweep": next(one["id"] for one in sweeps if one["state"] == "finished"),
        "scheme": next(one["id"] for one in schemes if one["name"] == "strict format"),
        "dataset": next(one["id"] for one in datasets if one["name"] == "held-out questions"),
    }


def _write(path: Path, picture: bytes) -> None:
    """Fewer colours and the best compression: a few dozen kilobytes for most pages."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
