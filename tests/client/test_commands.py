"""The commands against a real server: what they print, and their exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from caravan.access import login_file
from caravan.client import Client
from tests.client.conftest import Caravan, as_json, command
from workers.local.ports import free_port

SMOKE = str(Path(__file__).resolve().parents[2] / "recipes/smoke.yaml")


def launch(caravan: Caravan, *options: str) -> dict[str, Any]:
    run: dict[str, Any] = as_json(caravan("launch", SMOKE, "--json", *options))
    return run


def test_it_lists_recipes(caravan: Caravan) -> None:
    assert {one["name"] for one in as_json(caravan("recipes", "--json"))} >= {"smoke", "kg-search"}
    assert "smoke" in caravan("recipes").stdout


@pytest.mark.parametrize(
    "group", ["queue", "sweep", "datasets", "rewards", "review", "jobs", "tokens", "recipes"]
)
def test_a_group_alone_lists(caravan: Caravan, group: str) -> None:
    listed = caravan(group, "list", "--json").stdout
    assert as_json(caravan(group, "--json")) is not None
    if group != "tokens":  # whose own was used meanwhile
        assert caravan(group, "--json").stdout == listed
    assert caravan(group).exit_code == 0


def test_it_shows_the_text_of_a_recipe(caravan: Caravan) -> None:
    assert caravan("recipes", "show", "smoke").stdout.strip() == Path(SMOKE).read_text().strip()


def test_it_launches_a_file_with_fields_replaced(caravan: Caravan) -> None:
    options = ["--set", "stages.1.steps=70", "--set", "stages.2.optimizer.lr=1e-3"]
    run = launch(caravan, *options, "--name", "mine", "--tag", "a", "--tag", "b")
    assert run["spec"]["stages"][1]["steps"] == 70
    assert run["spec"]["stages"][2]["optimizer"]["lr"] == 0.001
    assert (run["name"], run["tags"]) == ("mine", ["smoke", "a", "b"])


def test_it_launches_a_recipe_of_the_server(caravan: Caravan) -> None:
    result = caravan("launch", "smoke", "--experiment", "named")
    assert result.exit_code == 0
    assert result.stdout.startswith("run_") and "named" not in result.stderr


def test_it_names_every_field_that_is_wrong(caravan: Caravan) -> None:
    wrong = ["--set", "model.widht=3", "--set", "stages.1.steps=many"]
    result = caravan("launch", SMOKE, *wrong)
    assert result.exit_code == 2
    assert "model.widht" in result.stderr and "stages.1.steps" in result.stderr
    assert "2 problems" in result.stderr
    told = caravan("launch", SMOKE, *wrong, "--json")
    problems = json.loads(told.stderr)["problems"]
    assert [one["path"] for one in problems] == ["model.widht", "stages.1.steps"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["launch", "nothing"], "no recipe 'nothing'"),
        (["launch", "nothing.yaml"], "no file nothing.yaml"),
        (["launch", "smoke", "--set", "steps"], "PATH=VALUE"),
        (["launch", "smoke", "--set", "a={"], "cannot be read"),
        (["launch", "smoke", "--project", "nowhere"], "no project 'nowhere'"),
        (["runs", "status:walking"], "no status 'walking'"),
        (["runs", "succes>0.5"], "do you mean success?"),
        (["runs", "--sort", "-"], "Sort by"),
        (["watch", "nobody"], "no run named 'nobody'"),
        (["watch", "run_0000000000000000"], "no run 'run_0000000000000000'"),
        (["stop", "run_../../x"], ""),
        (["compare", "one"], "two runs"),
        (["trajectories", "export", "nobody"], "no run named"),
        (["trajectories", "export"], "Name a run, or one trajectory"),
        (["trajectories", "export", "r", "--trajectory", "t"], "Name a run, or one trajectory"),
        (["trajectories", "export", "r", "--format", "html"], "A page holds one trajectory"),
        (["trajectories", "export", "r", "--comments"], "--comments goes with"),
        (["trajectories", "export", "--trajectory", "t", "--success"], "does not go with"),
        (["trajectories", "export", "--trajectory", "t"], "no trajectory 't'"),
        (["trajectories", "tasks", "nobody", "--name", "x"], "no run named"),
        (["checkpoints", "pull", "nobody"], "no run named"),
        (["fork", "nobody"], "no run named"),
        (["evaluate", "nobody"], "no run named"),
        (["try", "nobody"], "no run named"),
        (["try", "ckp_0"], "no checkpoint 'ckp_0'"),
        (["rewards", "show", "nothing"], "no reward scheme 'nothing'"),
        (["rewards", "push", "absent.yaml"], "no file absent.yaml"),
        (["datasets", "pull", "nothing"], "no dataset 'nothing'"),
        (["tokens", "revoke", "nothing"], "no token 'nothing' of yours"),
        (["recipes", "show", "nothing"], "no preset 'nothing'"),
        (["datasets", "push", "new", "absent.jsonl"], "absent.jsonl: No such file"),
        (["login"], "where Caravan is"),
        (["login", "there"], "no address"),
    ],
)
def test_it_refuses_wrong_input_in_one_sentence(
    caravan: Caravan, arguments: list[str], said: str
) -> None:
    result = caravan(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.startswith("caravan: ") and "Traceback" not in result.stderr
    assert json.loads(caravan(*arguments, "--json").stderr)["error"]


def test_it_refuses_a_file_that_is_no_spec(caravan: Caravan, tmp_path: Path) -> None:
    for name, content in {
        "a.yaml": b"\xff\xfe",
        "b.yaml": b"- 1",
        "c.yaml": b"a: [",
        "d.yaml": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        assert caravan("launch", str(tmp_path / name)).exit_code == 2


@pytest.mark.parametrize("word", ["fork", "evaluate"])
def test_nothing_starts_from_a_checkpoint_that_is_not_there(caravan: Caravan, word: str) -> None:
    run = launch(caravan, "--name", f"no checkpoint to {word}")
    told = caravan(word, run["id"])
    assert (told.exit_code, "it has saved none yet" in told.stderr) == (2, True)
    told = caravan(word, run["id"], "--checkpoint", "ckp_0")
    assert (told.exit_code, "has no checkpoint 'ckp_0'" in told.stderr) == (2, True)


def test_it_lists_what_a_filter_chooses(caravan: Caravan) -> None:
    run = launch(caravan, "--name", "filtered", "--tag", "rare")
    assert [one["id"] for one in as_json(caravan("runs", "tag:rare", "--json"))] == [run["id"]]
    assert run["id"] in caravan("runs", "tag:rare", "status:queued").stdout
    assert caravan("runs", "tag:never").stdout == "No runs match.\n"


def test_it_says_that_a_list_goes_on(caravan: Caravan) -> None:
    for _ in range(2):
        launch(caravan, "--tag", "many")
    told = caravan("runs", "tag:many", "-n", "1")
    assert len(told.stdout.splitlines()) == 2 and "-n 2" in told.stderr
    assert "more" not in caravan("runs", "tag:many", "-n", "2").stderr
    assert len(as_json(caravan("runs", "tag:many", "-n", "1", "--json"))) == 1


def test_a_filter_is_refused_in_the_words_of_the_person_who_typed_it(caravan: Caravan) -> None:
    assert caravan("runs", "foo:bar").stderr.startswith("caravan: There is no filter 'foo'")


def test_it_stops_a_run_by_its_name(caravan: Caravan) -> None:
    run = launch(caravan, "--name", "short-lived")
    assert "is stopped" in caravan("stop", "short-lived").stdout
    again = caravan("stop", run["id"])
    assert again.exit_code == 2 and "stopped already" in again.stderr
    watched = caravan("watch", run["id"])
    assert watched.exit_code == 1 and "stopped" in watched.stdout
    assert as_json(caravan("resume", run["id"], "--json"))["state"] == "queued"


def test_it_asks_for_an_id_where_a_name_is_not_enough(caravan: Caravan) -> None:
    one, two = (launch(caravan, "--name", "twin") for _ in range(2))
    result = caravan("stop", "twin")
    assert result.exit_code == 2
    assert one["id"] in result.stderr and two["id"] in result.stderr


def test_it_compares_specs(caravan: Caravan) -> None:
    one = launch(caravan, "--set", "seed=1")
    two = launch(caravan, "--set", "seed=2")
    found = as_json(caravan("compare", one["id"], two["id"], "--json"))
    assert [row["path"] for row in found["differences"]] == ["seed"]
    shown = caravan("compare", one["id"], two["id"]).stdout
    assert "seed" in shown and "measured nothing" in shown


def test_it_prints_nothing_that_steers_a_terminal(caravan: Caravan) -> None:
    run = launch(caravan, "--name", "evil\x1b[2J\u202ename", "--tag", "hostile")
    shown = caravan("runs", "tag:hostile").stdout + caravan("stop", run["id"]).stdout
    assert "\x1b" not in shown and "\u202e" not in shown and "evilname" in shown


def test_it_pushes_reward_schemes_as_versions(caravan: Caravan, tmp_path: Path) -> None:
    file = tmp_path / "scheme.yaml"
    file.write_text("name: pushed\nterms: [{kind: exact_answer, weight: 2.0}]\n")
    assert as_json(caravan("rewards", "push", str(file), "--json"))["number"] == 1
    same = caravan("rewards", "push", str(file))
    assert same.exit_code == 2 and "nothing changed" in same.stderr
    file.write_text("name: pushed\nterms: [{kind: exact_answer}, {kind: format, weight: 0.1}]\n")
    assert "version 2" in caravan("rewards", "push", str(file), "--note", "shorter").stdout
    assert "1 exact_answer + 0.1 format" in caravan("rewards", "show", "pushed").stdout
    assert "pushed" in caravan("rewards", "list").stdout
    saved = "{kind: step_efficiency, weight: 0.2, budget: 8}"
    later = "curriculum: {process: [step_efficiency]}"
    file.write_text(f"name: pushed\nterms: [{{kind: exact_answer}}, {saved}]\n{later}\n")
    assert "version 3" in caravan("rewards", "push", str(file)).stdout
    told = "0.2 step_efficiency (budget 8); step_efficiency later"
    assert told in caravan("rewards", "show", "pushed").stdout
    file.write_text("name: pushed\nterms: [{kind: beauty}]\n")
    wrong = caravan("rewards", "push", str(file))
    assert wrong.exit_code == 2 and "terms.0.kind" in wrong.stderr
    file.write_text("- 1")
    assert caravan("rewards", "push", str(file)).exit_code == 2


def test_lists_follow_every_page(
    caravan: Caravan, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caravan.http.PAGE", 2)
    made = [f"page {n}" for n in range(5)]
    for name in made:
        client.create_dataset(name, "tasks")
        client.save_preset(name, Path(SMOKE).read_text())
        client.push_reward_scheme({"name": name, "terms": [{"kind": "exact_answer"}]})
    for command_ in ("datasets", "rewards", "recipes"):
        names = [one["name"] for one in as_json(caravan(command_, "list", "--json"))]
        assert [name for name in sorted(names) if name in made] == made
    assert [one["name"] for one in client.datasets(q="PAGE 3")] == ["page 3"]
    assert client.preset("page 0")["text"] == Path(SMOKE).read_text()
    for name in made:
        client.delete_preset(client.preset(name)["id"])


def test_it_pushes_and_pulls_datasets(caravan: Caravan, tmp_path: Path) -> None:
    rows = [{"prompt": f"question {n}", "answer": "\u7b54"} for n in range(3000)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    unnamed = caravan("datasets", "push", "questions", str(file))
    assert unnamed.exit_code == 2 and "--kind" in unnamed.stderr
    pushed = ["datasets", "push", "questions", str(file), "--kind", "tasks", "--json"]
    assert as_json(caravan(*pushed))["rows"] == 3000
    result = as_json(caravan("datasets", "pull", "questions", "--json"))
    assert [json.loads(line) for line in Path(result["file"]).read_text().splitlines()] == rows
    assert caravan("datasets", "pull", "questions").exit_code == 2  # the file is there
    assert caravan("datasets", "pull", "questions", "--version", "9").exit_code == 2
    other = caravan("datasets", "push", "questions", str(file), "--kind", "pairs")
    assert other.exit_code == 2 and "holds tasks" in other.stderr
    assert "3,000" in caravan("datasets", "list", "questions").stdout


def test_it_names_the_rows_that_are_wrong(caravan: Caravan, tmp_path: Path) -> None:
    file = tmp_path / "wrong.jsonl"
    file.write_text('{"prompt": "a", "answer": 1}\n{"prompt": ""}\nno json\n')
    result = caravan("datasets", "push", "wrong", str(file), "--kind", "tasks")
    assert result.exit_code == 2
    assert "rows.2.prompt" in result.stderr and "rows.3" in result.stderr
    assert "wrong" not in [one["name"] for one in as_json(caravan("datasets", "list", "--json"))]


def test_a_token_does_what_its_scope_says(
    caravan: Caravan, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = as_json(
        caravan("tokens", "create", "reader", "--scope", "read", "--days", "2", "--json")
    )
    url = as_json(caravan("login", _url(), "--token", made["token"], "--json"))["url"]
    monkeypatch.delenv("CARAVAN_HOME")
    assert url == _url_of_login()
    assert command("runs").exit_code == 0
    refused = command("launch", "smoke")
    assert refused.exit_code == 3 and "only read" in refused.stderr
    assert "1 days left" in command("tokens", "list").stdout


def test_a_revoked_token_is_out(caravan: Caravan, monkeypatch: pytest.MonkeyPatch) -> None:
    made = as_json(caravan("tokens", "create", "short", "--json"))
    assert "revoked" in caravan("tokens", "revoke", made["id"]).stdout
    url = _url()
    monkeypatch.setenv("CARAVAN_URL", url)
    monkeypatch.setenv("CARAVAN_TOKEN", made["token"])
    result = command("runs")
    assert result.exit_code == 3 and "caravan login" in result.stderr


def test_it_asks_for_the_token_and_keeps_only_one_that_works(caravan: Caravan) -> None:
    wrong = caravan("login", _url(), text="cvn_wrong_token\n")
    assert wrong.exit_code == 3 and not login_file().exists()
    made = as_json(caravan("tokens", "create", "asked", "--json"))
    right = caravan("login", _url(), text=f"{made['token']}\n")
    assert right.exit_code == 0 and "Signed in" in right.stdout
    assert made["token"] not in right.stdout and login_file().exists()
    assert caravan("login", _url(), text="").exit_code == 2


def test_it_says_that_nothing_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARAVAN_URL", f"http://127.0.0.1:{free_port(set())}")
    monkeypatch.setenv("CARAVAN_TOKEN", "cvn_any_token")
    result = command("runs")
    assert result.exit_code == 3 and "is not reached" in result.stderr


def test_it_says_that_nobody_is_signed_in() -> None:
    result = command("runs")
    assert result.exit_code == 3 and "caravan login" in result.stderr


def _url() -> str:
    with Client() as client:
        return client.url


def _url_of_login() -> str:
    return str(json.loads(login_file().read_text())["url"])


def test_it_archives_and_deletes_a_run(caravan: Caravan, client: Client) -> None:
    run = launch(caravan, "--name", "to go")
    refused = caravan("delete", run["id"], "--yes")
    assert refused.exit_code == 2
    assert "stop it" in refused.stderr
    caravan("stop", run["id"])
    assert "is archived" in caravan("archive", "to go").stdout
    assert caravan("delete", "to go", text="n\n").exit_code == 1
    assert client.run(run["id"])["archived_at"]
    assert "is back" in caravan("archive", run["id"], "--undo").stdout
    as_json(caravan("archive", run["id"], "--json"))
    told = as_json(caravan("delete", run["id"], "--yes", "--json"))
    assert told == {"id": run["id"], "deleted": True}
    assert caravan("delete", run["id"], "--yes").exit_code != 0


def test_it_saves_shows_launches_and_deletes_a_preset(caravan: Caravan, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(Path(SMOKE).read_text().replace("seed: 0", "seed: 8"))
    saved = as_json(caravan("recipes", "save", "eighth", str(file), "--json"))
    again = caravan("recipes", "save", "Eighth", str(file))
    assert again.exit_code == 2 and "replace it" in again.stderr
    assert caravan("recipes", "save", "Eighth", str(file), "--replace").exit_code == 0
    listed = as_json(caravan("recipes", "--json"))
    assert [one["id"] for one in listed if one["kind"] == "preset"] == [saved["id"]]
    assert "seed: 8" in caravan("recipes", "show", "eighth").stdout
    run = as_json(caravan("launch", "eighth", "--json"))
    assert run["spec"]["seed"] == 8
    assert caravan("recipes", "delete", "eighth").exit_code == 0
    assert caravan("recipes", "delete", "eighth").exit_code == 2


def test_it_starts_shows_and_stops_jobs(caravan: Caravan, tmp_path: Path) -> None:
    run = launch(caravan)
    file = tmp_path / "tried.yaml"
    file.write_text("name: tried\nterms: [{kind: repetition, weight: -1.0, ngram: 3}]\n")
    asked = ["rewards", "backtest", str(file), "--run", run["id"], "--newest", "5", "--no-wait"]
    job = as_json(caravan(*asked, "--json"))
    assert (job["state"], job["spec"]["newest"]) == ("queued", 5)  # no process does jobs here
    assert job["id"] in caravan("jobs", "list", "--kind", "backtest").stdout
    assert "queued" in caravan("jobs", "show", job["id"]).stdout
    assert as_json(caravan("jobs", "cancel", job["id"], "--json"))["state"] == "stopped"
    assert caravan("jobs", "wait", job["id"]).exit_code == 1
    again = caravan("jobs", "cancel", job["id"])
    assert again.exit_code == 2 and "stopped already" in again.stderr
    assert caravan("jobs", "show", "job_nothing").exit_code == 2
    assert caravan("rewards", "push", str(file)).exit_code == 0
    assert "-1 repetition (ngram 3)" in caravan("rewards", "show", "tried").stdout
    stored = ["rewards", "backtest", "tried", "--run", run["id"], "--no-wait", "--json"]
    assert as_json(caravan(*stored))["title"].startswith("Backtest of tried on run ")
    missing = caravan(*stored[:3], "--version", "9", *stored[3:])
    assert missing.exit_code == 2 and "no version 9" in missing.stderr
    empty = caravan("trajectories", "tasks", run["id"], "--name", "hard", "--failure")
    assert empty.exit_code == 2 and "No stored trajectory passes" in empty.stderr
    nothing = caravan("rewards", "backtest", str(file))
    assert nothing.exit_code == 2 and "Choose runs or a dataset" in nothing.stderr


def test_repeats_with_other_seeds_are_one_row(caravan: Caravan) -> None:
    tag = ["--tag", "repeats"]
    runs = [launch(caravan, "--set", f"seed={seed}", *tag) for seed in (1, 2)]
    (group,) = as_json(caravan("runs", "tag:repeats", "--group", "variant", "--json"))
    assert (group["n"], set(group["runs"])) == (2, {run["id"] for run in runs})
    by_seed = as_json(caravan("runs", "tag:repeats", "--group", "seed", "--json"))
    assert [one["key"] for one in by_seed] == ["2", "1"]
    assert "rollout/reward_mean" in caravan("runs", "tag:repeats", "--group", "seed").stdout
    ids = [run["id"] for run in runs]
    found = as_json(caravan("compare", *ids, "--group", "variant", "--json"))
    (told,) = found["completion"]["groups"]
    assert (told["n"], told["runs"]) == (0, ids)
    assert "completion" in caravan("compare", *ids, "--group", "variant").stdout
    refused = caravan("compare", *ids, "--tasks")
    assert refused.exit_code == 2 and "no evaluation" in refused.stderr


def test_a_saved_view_is_listed_by_its_name(caravan: Caravan) -> None:
    run = launch(caravan, "--name", "viewed", "--tag", "seen")
    with Client() as client:
        view = {"page": "runs", "name": "Seen ones", "query": "q=tag:seen&sort=name"}
        client.http.post("/saved-views", view)
    found = as_json(caravan("runs", "--view", "seen ONES", "--json"))
    assert [one["id"] for one in found] == [run["id"]]
    unknown = caravan("runs", "--view", "nothing")
    assert unknown.exit_code == 2 and "'Seen ones'" in unknown.stderr
