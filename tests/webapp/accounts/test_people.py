"""Links work once, invitations make members, tokens are hashed, the last admin stays."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client, RequestFactory
from django.utils import timezone

from tests.webapp.support import Api
from webapp.accounts import access, credentials, services, throttle
from webapp.accounts.models import (
    ApiToken,
    AuditEntry,
    Invitation,
    LoginLink,
    Membership,
    Project,
    Role,
    User,
)
from webapp.problems import RefusedError

PASSWORD = "a long way through the desert"


def refused(status: int, action: Any, *args: Any, **kwargs: Any) -> RefusedError:
    with pytest.raises(RefusedError) as found:
        action(*args, **kwargs)
    assert found.value.status == status
    return found.value


@pytest.mark.django_db
def test_the_first_admin_is_made_once() -> None:
    first = services.ensure_admin("admin@example.com")
    assert services.ensure_admin("other@example.com") == first
    assert [p.name for p in Project.objects.all()] == ["default"]
    assert access.Actor(first).roles() == {Project.objects.get().pk: Role.ADMIN}


def test_a_login_link_works_once(owner: User) -> None:
    secret = services.create_login_link(owner)
    assert services.use_login_link(secret) == owner
    refused(401, services.use_login_link, secret)
    assert secret not in str(LoginLink.objects.values())


def test_a_login_link_works_for_fifteen_minutes(owner: User) -> None:
    secret = services.create_login_link(owner)
    assert LoginLink.objects.get().expires_at <= timezone.now() + timedelta(minutes=15)
    LoginLink.objects.update(expires_at=timezone.now())
    refused(401, services.use_login_link, secret)


def test_a_login_link_of_somebody_who_left_is_worth_nothing(owner: User) -> None:
    secret = services.create_login_link(owner)
    User.objects.update(is_active=False)
    refused(401, services.use_login_link, secret)


def test_an_invitation_makes_a_member_once(project: Project, owner: User) -> None:
    invitation, secret = services.invite(project, " New@Example.com ", Role.VIEWER, owner)
    assert secret not in str(Invitation.objects.values())
    refused(422, services.accept_invitation, secret, "short")
    user = services.accept_invitation(secret, PASSWORD, "Newcomer")
    assert (user.email, user.display_name) == ("new@example.com", "Newcomer")
    assert user.check_password(PASSWORD)
    assert access.Actor(user).role_in(project.pk) is Role.VIEWER
    refused(404, services.accept_invitation, secret, PASSWORD)
    refused(409, services.invite, project, "NEW@example.com", Role.VIEWER, owner)


def test_an_invitation_does_not_take_over_an_account(project: Project, owner: User) -> None:
    user = User.objects.create_user("known@example.com", "known@example.com", PASSWORD)
    _, secret = services.invite(project, "known@example.com", Role.EDITOR, owner)
    refused(422, services.accept_invitation, secret, "another long password")
    assert access.Actor(user).role_in(project.pk) is None
    assert services.accept_invitation(secret, PASSWORD) == user
    assert access.Actor(user).role_in(project.pk) is Role.EDITOR


def test_an_invitation_gives_nobodys_account_a_password(project: Project, owner: User) -> None:
    """The first admin has none: who invites them elsewhere must not become them."""
    first = User.objects.create_user("link@example.com", "link@example.com")
    assert not first.has_usable_password()
    _, secret = services.invite(project, first.email, Role.VIEWER, owner)
    refused(422, services.accept_invitation, secret, PASSWORD)
    first.refresh_from_db()
    assert not first.has_usable_password()
    services.set_password(first, "", PASSWORD)
    assert services.accept_invitation(secret, PASSWORD) == first


def test_a_withdrawn_or_old_invitation_is_worth_nothing(project: Project, owner: User) -> None:
    invitation, secret = services.invite(project, "a@example.com", Role.VIEWER, owner)
    services.withdraw_invitation(invitation, owner)
    refused(404, services.accept_invitation, secret, PASSWORD)
    _, secret = services.invite(project, "a@example.com", Role.VIEWER, owner)
    Invitation.objects.update(expires_at=timezone.now())
    refused(404, services.accept_invitation, secret, PASSWORD)


def test_the_newest_invitation_counts(project: Project, owner: User) -> None:
    _, first = services.invite(project, "a@example.com", Role.ADMIN, owner)
    _, second = services.invite(project, "a@example.com", Role.VIEWER, owner)
    refused(404, services.accept_invitation, first, PASSWORD)
    user = services.accept_invitation(second, PASSWORD)
    assert access.Actor(user).role_in(project.pk) is Role.VIEWER


def test_the_last_admin_stays(project: Project, owner: User, editor: User) -> None:
    member = Membership.objects.get(user=owner)
    refused(409, services.set_role, member, Role.EDITOR, owner)
    refused(409, services.remove_member, member, owner)
    services.set_role(Membership.objects.get(user=editor), Role.ADMIN, owner)
    services.set_role(member, Role.VIEWER, editor)
    assert access.Actor(owner).role_in(project.pk) is Role.VIEWER


def test_who_is_removed_loses_the_projects_tokens(
    project: Project, owner: User, editor: User
) -> None:
    token, text = services.create_token(editor, "ci", project=project)
    services.remove_member(Membership.objects.get(user=editor), owner)
    assert credentials.find_api_token(text) is None


def test_a_token_is_shown_once_and_stored_hashed(owner: User) -> None:
    token, text = services.create_token(owner, "laptop")
    assert text.startswith(f"cvn_{token.prefix}_")
    secret = text.split("_", 2)[2]
    assert secret not in str(ApiToken.objects.values())
    found = credentials.find_api_token(text)
    assert found is not None and found.user == owner
    assert ApiToken.objects.get().used_at is not None


@pytest.mark.parametrize("wrong", ["cvn_{prefix}_guess", "cvx{text}", "{text}x", "cvn__", "", "_"])
def test_a_wrong_token_finds_nobody(owner: User, wrong: str) -> None:
    token, text = services.create_token(owner, "laptop")
    given = wrong.format(prefix=token.prefix, text=text)
    assert credentials.find_api_token(given) is None


@pytest.mark.parametrize("why", ["revoked", "expired", "inactive"])
def test_a_dead_token_finds_nobody(owner: User, why: str) -> None:
    token, text = services.create_token(owner, "laptop")
    if why == "revoked":
        services.revoke_token(token, owner)
    elif why == "expired":
        ApiToken.objects.update(expires_at=timezone.now())
    else:
        User.objects.update(is_active=False)
    assert credentials.find_api_token(text) is None


def test_tokens_of_another_secret_key_are_worth_nothing(owner: User, settings: Any) -> None:
    _, text = services.create_token(owner, "laptop")
    settings.SECRET_KEY = "another key, after a leak of the first one"
    assert credentials.find_api_token(text) is None


def test_a_token_cannot_make_one_that_may_do_more(owner: User, project: Project) -> None:
    narrow = Api(owner, project=project)
    assert narrow("POST", "tokens", {"name": "wide"}).status_code == 403
    assert narrow("POST", "tokens", {"name": "same", "project": project.pk}).status_code == 201
    reader = Api(owner, scope="read")
    assert reader("POST", "tokens", {"name": "x", "scope": "read"}).status_code == 403


def test_a_token_makes_none_that_outlives_it(owner: User) -> None:
    end = timezone.now() + timedelta(hours=1)
    short = Api(owner, expires_at=end)
    for later in (None, (end + timedelta(seconds=1)).isoformat()):
        body = {"name": "later", "expires_at": later}
        assert short("POST", "tokens", body).status_code == 403
    body = {"name": "as long", "expires_at": end.isoformat()}
    assert short("POST", "tokens", body).status_code == 201


def test_an_end_of_a_token_needs_a_time_zone(api: Api) -> None:
    body = {"name": "ci", "expires_at": "2100-01-01T00:00:00"}
    assert api("POST", "tokens", body).status_code == 422
    assert api("POST", "tokens", {**body, "expires_at": "2100-01-01T00:00:00Z"}).status_code == 201


def test_a_token_of_a_project_reaches_no_other_token(owner: User, project: Project) -> None:
    other = Project.objects.create(team=project.team, name="Other")
    Membership.objects.create(project=other, user=owner, role=Role.ADMIN)
    wide, _ = services.create_token(owner, "wide")
    elsewhere, _ = services.create_token(owner, "elsewhere", project=other)
    same, _ = services.create_token(owner, "same", project=project)
    narrow = Api(owner, project=project)
    seen = {one["id"] for one in narrow("GET", "tokens").json()}
    assert same.pk in seen and not {wide.pk, elsewhere.pk} & seen
    for token, status in ((wide, 404), (elsewhere, 404), (same, 204)):
        assert narrow("DELETE", f"tokens/{token.pk}").status_code == status
    live = ApiToken.objects.filter(pk__in=[wide.pk, elsewhere.pk, same.pk], revoked_at=None)
    assert {token.pk for token in live} == {wide.pk, elsewhere.pk}


@pytest.mark.django_db
def test_guessing_passwords_is_slowed_down(rf: RequestFactory) -> None:
    email = f"{credentials.new_secret()[:8].lower()}@example.com"
    request = rf.post("/login/", REMOTE_ADDR=credentials.new_secret()[:12])
    User.objects.create_user(email, email, PASSWORD)
    for _ in range(throttle.PER_ACCOUNT):
        refused(401, services.sign_in, request, email, "guess")
    refused(429, services.sign_in, request, email.upper(), PASSWORD)


def test_guesses_at_an_invitation_count_as_those_at_the_sign_in(
    project: Project, owner: User, rf: RequestFactory
) -> None:
    email = f"{credentials.new_secret()[:8].lower()}@example.com"
    address = credentials.new_secret()[:12]
    User.objects.create_user(email, email, PASSWORD)
    _, secret = services.invite(project, email, Role.VIEWER, owner)
    for _ in range(throttle.PER_ACCOUNT):
        refused(422, services.accept_invitation, secret, "guess", address=address)
    refused(429, services.accept_invitation, secret, PASSWORD, address=address)
    refused(429, services.sign_in, rf.post("/login/", REMOTE_ADDR=address), email, PASSWORD)


@pytest.mark.django_db
def test_a_good_password_clears_the_count(rf: RequestFactory) -> None:
    email = f"{credentials.new_secret()[:8].lower()}@example.com"
    request = rf.post("/login/", REMOTE_ADDR=credentials.new_secret()[:12])
    user = User.objects.create_user(email, email, PASSWORD)
    for _ in range(3):
        for _ in range(throttle.PER_ACCOUNT - 1):
            refused(401, services.sign_in, request, email, "guess")
        assert services.sign_in(request, email.upper(), PASSWORD) == user


def test_names_and_limits_outside_their_bounds_are_refused(project: Project, owner: User) -> None:
    for name in ("", " ", "x" * 81):
        refused(422, services.create_token, owner, name)
        refused(422, services.create_project, project.team, name, owner)
    refused(422, services.set_display_name, owner, "x" * 81)
    for most in (0, 1001):
        refused(422, services.set_max_running, project, most, owner)
    token, _ = services.create_token(owner, f" {'x' * 80} ")
    made = services.create_project(project.team, f" {'x' * 80} ", owner)
    assert token.name == made.name == "x" * 80
    assert access.Actor(owner).role_in(made.pk) is Role.ADMIN
    refused(422, services.create_project, project.team, made.name, owner)
    assert services.set_max_running(project, 1000, owner).max_running == 1000


def test_what_is_changed_is_audited_with_its_request(api: Api, project: Project) -> None:
    api("PATCH", f"projects/{project.pk}", {"max_running": 7}, **{"X-Request-ID": "request-12345"})
    entry = AuditEntry.objects.get(action="project.max_running")
    assert (entry.request_id, entry.detail, entry.user) == (
        "request-12345",
        {"before": 2},
        User.objects.get(),
    )
    page = api("GET", f"projects/{project.pk}/audit").json()
    assert page["items"][0]["action"] == "project.max_running"


def output(*command: str, capsys: Any) -> str:
    call_command(*command)
    return str(capsys.readouterr().out.strip())


@pytest.mark.django_db
def test_the_commands_of_the_stack(capsys: Any, tmp_path: Any, settings: Any) -> None:
    assert output("ensure_admin", capsys=capsys) == "admin@caravan.local"
    link = output("login_link", capsys=capsys)
    assert link.startswith(f"{settings.CARAVAN_URL}/login/")
    assert services.use_login_link(link.split("/")[-2]).email == "admin@caravan.local"
    link = output("invite", "a@example.com", "--role", "viewer", capsys=capsys)
    assert services.find_invitation(link.split("/")[-2]).role == "viewer"
    path = tmp_path / "token.json"
    call_command("cli_token", "--file", str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    first = json.loads(path.read_text())
    assert credentials.find_api_token(first["token"]) is not None
    call_command("cli_token", "--file", str(path))
    assert credentials.find_api_token(first["token"]) is None
    assert credentials.is_sampler_token(output("sampler_token", capsys=capsys))
    call_command("prune")


def test_a_name_that_cannot_be_stored_is_refused_with_a_page(page: Client) -> None:
    answer = page.post("/account/", {"display_name": "a\0b"})
    assert answer.status_code == 422
    assert b"A value cannot be stored" in answer.content


def test_every_page_leads_to_the_account(page: Client, project: Project) -> None:
    """Who was signed in by a link sets a password there."""
    assert b'href="/account/"' in page.get(f"/projects/{project.pk}/").content


@pytest.mark.parametrize("days", ["9223372036854775808", "x", "8", "-1"])
def test_a_token_of_a_time_that_is_not_offered_is_not_made(
    page: Client, project: Project, days: str
) -> None:
    path = f"/projects/{project.pk}/team/tokens"
    answer = page.post(path, {"name": "mine", "days": days}, follow=True)
    assert b"one of the times that are offered" in answer.content
    assert not ApiToken.objects.exists()
    assert page.post(path, {"name": "mine", "days": "7"}).status_code == 200
    assert ApiToken.objects.get().expires_at is not None
