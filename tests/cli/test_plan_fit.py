"""`caravan plan fit` as a person types it."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.app import app
from cli.plan_fit_tables import CHANGES, LIMITS, seconds
from cli.plan_input import read_count, read_length
from engine.planner import CHANGES as KNOWN_CHANGES
from engine.planner import NEEDS, Asked, advise, read_cluster, shipped
from workers.local.places import CHECKOUT, UserError

YI = ("--model", "yi-34b", "--devices", "8xH100", "--context", "8k", "--optimizer", "adamw8")


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths are typed from the checkout."""
    monkeypatch.chdir(CHECKOUT)


def fit(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", "fit", *arguments])


def test_it_shows_what_fits_what_breaks_and_what_helps() -> None:
    done = fit(*YI, "--algorithm", "ppo")
    assert done.exit_code == 0, done.exception
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any(line.startswith("ppo NO 87.2 GB actor update") for line in lines)
    assert any(line.startswith("cispo yes 49.4 GB actor update") for line in lines)
    assert "fits with a critic of 1 billion parameters: 59.7 GB" in " ".join(lines)
    assert any(line.startswith("Suggested: cispo. The model is large") for line in lines)
    rows = [line.split(" ")[0] for line in lines]
    assert rows.index("fragmentation") + 1 == rows.index("context")


def test_the_json_says_what_the_planner_says() -> None:
    said: dict[str, Any] = json.loads(fit(*YI, "--json").stdout)
    advice = advise(
        shipped("yi-34b"),
        read_cluster("8xH100"),
        Asked(context=8192, sampled=4096, optimizer="adamw8"),
    )
    assert said["model"]["parameters"] == 34_388_917_248
    assert (said["suggested"], said["devices"]) == ("cispo", "8xH100-80")
    assert [one["algorithm"] for one in said["verdicts"]] == list(NEEDS)
    ppo, grpo = said["verdicts"][0], said["verdicts"][1]
    assert ppo["bytes"] == pytest.approx(advice.of("ppo").case.memory.peak.total)
    assert ppo["broken"]["component"] == "critic"
    assert ppo["time"] is None
    assert {"critic_1b"} in [set(fix["changes"]) for fix in ppo["fixes"]]
    assert grpo["fits"]
    assert grpo["time"]["seconds"] == pytest.approx(advice.of("grpo").case.time.seconds)
    for one in said["verdicts"]:
        for phase in one["phases"]:
            assert phase["total"] == pytest.approx(sum(phase["components"].values()))


def test_a_reference_is_held_where_it_is_asked_for() -> None:
    plain, held = (
        json.loads(fit(*YI, *more, "--json").stdout)["verdicts"][1]["phases"][0]["components"]
        for more in ([], ["--reference"])
    )
    assert "reference" not in plain
    assert held["reference"] == 2 * 34_388_917_248 / 8


def test_a_size_alone_will_do_and_a_recipe_too() -> None:
    size = json.loads(
        fit("--params", "34b", "--devices", "H200", "--context", "4k", "--json").stdout
    )
    assert size["model"]["name"] == "34b"
    ours = json.loads(
        fit("--model", "kg-search", "--devices", "2xcpu", "--context", "160", "--json").stdout
    )
    assert all(one["fits"] for one in ours["verdicts"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--devices", "8xH100", "--context", "8k"], "Give either --model or --params"),
        ([*YI, "--params", "7b"], "Give either --model or --params"),
        ([*YI, "--algorithm", "trpo"], "There is no algorithm 'trpo': there are ppo, grpo"),
        ([*YI, "--optimizer", "sgd"], "--optimizer 'sgd' is not known: there are adamw"),
        ([*YI, "--engine", "off"], "--engine 'off' is not known: there are sleep"),
        ([*YI, "--sampled", "9k"], "9,000 sampled tokens do not go into a context of 8,192."),
        ([*YI, "--sampled", "soon"], "--sampled 'soon' is no length"),
        ([*YI, "--sampled", "1k,2k"], "--sampled '1k,2k' is several lengths: give one."),
        ([*YI, "--group", "0"], "--group 0 is too few"),
        ([*YI, "--critic", "small"], "--critic 'small' is no size: write it as 350m"),
        ([*YI, "--critic", "1m"], "1e+06 parameters cannot be planned with"),
        ([*YI, "--host-ram", "much"], "--host-ram 'much' is no size"),
        (["--model", "gpt-5", *YI[2:]], "There is no model 'gpt-5'"),
        ([*YI[:2], "--devices", "8xA100", "--context", "8k"], "Devices '8xA100' may be A100-40 or"),
        ([*YI[:4], "--context", "0"], "--context '0' is no length"),
    ],
)
def test_wrong_input_is_one_sentence(arguments: list[str], sentence: str) -> None:
    done = fit(*arguments)
    assert isinstance(done.exception, UserError)
    assert str(done.exception).startswith(sentence)
    assert "\n" not in str(done.exception)


@pytest.mark.parametrize(
    ("text", "count"), [("350m", 350e6), ("34.4b", 34.4e9), ("2T", 2e12), (" 1b ", 1e9)]
)
def test_a_size_is_read_as_written(text: str, count: float) -> None:
    assert read_count(text, "--params") == count


def test_a_length_is_read_as_windows_are_named() -> None:
    assert (read_length("32k", "--context"), read_length("100k", "--context")) == (32_768, 100_000)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.42, "0.42 s"), (89, "89 s"), (120, "2 min"), (7200, "2 h"), (2e5, "2.31 d")],
)
def test_times_are_for_people(value: float, text: str) -> None:
    assert seconds(value) == text


def test_every_change_and_limit_has_words() -> None:
    from typing import get_args

    from engine.planner.timing import Limit

    assert set(CHANGES) == set(KNOWN_CHANGES)
    assert set(LIMITS) == set(get_args(Limit))
