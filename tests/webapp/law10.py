"""A project with one of everything, and how URLs and calls are filled with its ids."""

import re
from dataclasses import replace

from django.utils import timezone

from engine.records.shards import write_shard
from tests.engine.evaluation.samples import outcomes
from tests.webapp.judging import judge
from tests.webapp.reviews.samples import trajectory
from tests.webapp.support import SPEC, start
from webapp import ids, storage
from webapp.accounts import services as accounts
from webapp.accounts import webhooks
from webapp.accounts.models import Project, Role, User
from webapp.accounts.saved_views import save_view
from webapp.experiments import services
from webapp.experiments.models import Attempt, Run
from webapp.experiments.services.schemes import check_definition
from webapp.monitoring.models import RunEvent
from webapp.reviews import services as reviews
from webapp.reviews.models import Episode, Notice, Trajectory
from webapp.reviews.queries import Filter
from webapp.reviews.rubric import Rubric
from webapp.sweeps import services as sweeps

MARK = "Zanzibar"  # in the name of everything of the world: an outsider never reads it


def build_world(project: Project, user: User) -> dict[str, str]:
    """One of everything in a project; ids by the word that precedes them in URLs."""
    spec = services.check_spec({**SPEC, "name": f"{MARK} spec"})
    run = services.launch_run(project, user, spec, services.Launch(tags=[MARK], notes=MARK))
    driver = start(run)
    checkpoint = run.checkpoints.create(
        attempt=driver.attempt,
        stage=1,
        step=1,
        policy_version=1,
        path="checkpoints/1",
        files={"model.safetensors": {"size": 1, "sha256": "0" * 64}},
        created_at=timezone.now(),
    )
    task = f'{{"prompt": "{MARK}", "answer": "{MARK}"}}'.encode()
    dataset = services.create_dataset(project, user, f"{MARK} data", "tasks")
    version = services.add_dataset_version(dataset, user, [task], source={"kind": "upload"})
    scheme = services.create_scheme(project, user, check_definition({"name": f"{MARK} rewards"}))
    preset = services.save_preset(project, user, f"{MARK} preset", str(SPEC).replace("'", '"'))
    name = ids.new_id("t")
    blob, shard, rows = write_shard([trajectory(name=name, prompt=MARK)])
    storage.put_blob(blob)
    row = Trajectory.objects.create(
        run=run, attempt=driver.attempt, project=project, shard=shard, cursor=1, **rows[0]
    )
    comment = reviews.add_comment(row, user, MARK)
    episode = Episode.objects.create(
        run=run, attempt=driver.attempt, trajectory_id=ids.new_id("t"), worker="rollout-0",
        task_id=MARK, category=MARK, purpose="train", prompt=MARK, started_at=timezone.now(),
        turns=1, tokens=1, seq=1, told_at=timezone.now(), cursor=1,
    )  # fmt: skip
    episode.published.create(index=0, data={"text": MARK}, cursor=1)
    queue = reviews.create_queue(
        run, user, name=f"{MARK} queue", rubric=Rubric(), wanted=Filter(), size=1
    )
    notice = Notice.objects.create(user=user, project=project, comment=comment, kind="mention")
    evaluation = judged(run, driver.attempt, MARK)
    job = services.start_job(project, user, "test", {}, title=f"{MARK} job")
    sweep = sweeps.create_sweep(
        project,
        user,
        {**SPEC, "name": f"{MARK} sweep"},
        sweeps.SweepWish(
            {"space": [{"kind": "choice", "path": "seed", "values": [1]}], "method": "grid"},
            notes=MARK,
        ),
    )
    tried = services.start_backtest(
        project, user, check_definition({"name": MARK}), runs=[run], against=scheme
    )
    pruned = services.start_prune(project, user, {"pools": True})
    invitation, _ = accounts.invite(project, f"{MARK.lower()}@example.com", Role.VIEWER, user)
    webhook = webhooks.create_webhook(
        project, user, f"https://{MARK.lower()}.example.com/", ["run.failed"]
    )
    delivery = webhooks.send_test(webhook)
    view = save_view(project, user, page="runs", name=f"{MARK} view", query="q=x", shared=True)
    token, _ = accounts.create_token(user, f"{MARK} token", project=project)
    return {
        "projects": project.pk,
        "experiments": run.experiment_id,
        "runs": run.pk,
        "external-runs": run.pk,
        "checkpoints": checkpoint.pk,
        "files": "model.safetensors",
        "evaluations": str(evaluation.pk),
        "datasets": dataset.pk,
        "versions": "1",
        "scheme-versions": scheme.pk,
        "reward-schemes": scheme.scheme_id,
        "rewards": scheme.scheme_id,
        "presets": preset.pk,
        "trajectories": row.pk,
        "episodes": episode.trajectory_id,
        "live": episode.trajectory_id,
        "steps": "0",
        "field": "text",
        "comments": comment.pk,
        "sweeps": sweep.pk,
        "queues": queue.pk,
        "queue-items": str(queue.items.get().pk),
        "marks": "0",
        "notices": notice.pk,
        "jobs": job.pk,
        "backtests": tried.pk,
        "prunes": pruned.pk,
        "scheme-version": scheme.pk,
        "dataset-version": version.pk,
        "invitations": invitation.pk,
        "members": str(user.pk),
        "tokens": token.pk,
        "webhooks": webhook.pk,
        "deliveries": str(delivery.pk),
        "views": view.pk,
        "saved-views": view.pk,
    }


def judged(run: Run, attempt: Attempt, category: str) -> RunEvent:
    played = [replace(one, category=category) for one in outcomes(True, False)]
    return judge(attempt, played, seq=10**9 + run.number)


def fill(route: str, world: dict[str, str]) -> str:
    """A route with its parameters filled. Raises KeyError for a noun that the world lacks."""
    parts = route.split("/")
    for index, part in enumerate(parts):
        if re.fullmatch(r"[<{].*[>}]", part):
            parts[index] = world[parts[index - 1]]
    return "/".join(parts)
