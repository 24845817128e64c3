"""Verdicts as dataset versions: pairs that a DPO stage reads, marks on steps, and their lineage."""

import pytest

from engine.records.rows import RowError, sides
from engine.records.trajectory import StopReason
from engine.spec import DpoStage
from engine.synthesis import Tokenizer
from engine.synthesis.repair import pair_of
from tests.webapp.reviews.samples import PROMPT, lookup, trajectory
from tests.webapp.support import SPEC, person
from webapp import storage
from webapp.accounts.models import Role
from webapp.experiments import services as experiments
from webapp.experiments.provenance import provenance_of
from webapp.experiments.queries import rows_of
from webapp.problems import RefusedError
from webapp.reviews import queue_queries, services
from webapp.reviews.preferences import NoPairError, Preferences, fork_of
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric
from workers.cluster import stored_rows
from workers.cluster.storage import RunStorage

FIRST = ('{"tool":"lookup","entity":"Lyon"}', lookup("Lyon", "country", "France 法国"), None)
RIGHT = ('{"tool":"lookup","entity":"France"}', lookup("France", "currency", "Euro 欧元"), None)
WRONG = ('{"tool":"lookup","entity":"Lyon"}', lookup("Lyon", "country", "France 法国"), None)
EURO, FRANC = ('{"answer":"Euro"}', None, "Euro"), ('{"answer":"Franc"}', None, "Franc")


def played(name, *turns, success=True, **changes):
    """As `samples.trajectory`, with no forced turn among them."""
    made = trajectory(turns, name=name, success=success, reward=float(success), **changes)
    for step in made.steps:
        step.detour = False
    return made


GOOD = played("good", FIRST, RIGHT, EURO)
BAD = played("bad", FIRST, ('{"answer":"Franc"}', None, "Franc"), success=False)
LATE = played("late", FIRST, RIGHT, FRANC, success=False)
OTHER = played("other", FIRST, RIGHT, FRANC, success=False, prompt="Another question?")


@pytest.fixture
def tokenizer():
    texts = [PROMPT, *(turn[0] for turn in (FIRST, RIGHT, EURO, FRANC)), "France 法国 Euro 欧元"]
    return Tokenizer.train(texts, 400)


def test_a_pair_is_the_turn_at_which_two_trajectories_part():
    fork = fork_of(GOOD, BAD)
    assert (fork.step, fork.chosen, fork.rejected) == (1, RIGHT[0], FRANC[0])
    assert [step["text"] for step in fork.steps] == [FIRST[0]]
    assert fork.steps[0]["call"]["result"] == "France 法国"


def cut(name, *turns):
    return played(name, *turns, success=False, stop=StopReason.MAX_TURN_TOKENS)


def edited():
    made = played("edited", FIRST, EURO)
    made.steps[1].segment = 1
    return made


def forced():
    made = played("forced", FIRST, EURO)
    made.steps[1].detour = True
    return made


@pytest.mark.parametrize(
    ("worse", "reason"),
    [
        (played("again", FIRST, RIGHT, EURO), "the same turns"),
        (played("p", FIRST, EURO, prompt="Which one?"), "another question"),
        (cut("cut", FIRST, ('{"tool":"look', None, None)), "cut short"),
        (played("broken", FIRST, ('{"answer":"\ufffd"}', None, "")), "broken characters"),
        (
            played("drift", (FIRST[0], lookup("Lyon", "country", "Spain"), None), EURO),
            "different results",
        ),
        (edited(), "context was edited"),
        (forced(), "forced turn"),
    ],
)
def test_what_is_no_pair_is_said(worse, reason):
    with pytest.raises(NoPairError, match=reason):
        fork_of(GOOD, worse)


def test_preferences_that_contradict_each_other_are_left_out_and_repeated_ones_kept_once():
    preferences = Preferences()
    preferences.add(GOOD, BAD, {})
    preferences.add(played("good2", FIRST, RIGHT, FRANC), BAD, {})
    assert len(list(preferences.rows())) == 1
    preferences.add(BAD, GOOD, {})
    assert list(preferences.rows()) == []
    assert preferences.left_out["the same pair again"] == 1
    assert preferences.left_out["preferred the other way round elsewhere"] == 2


@pytest.fixture
def queue(run, store, owner):
    store([GOOD, BAD, LATE, OTHER])
    return services.create_queue(
        run, owner, name="Queue", rubric=Rubric(labels=["clean"]), wanted=Filter(), size=10
    )


def judge_by_reward(queue, user):
    for item in queue.items.select_related("trajectory", "queue"):
        choice = "accepted" if item.trajectory.success else "rejected"
        services.judge(item, user, choice=choice, note="seen")


def test_pairs_of_one_task_become_rows_that_a_dpo_stage_learns(queue, owner, tokenizer):
    judge_by_reward(queue, owner)
    version = services.make_new_dataset(queue, "Pairs", "pairs", owner)
    rows = rows_of(version, 0, 10)
    assert {(row["review"]["chosen_trajectory"], row["review"]["rejected_trajectory"])
            for row in rows} == {("good", "bad"), ("good", "late")}  # fmt: skip
    for row in rows:
        category, chosen, rejected = sides(row, tokenizer, 1000)
        pair = pair_of(category, "", chosen, rejected)
        turn = tokenizer.encode_turn(row["chosen"])
        assert chosen[-len(turn) :] == turn and tokenizer.decode_turn(turn) == row["chosen"]
        assert pair.prefix and pair.chosen != pair.rejected
        (verdict,) = row["review"]["rejected_verdicts"]
        assert (verdict["reviewer"], verdict["note"]) == (owner.email, "seen")
    with pytest.raises(RowError):
        sides({**rows[0], "chosen": None}, tokenizer, 1000)


def test_the_worker_reads_every_row_of_the_version(queue, owner, tokenizer, tmp_path):
    judge_by_reward(queue, owner)
    version = services.make_new_dataset(queue, "Pairs", "pairs", owner)
    kept = RunStorage(str(tmp_path))
    tokenizer.save(kept.path("synthesis/tokenizer"))
    place = tmp_path / stored_rows.file_of(version.pk)
    place.parent.mkdir()
    place.write_bytes(storage.read_blob(version.blob, 0, version.size))
    stage = DpoStage(dataset=version.pk, steps=10)
    spec = experiments.check_spec({**SPEC, "stages": [SPEC["stages"][0], stage.model_dump()]})
    found, summary = stored_rows.pairs(kept, spec, stage, version.pk)
    assert summary["rows_used"] == summary["rows"] == len(found) == 2
    for pair, row in zip(found, rows_of(version, 0, 5), strict=True):
        for side, text in ((pair.chosen, row["chosen"]), (pair.rejected, row["rejected"])):
            turn = tokenizer.encode_turn(text)
            assert [*pair.prefix, *side][-len(turn) :] == turn


def test_a_run_is_launched_on_pairs_and_leads_back_to_reviewers(queue, project, owner, as_user):
    judge_by_reward(queue, owner)
    version = services.make_new_dataset(queue, "Pairs", "pairs", owner)
    stages = [SPEC["stages"][0], {"kind": "dpo", "dataset": version.pk, "steps": 10}]
    spec = experiments.check_spec({**SPEC, "stages": stages})
    learner = experiments.launch_run(project, owner, spec)
    (known,) = queue_queries.versions_of(queue)
    assert [stage.run_id for stage in known.stage_datasets.all()] == [learner.pk]
    back = provenance_of([learner.stage_datasets.get().version])[version.pk]
    assert back.queue == queue and back.run == queue.run
    assert version.source["reviewers"] == {owner.email: 4}
    page = as_user(owner).get(f"/runs/{learner.pk}/lineage").content.decode()
    assert owner.email in page and f"/queues/{queue.pk}/" in page


def test_a_preference_between_two_becomes_a_pair(run, store, owner):
    store([GOOD, BAD])
    queue = services.create_queue(
        run, owner, name="Two", rubric=Rubric(), wanted=Filter(), size=5,
        sample="disagreement", style="pairwise",
    )  # fmt: skip
    item = queue.items.get()
    better = "first" if item.trajectory_id == "good" else "second"
    services.judge(item, owner, choice=better)
    (row,) = rows_of(services.make_new_dataset(queue, "Two", "pairs", owner), 0, 5)
    assert (row["chosen"], row["rejected"]) == (RIGHT[0], FRANC[0])
    with pytest.raises(RefusedError, match="accepts none"):
        services.make_new_dataset(queue, "SFT", "trajectories", owner)


def test_no_difference_is_no_pair(run, store, owner):
    store([GOOD, BAD])
    queue = services.create_queue(
        run, owner, name="Two", rubric=Rubric(), wanted=Filter(), size=5,
        sample="disagreement", style="pairwise",
    )  # fmt: skip
    services.judge(queue.items.get(), owner, choice="same")
    with pytest.raises(RefusedError, match="no pair"):
        services.make_new_dataset(queue, "Two", "pairs", owner)
    assert not run.project.datasets.filter(name="Two").exists()


def test_marks_on_steps_are_kept_as_rows(queue, owner, editor):
    item = queue.items.get(trajectory="good")
    services.mark_step(item, owner, 1, "good", "the right relation")
    services.mark_step(item, editor, 1, "bad")
    version = services.make_new_dataset(queue, "Marks", "step_labels", owner)
    rows = rows_of(version, 0, 5)
    assert [(row["trajectory"], row["step"], row["label"]) for row in rows] == [
        ("good", 1, "good"),
        ("good", 1, "bad"),
    ]
    assert rows[0]["review"]["reviewer"] == owner.email and rows[0]["note"] == "the right relation"


def test_a_trajectory_that_is_gone_from_storage_is_left_out_and_counted(queue, owner, monkeypatch):
    judge_by_reward(queue, owner)

    def gone(*arguments):
        raise FileNotFoundError

    monkeypatch.setattr(storage, "read_blob", gone)
    with pytest.raises(RefusedError, match="3 no longer in storage"):
        services.make_new_dataset(queue, "Pairs", "pairs", owner)


def test_a_ruling_decides_what_becomes_of_an_item(run, store, owner, editor, project):
    store([GOOD])
    queue = services.create_queue(
        run, owner, name="Q", rubric=Rubric(), wanted=Filter(), size=5, reviews_per_item=2
    )
    item = queue.items.get()
    services.judge(item, owner, choice="accepted")
    services.judge(item, editor, choice="rejected")
    with pytest.raises(RefusedError, match="No trajectory"):
        services.make_new_dataset(queue, "A", "trajectories", owner)
    services.judge(item, person("third", project, Role.EDITOR), choice="accepted")
    (row,) = rows_of(services.make_new_dataset(queue, "A", "trajectories", owner), 0, 5)
    assert [v["adjudicates"] for v in row["review"]["verdicts"]].count(True) == 1
