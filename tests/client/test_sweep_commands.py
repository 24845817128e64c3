"""`caravan queue` and `caravan sweep` against a real server."""

import json
from pathlib import Path

from tests.client.conftest import Caravan, as_json

SMOKE = Path(__file__).resolve().parents[2] / "recipes/smoke.yaml"
SWEEP = """
name: rates
recipe: smoke
method: grid
space:
  - {kind: choice, path: stages.1.optimizer.lr, values: [1e-3, 2e-3]}
  - {kind: int, path: seed, low: 0, high: 2}
halving: {min_steps: 100, factor: 3}
priority: -10
"""


def test_it_launches_a_sweep_from_a_file_and_shows_it(caravan: Caravan, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP)
    told = caravan("sweep", "create", str(file), "--dry-run")
    assert told.stdout.strip() == "at most 6 trials of 315 steps"
    made = as_json(caravan("sweep", "create", str(file), "--json"))
    assert made["plan"]["space"][0]["values"] == [0.001, 0.002]
    assert made["plan"]["priority"] == -10
    assert [one["id"] for one in as_json(caravan("sweep", "list", "--json"))] == [made["id"]]
    shown = caravan("sweep", "show", "rates")
    assert shown.exit_code == 0 and "rates is running" in shown.stdout
    assert "rates is paused" in caravan("sweep", "pause", "rates").stdout
    assert "rates is running" in caravan("sweep", "continue", made["id"]).stdout
    assert as_json(caravan("sweep", "stop", "rates", "--json"))["state"] == "stopped"


def test_it_names_what_is_wrong_in_the_file(caravan: Caravan, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    (tmp_path / "base.yaml").write_text(SMOKE.read_text())
    wrong = SWEEP.replace("recipe: smoke", "spec: base.yaml").replace(
        "stages.1.opt", "stages.9.opt"
    )
    file.write_text(wrong)
    refused = caravan("sweep", "create", str(file), "--json")
    assert refused.exit_code == 2
    assert "no position" in json.loads(refused.stderr)["error"]
    file.write_text("- a list")
    assert "must be a mapping with recipe or spec" in caravan("sweep", "create", str(file)).stderr
    assert "no sweep 'nothing'" in caravan("sweep", "show", "nothing").stderr


def test_it_shows_the_queue_and_moves_a_run(caravan: Caravan) -> None:
    names = [f"waits-{number}" for number in range(3)]
    for name in names:
        caravan("launch", str(SMOKE), "--name", name)
    urgent = as_json(caravan("launch", str(SMOKE), "--name", "urgent", "--priority", "9", "--json"))
    assert urgent["priority"] == 9

    def waiting() -> list[str]:
        found = as_json(caravan("queue", "list", "--json"))
        return [one["name"] for one in found if one["name"] in (*names, "urgent")]

    assert waiting() == ["urgent", *names]
    assert "waits-2 has priority" in caravan("queue", "move", "waits-2", "up").stdout
    assert waiting() == ["urgent", "waits-0", "waits-2", "waits-1"]
    caravan("queue", "priority", "waits-1", "10")
    assert waiting()[0] == "waits-1"
    assert caravan("queue", "move", "waits-1", "sideways").exit_code == 2
    for name in (*names, "urgent"):
        caravan("stop", name)
