"""`caravan review` against a real server: from an episode to a dataset version of its verdicts."""

from caravan.client import Client
from caravan.run import Episode, Run, Turn
from tests.client.conftest import Caravan, as_json


def play() -> str:
    """A run with a group of two episodes, one right and one wrong; its id."""
    with Run(experiment="judged") as run:
        for answer, right in (("Euro", True), ("Franc", False)):
            turns = [
                Turn(
                    '{"tool":"lookup"}',
                    tool="lookup",
                    arguments={"entity": "Lyon"},
                    result="France",
                ),
                Turn(answer, answer=answer),
            ]
            run.trajectory("Which currency?", turns, Episode(float(right), right, group="g"))
    return run.id


def test_verdicts_become_a_dataset_of_pairs(client: Client, caravan: Caravan) -> None:
    run = play()
    preview = as_json(
        caravan("review", "new", run, "x", "--sample", "disagreement", "--preview", "--json")
    )
    assert (preview["matching"], len(preview["picks"])) == (2, 2)
    made = caravan(
        "review", "new", run, "Currencies", "--label", "lucky", "--sample", "disagreement"
    )
    queue = made.stdout.strip()
    assert "Currencies" in caravan("review", "list").stdout
    items = {}
    while item := as_json(caravan("review", "next", queue, "--json")):
        choice = "rejected" if items else "accepted"
        given = caravan("review", "verdict", item["id"], choice, "--label", "lucky", "--note", "n")
        assert given.stdout.startswith(choice)
        items[choice] = item["id"]
    assert "Nothing is left" in caravan("review", "next", queue).stdout
    assert caravan("review", "undo", items["rejected"]).exit_code == 0
    assert caravan("review", "dataset", queue, "Pairs", "--kind", "pairs").exit_code == 2
    caravan("review", "verdict", items["rejected"], "rejected")
    version = as_json(caravan("review", "dataset", queue, "Pairs", "--kind", "pairs", "--json"))
    assert version["rows"] == 1 and version["source"]["queue"] == queue
    shown = caravan("review", "show", "Currencies").stdout
    assert "1 accepted, 1 rejected" in shown and version["id"] in shown
    assert "No mentions" in caravan("review", "inbox").stdout


def test_wrong_words_are_named(client: Client, caravan: Caravan) -> None:
    for arguments, said in (
        (["review", "show", "nothing"], "no review queue 'nothing'"),
        (["review", "new", "nobody", "x"], "no run named"),
        (["review", "verdict", "qit_0", "accepted", "--score", "much"], "SCALE=NUMBER"),
        (["review", "verdict", "qit_0", "accepted"], "no queue item"),
    ):
        answer = caravan(*arguments)
        assert answer.exit_code == 2 and said in answer.stderr, answer.stderr
