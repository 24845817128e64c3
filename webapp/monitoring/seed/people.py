"""What people leave behind: schemes, datasets, presets, notes, queues with verdicts, comments."""

import json
import random
from typing import Any

from webapp.accounts import services as accounts
from webapp.accounts.models import Membership, Project, Role, User
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.experiments.recipes import recipe
from webapp.experiments.services.schemes import check_definition
from webapp.reviews import services as reviews
from webapp.reviews.models import Queue, Trajectory
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric, Scale

COLLEAGUES = (("mei@example.com", "Mei Lin"), ("jonas@example.com", "Jonas Weber"))
RUBRIC = Rubric(
    labels=["good reasoning", "wrong tool", "gave up"],
    scales=[Scale(name="clarity", low=1, high=5)],
)
INSTRUCTIONS = """Accept a trajectory only if **every** call was needed.

- *wrong tool*: another relation would have answered at once
- *gave up*: it stopped although calls were left
"""
NOTES = """Baseline: `cispo`, eight samples a task. Next: does a **shorter** budget hurt four hops?

| seed | completion |
|---|---|
| 1 | 0.87 |
| 2 | 0.90 |
"""


def furnish(project: Project, admin: User, run: Run) -> None:
    """Everything that people make, once for a project, around one ended run with trajectories."""
    colleagues = [_colleague(project, email, name) for email, name in COLLEAGUES]
    _material(project, admin, run)
    rows = list(run.trajectories.order_by("-cursor", "-id")[:12])
    for row, text in zip(
        rows,
        (
            "It asks for the country twice: is the first answer cut?",
            "Here the policy reads the airport code as a city.",
            "<b>Escaped</b>, as everything that people and agents write.",
        ),
        strict=False,
    ):
        reviews.add_comment(row, colleagues[0], text, step=0)
    people = [admin, *colleagues]
    judged = _queue(run, admin, people, "cold start, every failure", reviews_per_item=2)
    _judge(judged, people, len(rows) - 3)
    done = _queue(run, admin, people, "demonstrations worth keeping", reviews_per_item=1)
    _judge(done, people, len(rows))
    kept = services.create_dataset(project, admin, "accepted by people", "trajectories")
    reviews.make_dataset(done, kept, admin)


def _colleague(project: Project, email: str, name: str) -> User:
    """Somebody without a password: they judge and write, nobody can sign in as them."""
    user, _ = User.objects.get_or_create(
        username=email, defaults={"email": email, "display_name": name}
    )
    Membership.objects.get_or_create(project=project, user=user, defaults={"role": Role.EDITOR})
    return user


def _material(project: Project, admin: User, run: Run) -> None:
    accounts.invite(project, "amara@example.com", Role.VIEWER, admin)
    accounts.create_token(admin, "evaluation server", project=project, scope="read")
    services.edit_experiment(run.experiment_id, admin, notes=NOTES, baseline=run)
    services.edit_run(run.pk, admin, notes="The run that the others are measured against.")
    text = recipe("kg-search").text
    services.save_preset(project, admin, "nightly search", text)
    outcome: dict[str, Any] = {"kind": "exact_answer", "weight": 1.0}
    first = {"name": "strict format", "terms": [outcome, {"kind": "format", "weight": 0.1}]}
    version = services.create_scheme(project, admin, check_definition(first), "Names must parse")
    more = [*first["terms"], {"kind": "tool_errors", "weight": -0.2}]
    second = check_definition({**first, "terms": more})
    services.add_scheme_version(version.scheme, admin, second, "Errors cost something")
    services.start_backtest(project, admin, second, runs=[run])
    tasks = services.create_dataset(project, admin, "held-out questions", "tasks")
    rows = _questions()
    for size in (120, len(rows)):
        services.add_dataset_version(
            tasks,
            admin,
            [json.dumps(row, ensure_ascii=False).encode() for row in rows[:size]],
            source={"kind": "upload", "file": f"tasks-{size}.jsonl"},
            note=f"{size} questions",
        )


def _questions() -> list[dict[str, Any]]:
    """Of three and four hops in turn, about a small graph."""
    from engine.environments.kg_search import task_graph  # a second, needed here alone
    from engine.synthesis.tasks import TaskSource, split_entities

    graph = task_graph(300)
    starts = split_entities(graph, 0.5, 0).held_out
    source = TaskSource(graph)
    drawn = [source.draw(starts, hops, 80, "demo")[0] for hops in (3, 4)]
    return [
        {"prompt": one.prompt, "answer": one.answer, "category": one.category, "hops": one.hops}
        for pair in zip(*drawn, strict=True)
        for one in pair
    ]


def _queue(run: Run, admin: User, people: list[User], name: str, reviews_per_item: int) -> Queue:
    return reviews.create_queue(
        run,
        admin,
        name=name,
        instructions=INSTRUCTIONS,
        rubric=RUBRIC,
        wanted=Filter(),
        size=12,
        reviews_per_item=reviews_per_item,
        assignees=[person.pk for person in people],
    )


def _judge(queue: Queue, people: list[User], count: int) -> None:
    """Verdicts on the first items: people mostly agree with the reward, and not always."""
    rng = random.Random(queue.name)
    items = queue.items.select_related("queue", "trajectory").order_by("position")
    for item in items[:count]:
        for person in rng.sample(people, queue.reviews_per_item):
            accepted = _accepts(item.trajectory, rng)
            reviews.judge(
                item,
                person,
                choice="accepted" if accepted else "rejected",
                labels=[] if accepted else [rng.choice(RUBRIC.labels)],
                scores={"clarity": rng.randint(3, 5) if accepted else rng.randint(1, 4)},
                note="" if accepted else "The second call repeats the first.",
            )


def _accepts(trajectory: Trajectory, rng: random.Random) -> bool:
    return trajectory.success if rng.random() < 0.85 else not trajectory.success
