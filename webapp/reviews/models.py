"""Index rows of stored trajectories, what people say about them, and review queues."""

from typing import cast

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from webapp import ids
from webapp.accounts.models import Project, User
from webapp.experiments.models import Attempt, Run
from webapp.reviews.rubric import Choice

USER = settings.AUTH_USER_MODEL


class Trajectory(models.Model):
    """Where a trajectory lies (shard and byte range), and what lists and filters need."""

    id = models.CharField(primary_key=True, max_length=40)  # given by the rollout worker
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="trajectories")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    shard = models.CharField(max_length=64)
    offset = models.BigIntegerField()
    length = models.BigIntegerField()
    task_id = models.CharField(max_length=80)
    group_id = models.CharField(max_length=80)
    category = models.CharField(max_length=40)
    purpose = models.CharField(max_length=14)
    prompt = models.CharField(max_length=500)
    stop_reason = models.CharField(max_length=20)
    reward = models.FloatField(null=True)  # null: invalid, never zero
    success = models.BooleanField()
    steps = models.PositiveIntegerField()
    calls = models.PositiveIntegerField()
    failed_calls = models.PositiveIntegerField()
    sampled_tokens = models.PositiveIntegerField()
    tokens = models.PositiveIntegerField()
    version_min = models.IntegerField()
    version_max = models.IntegerField()
    worker = models.CharField(max_length=80)
    started_at = models.DateTimeField()
    duration_s = models.FloatField()
    cursor = models.BigIntegerField()
    is_indexed = models.BooleanField(default=False)  # whether its TextIndex was made

    class Meta:
        indexes = [
            models.Index(fields=["run", "-cursor", "-id"], name="trajectory_newest"),
            models.Index(fields=["run", "task_id"], name="trajectory_by_task"),
            models.Index(fields=["run", "group_id"], name="trajectory_by_group"),
            models.Index(
                fields=["-started_at"],
                name="trajectory_to_index",
                condition=Q(is_indexed=False),
            ),
        ]


class TextIndex(models.Model):
    """By which parts of its text a trajectory is found, see `reviews.grams`.

    What lists of hits are narrowed and ordered by stands here once more: an index row never
    changes, and a query reads one table.
    """

    trajectory = models.OneToOneField(
        Trajectory, primary_key=True, on_delete=models.CASCADE, related_name="text_index"
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    success = models.BooleanField()
    purpose = models.CharField(max_length=14)
    started_at = models.DateTimeField()
    parts = ArrayField(models.IntegerField())
    is_complete = models.BooleanField()  # False: only the beginning of its text is in the index

    class Meta:
        indexes = [
            GinIndex(fields=["parts"], name="text_by_parts"),
            models.Index(fields=["project"], name="text_cut_short", condition=Q(is_complete=False)),
        ]


class TrainedTokens(models.Model):
    """Where it lies what the loss saw of a trajectory's tokens in one trainer step.

    It may arrive before the trajectory does, and stays where that never comes: no foreign key.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="trained_tokens")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    trajectory_id = models.CharField(max_length=40)
    step = models.PositiveBigIntegerField()  # of the trainer, in the run
    version = models.IntegerField()  # of the policy before that step
    tokens = models.PositiveIntegerField()
    left_out = models.CharField(max_length=20, blank=True)  # why it was not trained on
    shard = models.CharField(max_length=64)
    offset = models.BigIntegerField()
    length = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run", "trajectory_id", "attempt", "step"], name="trained_tokens_once"
            )
        ]


class Playing(models.Model):
    """What a rollout worker plays now: the newest list that came of it."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    worker = models.CharField(max_length=80)
    running = models.PositiveIntegerField()  # episodes, listed or not
    rows = models.JSONField()  # engine.records.events.RunningEpisode
    seq = models.BigIntegerField()  # of the event: an older one changes nothing
    told_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "worker"], name="playing_once")]


class Episode(models.Model):
    """An episode that people can follow while it runs; kept for minutes after its end.

    `trajectory_id` is what it is stored under, if it is stored at all.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="episodes")
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    trajectory_id = models.CharField(max_length=40)
    worker = models.CharField(max_length=80)
    task_id = models.CharField(max_length=80)
    category = models.CharField(max_length=40)
    purpose = models.CharField(max_length=14)
    prompt = models.CharField(max_length=500)
    started_at = models.DateTimeField()
    turns = models.PositiveIntegerField()
    tokens = models.PositiveIntegerField()  # sampled so far
    seq = models.BigIntegerField()  # of the newest event about it
    told_at = models.DateTimeField()
    end = models.JSONField(null=True)  # engine.records.events.EpisodeEnd
    cursor = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "trajectory_id", "attempt"], name="episode_once")
        ]
        indexes = [models.Index(fields=["told_at"], name="episode_by_age")]


class EpisodeTurn(models.Model):
    """A turn of a running episode, cut for people."""

    episode = models.ForeignKey(Episode, on_delete=models.CASCADE, related_name="published")
    index = models.PositiveIntegerField()
    data = models.JSONField()  # engine.records.events.PublishedTurn
    cursor = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["episode", "index"], name="episode_turn_once")
        ]


class Comment(models.Model):
    """Anchored to a trajectory, to one of its steps, or to a span of a field of that step."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.comment_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    trajectory = models.ForeignKey(Trajectory, on_delete=models.CASCADE, related_name="comments")
    step = models.PositiveIntegerField(null=True)
    field = models.CharField(max_length=6, blank=True)  # of a span: text | result
    start = models.PositiveIntegerField(null=True)  # of a span: characters of the field
    stop = models.PositiveIntegerField(null=True)
    text = models.TextField(max_length=10_000)  # Markdown
    # The first comment of its thread. Deleting that one deletes no answer.
    reply_to = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="replies"
    )
    author = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    edited_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["trajectory", "created_at"], name="comment_in_order")]


class Notice(models.Model):
    """Tells a person of a comment; at most one of each comment."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.notice_id, editable=False)
    user = models.ForeignKey(USER, on_delete=models.CASCADE, related_name="notices")
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    comment = models.ForeignKey(Comment, on_delete=models.CASCADE, related_name="notices")
    kind = models.CharField(max_length=7, choices=[("mention", "mention"), ("reply", "reply")])
    created_at = models.DateTimeField(auto_now_add=True)
    read_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "comment"], name="notice_once")]
        indexes = [
            models.Index(fields=["user", "-created_at", "-id"], name="notice_newest"),
            models.Index(fields=["user"], name="notice_unread", condition=models.Q(read_at=None)),
        ]


class Queue(models.Model):
    """Trajectories that people are asked to judge: instructions, a rubric, who judges."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.queue_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="queues")
    name = models.CharField(max_length=120)
    instructions = models.TextField(blank=True, max_length=20_000)  # Markdown
    rubric = models.JSONField()  # reviews.rubric.Rubric
    style = models.CharField(
        max_length=8, choices=[("single", "single"), ("pairwise", "pairwise")], default="single"
    )
    reviews_per_item = models.PositiveSmallIntegerField(default=1)  # 2: blind double review
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="queues")
    filter = models.JSONField(default=dict)  # reviews.queries.Filter that filled it
    sample = models.CharField(max_length=13, default="newest")  # reviews.sampling.Kind
    assignees = models.ManyToManyField(User, related_name="review_queues")
    created_by = models.ForeignKey(USER, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    closed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint("project", Lower("name"), name="queue_name_once")]

    def __str__(self) -> str:
        return self.name


class QueueItem(models.Model):
    """One trajectory in a queue, or two to choose from; its place in it is its position."""

    id = models.CharField(
        primary_key=True, max_length=24, default=ids.queue_item_id, editable=False
    )
    queue = models.ForeignKey(Queue, on_delete=models.CASCADE, related_name="items")
    trajectory = models.ForeignKey(Trajectory, on_delete=models.CASCADE)
    other = models.ForeignKey(  # the second of two, where the queue is pairwise
        Trajectory, null=True, on_delete=models.CASCADE, related_name="+"
    )
    position = models.PositiveIntegerField()
    reason = models.JSONField(default=dict)  # why the sample took it, see reviews.sampling
    outcome = models.CharField(max_length=8, default="open")  # reviews.rubric.Outcome

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["queue", "position"], name="queue_position_once"),
            models.UniqueConstraint(
                fields=["queue", "trajectory"],
                condition=models.Q(other=None),
                name="queue_trajectory_once",
            ),
            models.UniqueConstraint(fields=["queue", "trajectory", "other"], name="queue_two_once"),
        ]
        indexes = [models.Index(fields=["queue", "outcome"], name="queue_item_by_outcome")]


class Claim(models.Model):
    """A person works on an item until the lease ends; others get the next one meanwhile."""

    item = models.ForeignKey(QueueItem, on_delete=models.CASCADE, related_name="claims")
    user = models.ForeignKey(USER, on_delete=models.CASCADE, related_name="+")
    claimed_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["item", "user"], name="claim_once")]


class Verdict(models.Model):
    """What one reviewer says about one item: accepted or not, or which of two is better."""

    item = models.ForeignKey(QueueItem, on_delete=models.CASCADE, related_name="verdicts")
    reviewer = models.ForeignKey(USER, on_delete=models.PROTECT, related_name="+")
    accepted = models.BooleanField(null=True)  # of a single item
    preferred = models.CharField(max_length=6, blank=True)  # of two: first | second | same
    adjudicates = models.BooleanField(default=False)  # ends a dispute of others
    labels = models.JSONField(default=list)
    scores = models.JSONField(default=dict)  # {scale: number}
    note = models.TextField(blank=True, max_length=10_000)  # Markdown
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    @property
    def choice(self) -> Choice:
        if self.accepted is None:
            return cast(Choice, self.preferred)
        return "accepted" if self.accepted else "rejected"

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["item", "reviewer"], name="verdict_once"),
            models.UniqueConstraint(
                fields=["item"],
                condition=models.Q(adjudicates=True),
                name="verdict_adjudicates_once",
            ),
        ]


class StepMark(models.Model):
    """What one reviewer says about one step of a reviewed trajectory."""

    item = models.ForeignKey(QueueItem, on_delete=models.CASCADE, related_name="marks")
    reviewer = models.ForeignKey(USER, on_delete=models.PROTECT, related_name="+")
    step = models.PositiveIntegerField()
    mark = models.CharField(
        max_length=7, choices=[(name, name) for name in ("good", "neutral", "bad")]
    )
    note = models.TextField(blank=True, max_length=2_000)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["item", "reviewer", "step"], name="step_mark_once")
        ]
