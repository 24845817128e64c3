"""Who may do what: users, teams, projects, roles, tokens, invitations, and the audit log."""

from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils.translation import gettext_lazy as _

from webapp import ids


class User(AbstractUser):
    """Signs in by email. `username` holds the email too, so that Django's tools work."""

    email = models.EmailField(unique=True)
    display_name = models.CharField(max_length=80, blank=True)
    theme = models.CharField(
        max_length=5,
        choices=[("auto", "auto"), ("light", "light"), ("dark", "dark")],
        default="auto",
    )

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS = ["username"]

    class Meta:
        constraints = [models.UniqueConstraint(Lower("email"), name="user_email_any_case")]

    def __str__(self) -> str:
        return self.display_name or self.email


class Role(models.TextChoices):
    VIEWER = "viewer", _("Viewer")
    EDITOR = "editor", _("Editor")
    ADMIN = "admin", _("Admin")

    @property
    def rank(self) -> int:
        return [Role.VIEWER, Role.EDITOR, Role.ADMIN].index(self)


class Team(models.Model):
    id = models.CharField(primary_key=True, max_length=24, default=ids.team_id, editable=False)
    name = models.CharField(max_length=80)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Project(models.Model):
    id = models.CharField(primary_key=True, max_length=24, default=ids.project_id, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="projects")
    name = models.CharField(max_length=80)
    created_at = models.DateTimeField(auto_now_add=True)
    max_running = models.PositiveIntegerField(default=1)  # runs of the project at the same time

    class Meta:
        constraints = [models.UniqueConstraint("team", Lower("name"), name="project_name_once")]

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=6, choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["project", "user"], name="member_once")]


class ApiToken(models.Model):
    """Shown once, stored as a keyed hash; `prefix` is public and finds the row."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.token_id, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    project = models.ForeignKey(
        Project, null=True, on_delete=models.CASCADE
    )  # null: all of the user's
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64)
    scope = models.CharField(max_length=5, choices=[("read", _("read")), ("write", _("write"))])
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)


class Invitation(models.Model):
    """A one-time link. The first visit sets a password and creates the membership."""

    id = models.CharField(
        primary_key=True, max_length=24, default=ids.invitation_id, editable=False
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=6, choices=Role.choices)
    digest = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)


class LoginLink(models.Model):
    """A one-time link that signs a user in, made on the machine itself."""

    user = models.ForeignKey(User, on_delete=models.CASCADE)
    digest = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)


class SavedView(models.Model):
    """A query string of a list's page under a name: of the whole project, or of one person."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.view_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="saved_views")
    page = models.CharField(max_length=20)  # of accounts.saved_views.PAGES
    name = models.CharField(max_length=120)
    query = models.TextField(blank=True)
    shared = models.BooleanField(default=False)
    owner = models.ForeignKey(User, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                "project", "page", Lower("name"), condition=Q(shared=True), name="shared_view_once"
            ),
            models.UniqueConstraint(
                "project",
                "page",
                "owner",
                Lower("name"),
                condition=Q(shared=False),
                name="own_view_once",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class DefaultView(models.Model):
    """The view with which a page opens for a person."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="default_views")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    page = models.CharField(max_length=20)
    view = models.ForeignKey(SavedView, on_delete=models.CASCADE, related_name="defaults")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "project", "page"], name="default_view_once")
        ]


class AuditEntry(models.Model):
    project = models.ForeignKey(Project, null=True, on_delete=models.SET_NULL)
    user = models.ForeignKey(User, null=True, on_delete=models.SET_NULL)
    at = models.DateTimeField(auto_now_add=True)
    action = models.CharField(max_length=60)  # e.g. run.launch
    target = models.CharField(max_length=60, blank=True)  # id of what was changed
    detail = models.JSONField(default=dict)
    request_id = models.CharField(max_length=40, blank=True)

    class Meta:
        indexes = [models.Index(fields=["project", "-id"], name="audit_newest")]


class StoredAnswer(models.Model):
    """What an API call with an Idempotency-Key was answered, kept for a day."""

    caller = models.CharField(max_length=64)  # digest of the credential
    key = models.CharField(max_length=200)
    request = models.CharField(max_length=64)  # digest of method, path and body
    status = models.PositiveSmallIntegerField(null=True)  # null: the first call is still running
    body = models.BinaryField(default=b"")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["caller", "key"], name="answer_once")]
        indexes = [models.Index(fields=["created_at"], name="answer_age")]


class Webhook(models.Model):
    """An address that is told of a project's events. Its signing secret is derived, not stored."""

    id = models.CharField(primary_key=True, max_length=24, default=ids.webhook_id, editable=False)
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField(max_length=500)
    events = ArrayField(models.CharField(max_length=40))  # accounts.webhooks.EVENTS
    serial = models.PositiveIntegerField(default=1)  # of the secret: the next one ends this one
    created_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL)
    created_at = models.DateTimeField(auto_now_add=True)
    disabled_at = models.DateTimeField(null=True)


class Delivery(models.Model):
    """One event on its way to one webhook, with what came of it."""

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    event = models.CharField(max_length=40)
    body = models.JSONField()
    state = models.CharField(
        max_length=9,
        choices=[
            ("waiting", _("waiting")),
            ("delivered", _("delivered")),
            ("failed", _("failed")),
        ],
        default="waiting",
    )
    tries = models.PositiveSmallIntegerField(default=0)
    next_at = models.DateTimeField()
    status = models.PositiveSmallIntegerField(null=True)  # of the last answer
    problem = models.CharField(max_length=300, blank=True)  # of the last try
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["webhook", "-id"], name="delivery_newest"),
            models.Index(fields=["next_at"], name="delivery_due", condition=Q(state="waiting")),
        ]
