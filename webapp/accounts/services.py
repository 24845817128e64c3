"""Every write of accounts: sign-in links, invitations, members, tokens, projects."""

from datetime import datetime, timedelta

from django.contrib.auth import authenticate
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone

from webapp.accounts import throttle
from webapp.accounts.audit import record
from webapp.accounts.credentials import check_password_rules, digest, new_api_token, new_secret
from webapp.accounts.models import (
    ApiToken,
    Invitation,
    LoginLink,
    Membership,
    Project,
    Role,
    Team,
    User,
)
from webapp.problems import RefusedError, conflict, invalid_field

LOGIN_LINK_LIFE = timedelta(minutes=15)
INVITATION_LIFE = timedelta(days=7)
DEFAULT_TEAM, DEFAULT_PROJECT = "Caravan", "default"


@transaction.atomic
def ensure_admin(email: str) -> User:
    """The first admin, with the default team and project; creates whatever of them is missing."""
    team = Team.objects.order_by("created_at").first() or Team.objects.create(name=DEFAULT_TEAM)
    project = Project.objects.filter(team=team).order_by("created_at").first()
    project = project or Project.objects.create(team=team, name=DEFAULT_PROJECT)
    admin = first_admin()
    if admin is None:
        admin = User.objects.filter(email__iexact=email).first() or _create_user(email)
        Membership.objects.update_or_create(
            project=project, user=admin, defaults={"role": Role.ADMIN}
        )
        record("project.admin", admin.email, user=None, project=project)
    return admin


def first_admin() -> User | None:
    member = Membership.objects.filter(role=Role.ADMIN, user__is_active=True).order_by("pk").first()
    return member.user if member else None


def project_or_oldest(name: str | None) -> Project:
    """The project with this id or name, or the oldest, for who works on the installation itself.

    Raises RefusedError where there is none.
    """
    projects = Project.objects.order_by("created_at")
    if name:
        projects = projects.filter(Q(pk=name) | Q(name__iexact=name))
    if (project := projects.first()) is None:
        raise RefusedError(f"There is no project {name!r}." if name else "No project yet.")
    return project


def _create_user(email: str, password: str | None = None, display_name: str = "") -> User:
    email = email.strip().lower()
    return User.objects.create_user(
        username=email, email=email, password=password, display_name=display_name
    )


def address_of(request: HttpRequest) -> str:
    """Where a request comes from, for what is counted per address."""
    return request.META.get("REMOTE_ADDR") or "unknown"


def sign_in(request: HttpRequest, email: str, password: str) -> User:
    """The user with this email and password. Raises RefusedError, alike for both being wrong."""
    address = address_of(request)
    throttle.check(email, address)
    user = authenticate(request, username=email.strip().lower(), password=password)
    if not isinstance(user, User):
        throttle.count_failure(email, address)
        raise RefusedError("No account has this email and password.", status=401)
    throttle.forget(email, address)
    return user


def create_login_link(user: User) -> str:
    """A secret that signs the user in once, within 15 minutes."""
    secret = new_secret()
    LoginLink.objects.create(
        user=user,
        digest=digest("login", secret),
        expires_at=timezone.now() + LOGIN_LINK_LIFE,
    )
    return secret


@transaction.atomic
def use_login_link(secret: str) -> User:
    """The user whom the link signs in; it never works again. Raises RefusedError."""
    used = LoginLink.objects.filter(
        digest=digest("login", secret),
        used_at=None,
        expires_at__gt=timezone.now(),
        user__is_active=True,
    ).update(used_at=timezone.now())
    if not used:
        raise RefusedError(
            "This login link was used already or is older than 15 minutes. "
            "Make another one with `./caravan login-link`.",
            status=401,
        )
    user = LoginLink.objects.select_related("user").get(digest=digest("login", secret)).user
    record("user.login_link", user.email, user=user, project=None)
    return user


@transaction.atomic
def invite(project: Project, email: str, role: Role, by: User | None) -> tuple[Invitation, str]:
    """An invitation and the secret of its link. Raises RefusedError for a member of the project."""
    email = email.strip().lower()
    if "@" not in email or len(email) > 254:
        raise invalid_field("email", f"{email!r} is no email address.")
    if Membership.objects.filter(project=project, user__email__iexact=email).exists():
        raise conflict(f"{email} is a member of {project.name} already; change the role instead.")
    secret = new_secret()
    Invitation.objects.filter(project=project, email=email, accepted_at=None).delete()
    invitation = Invitation.objects.create(
        project=project,
        email=email,
        role=role,
        digest=digest("invitation", secret),
        invited_by=by,
        expires_at=timezone.now() + INVITATION_LIFE,
    )
    record("member.invite", email, user=by, project=project, role=role)
    return invitation, secret


def find_invitation(secret: str) -> Invitation:
    """The open invitation of this link. Raises RefusedError."""
    invitation = (
        Invitation.objects.select_related("project", "invited_by")
        .filter(
            digest=digest("invitation", secret),
            accepted_at=None,
            expires_at__gt=timezone.now(),
        )
        .first()
    )
    if invitation is None:
        raise RefusedError(
            "This invitation was used, withdrawn or is older than a week.", status=404
        )
    return invitation


@transaction.atomic
def accept_invitation(
    secret: str, password: str, display_name: str = "", address: str = "unknown"
) -> User:
    """Create the account, or check the password of the one that exists, and make it a member.

    An account without a password gets none here: who invites holds the secret too, and would be in.
    Guesses at a password count as failed sign-ins do.
    """
    invitation = find_invitation(secret)
    Invitation.objects.select_for_update(no_key=True).get(pk=invitation.pk)
    invitation = find_invitation(secret)  # again, now that nobody else can use it
    user = User.objects.filter(email__iexact=invitation.email).first()
    if user is None:
        check_password_rules(password, User(email=invitation.email, username=invitation.email))
        user = _create_user(invitation.email, password, display_name)
    elif not user.has_usable_password():
        raise invalid_field(
            "password",
            "You have an account already, which has no password yet: sign in with a link of "
            "`./caravan login-link`, set a password on the page of your account, and come back.",
        )
    else:
        throttle.check(user.email, address)
        if not user.check_password(password):
            throttle.count_failure(user.email, address)
            raise invalid_field(
                "password", "You have an account already; this is not its password."
            )
        throttle.forget(user.email, address)
    Membership.objects.get_or_create(
        project=invitation.project, user=user, defaults={"role": invitation.role}
    )
    invitation.accepted_at = timezone.now()
    invitation.save(update_fields=["accepted_at"])
    record("member.join", user.email, user=user, project=invitation.project, role=invitation.role)
    return user


@transaction.atomic
def withdraw_invitation(invitation: Invitation, by: User) -> None:
    record("member.uninvite", invitation.email, user=by, project=invitation.project)
    invitation.delete()


@transaction.atomic
def set_role(member: Membership, role: Role, by: User) -> Membership:
    """Raises RefusedError where it would leave the project without an admin."""
    _keep_an_admin(member, role)
    before, member.role = member.role, role
    member.save(update_fields=["role"])
    record(
        "member.role",
        member.user.email,
        user=by,
        project=member.project,
        before=before,
        after=role,
    )
    return member


@transaction.atomic
def remove_member(member: Membership, by: User) -> None:
    """Raises RefusedError where it would leave the project without an admin."""
    _keep_an_admin(member, None)
    ApiToken.objects.filter(user=member.user, project=member.project, revoked_at=None).update(
        revoked_at=timezone.now()
    )
    record("member.remove", member.user.email, user=by, project=member.project)
    member.delete()


def _keep_an_admin(member: Membership, role: Role | None) -> None:
    admins = list(
        Membership.objects.select_for_update(no_key=True).filter(
            project=member.project, role=Role.ADMIN
        )
    )
    if role != Role.ADMIN and [admin.pk for admin in admins] == [member.pk]:
        raise conflict(
            f"{member.user} is the only admin of {member.project.name}: make another one first."
        )


@transaction.atomic
def create_token(
    user: User,
    name: str,
    *,
    project: Project | None = None,
    scope: str = "write",
    expires_at: datetime | None = None,
) -> tuple[ApiToken, str]:
    """A token and its text, which is never shown again."""
    if not name.strip():
        raise invalid_field("name", "Give the token a name that says where it is used.")
    if len(name.strip()) > 80:
        raise invalid_field("name", f"A token's name has at most 80 characters, not {len(name)}.")
    if scope not in ("read", "write"):
        raise invalid_field("scope", f"{scope!r} is no scope: use read or write.")
    if expires_at is not None and expires_at <= timezone.now():
        raise invalid_field("expires_at", "This moment has passed already.")
    text, prefix, token_digest = new_api_token()
    token = ApiToken.objects.create(
        user=user,
        project=project,
        name=name.strip(),
        prefix=prefix,
        digest=token_digest,
        scope=scope,
        expires_at=expires_at,
    )
    record("token.create", token.pk, user=user, project=project, name=name, scope=scope)
    return token, text


@transaction.atomic
def revoke_token(token: ApiToken, by: User) -> None:
    ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())
    record("token.revoke", token.pk, user=by, project=token.project, name=token.name)


@transaction.atomic
def replace_cli_token(user: User) -> str:
    """The text of a new token for this checkout's command line; the one before stops working."""
    name = "command line of this checkout"
    for token in ApiToken.objects.filter(user=user, name=name, revoked_at=None):
        revoke_token(token, user)
    return create_token(user, name)[1]


@transaction.atomic
def create_project(team: Team, name: str, by: User) -> Project:
    """A project whose first admin is its creator."""
    name = name.strip()
    if not name or len(name) > 80:
        raise invalid_field("name", "A project's name has 1 to 80 characters.")
    try:
        with transaction.atomic():
            project = Project.objects.create(team=team, name=name)
    except IntegrityError:
        raise invalid_field("name", f"{team.name} has a project {name!r} already.") from None
    Membership.objects.create(project=project, user=by, role=Role.ADMIN)
    record("project.create", project.pk, user=by, project=project, name=name)
    return project


@transaction.atomic
def set_max_running(project: Project, max_running: int, by: User) -> Project:
    if not 1 <= max_running <= 1000:
        raise invalid_field("max_running", f"{max_running} is not between 1 and 1000.")
    before, project.max_running = project.max_running, max_running
    project.save(update_fields=["max_running"])
    record("project.max_running", project.pk, user=by, project=project, before=before)
    return project


def set_theme(user: User, theme: str) -> None:
    if theme not in ("auto", "light", "dark"):
        raise invalid_field("theme", f"{theme!r} is no theme: use auto, light or dark.")
    User.objects.filter(pk=user.pk).update(theme=theme)


@transaction.atomic
def set_display_name(user: User, name: str) -> None:
    name = name.strip()
    if len(name) > 80:
        raise invalid_field("display_name", "A name has at most 80 characters.")
    User.objects.filter(pk=user.pk).update(display_name=name)


@transaction.atomic
def set_password(user: User, old: str, new: str) -> None:
    """Who signed in by link and has no password yet needs no old one."""
    if user.has_usable_password() and not user.check_password(old):
        raise invalid_field("old_password", "This is not your present password.")
    check_password_rules(new, user)
    user.set_password(new)
    user.save(update_fields=["password"])
    record("user.password", user.email, user=user, project=None)
