"""`caravan plan` as a person types it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from cli.plan_input import read_lengths, read_model
from cli.plan_tables import scaled
from engine.models.hybrid import HybridConfig
from engine.planner import generation, memory, next_token, parameters, shipped
from workers.local.places import CHECKOUT, UserError


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are typed from the checkout."""
    monkeypatch.chdir(CHECKOUT)


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", "flops", *arguments])


def test_it_names_the_recipes_where_there_is_no_such_one() -> None:
    done = CliRunner().invoke(app, ["plan", "run", "nothing"])
    assert isinstance(done.exception, UserError)
    assert "no file nothing, and no such recipe: there are distil, kg-search" in str(done.exception)


@pytest.mark.parametrize(
    ("asked", "tokens"),
    [
        ("4096", 4096),
        ("1k", 1024),
        ("64k", 65_536),
        ("256K", 262_144),
        ("1m", 1_048_576),
        ("100k", 100_000),
        ("10m", 10_000_000),
    ],
)
def test_a_length_means_what_its_name_usually_means(asked: str, tokens: int) -> None:
    assert read_lengths(asked)[0].tokens == tokens


@pytest.mark.parametrize("asked", ["", "64q", "-1", "0", "0k", "1.5k", "64k,", "9999999999"])
def test_it_refuses_what_is_no_length(asked: str) -> None:
    with pytest.raises(UserError, match="is no length: write tokens as 4096, 64k, 100k or 1m"):
        read_lengths(asked)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999.6, "1 kB"), (40_960, "41 kB"), (293_601_280, "294 MB")]
)
def test_it_scales_to_three_digits(value: float, text: str) -> None:
    assert scaled(value, "B") == text


def test_it_prints_resolved_lengths_and_shares() -> None:
    done = plan("minimax-m1", "--at", "64k,100k", "--versus", "deepseek-r1")
    assert done.exit_code == 0
    assert "65,536 tokens (64k)" in done.stdout
    assert "100,000 tokens (100k)" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("deepseek-r1")]
    assert ["deepseek-r1", "multi-head", "100,000", "22.2%", "34.4%"] in rows
    assert ["deepseek-r1", "absorbed", "100,000", "7.2%", "12.0%"] in rows
    assert ["deepseek-r1", "paper", "100,000", "-", "28.2%"] in rows


def test_the_json_says_what_the_planner_says() -> None:
    done = plan("minimax-m1", "--at", "1m", "--versus", "minimax-m1-softmax", "--json")
    said: dict[str, Any] = json.loads(done.stdout)
    m1, twin = shipped("minimax-m1"), shipped("minimax-m1-softmax")
    assert [model["name"] for model in said["models"]] == [m1.name, twin.name]
    assert said["models"][0]["parameters"]["total"] == parameters(m1).total
    assert said["models"][0]["layers"] == {"softmax": 10, "latent": 0, "lightning": 70}
    (at,) = said["at"]
    tokens = at["tokens"]
    assert tokens == 2**20
    assert at["flops"]["minimax-m1"]["multi-head"]["next_token"]["total"] == pytest.approx(
        next_token(m1, tokens).total
    )
    assert at["flops"]["minimax-m1"]["paper"]["next_token"] is None
    assert at["bytes"]["minimax-m1"]["kv"] == memory(m1, tokens).kv
    assert at["share_of"][twin.name]["multi-head"]["generation"] == pytest.approx(
        generation(m1, tokens).total / generation(twin, tokens).total
    )


def test_it_reads_recipes_and_checkpoints(tmp_path: Path) -> None:
    HybridConfig().save_pretrained(tmp_path)
    by_name, by_path = read_model("kg-search"), read_model("recipes/kg-search.yaml")
    assert by_name == by_path
    assert read_model(str(tmp_path)).layers == by_name.layers  # the quick start's are the defaults


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gpt-5"], "There is no model 'gpt-5': give a config.json, a checkpoint folder, a recipe"),
        (["minimax-m1", "--versus", "gpt-5"], "There is no model 'gpt-5'"),
        (["minimax-m1", "--at", "far"], "--at 'far' is no length"),
        (["gone.yaml"], "gone.yaml cannot be read (No such file or directory)."),
        (["README.md"], "README.md is not JSON."),
        (["docs"], "docs/config.json cannot be read (No such file or directory)."),
        (["docker-compose.yml"], "docker-compose.yml is no specification: "),
    ],
)
def test_wrong_input_is_one_sentence(arguments: list[str], sentence: str) -> None:
    done = plan(*arguments)
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith(sentence)
    assert "\n" not in str(done.exception)


def test_it_plans_a_run() -> None:
    done = CliRunner().invoke(app, ["plan", "run", "kg-search"])
    assert done.exit_code == 0, done.exception
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any(line.startswith("keys and values (192 sequences) ") for line in lines)
    assert any(line.startswith("rl 100 192 30,720 ") for line in lines)
    assert "A trainer (of 1) in stage 2, rl" in lines
    assert "On 2xcpu, sharded over all of them:" in lines
    assert any(line.startswith("Suggested: grpo. ") for line in lines)


def test_the_json_of_a_run_says_what_the_planner_says() -> None:
    done = CliRunner().invoke(app, ["plan", "run", "recipes/smoke.yaml", "--json"])
    said = json.loads(done.stdout)
    assert said["model"]["name"] == "smoke"
    assert said["trainer"]["weights"] == 4 * said["parameters"]["total"]
    assert [stage["kind"] for stage in said["stages"]] == ["sft", "rl"]
    assert [phase["name"] for phase in said["stages"][1]["phases"]] == ["actor update"]
    assert said["advice"]["devices"] == "2xcpu"


def test_a_run_is_planned_for_the_length_and_the_devices_that_are_given() -> None:
    runner, asked = CliRunner(), ["plan", "run", "kg-search", "--json"]
    longest = json.loads(runner.invoke(app, asked).stdout)
    done = runner.invoke(app, [*asked, "--mean", "80", "--devices", "8xH100"])
    mean = json.loads(done.stdout)
    assert mean["stages"][1]["tokens"] == longest["stages"][1]["tokens"] / 2
    assert mean["seconds"] < longest["seconds"]
    assert mean["memory"] == longest["memory"]
    assert mean["advice"]["devices"] == "8xH100-80"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--mean", "few"], "--mean 'few' is no length"),
        (["--devices", "8xTPU"], "There is no device 'TPU'"),
    ],
)
def test_options_of_a_run_that_are_wrong_are_one_sentence(
    arguments: list[str], sentence: str
) -> None:
    done = CliRunner().invoke(app, ["plan", "run", "kg-search", *arguments])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith(sentence)


def test_a_run_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "spec.yaml"
    broken.write_text("name: [")
    done = CliRunner().invoke(app, ["plan", "run", str(broken)])
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith(f"{broken} is no specification: This is not valid YAML")
    assert "\n" not in str(done.exception)
