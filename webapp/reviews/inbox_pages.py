"""The inbox page, its count in the navigation, and the suspects of a reward scheme."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.experiments.models import RewardScheme
from webapp.pages import page_of, show
from webapp.problems import RefusedError
from webapp.reviews import inbox as inboxes
from webapp.reviews import services, suspects


def frame(request: HttpRequest) -> dict[str, Any]:
    """What the navigation shows, asked for only where the navigation is drawn."""
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return {}
    return {"inbox_count": SimpleLazyObject(lambda: inboxes.count_of(user))}


@login_required
def inbox(request: HttpRequest) -> HttpResponse:
    """`?show=unread` leaves out what was read."""
    user = access.actor_of(request).user
    unread_only, cursor = request.GET.get("show") == "unread", request.GET.get("cursor")
    try:
        found = inboxes.inbox(user, unread_only=unread_only, cursor=cursor)
    except RefusedError:
        cursor, found = None, inboxes.inbox(user, unread_only=unread_only)
    context = {"section": "inbox", "inbox": found, "cursor": cursor, "unread_only": unread_only}
    return show(request, "reviews/inbox.html", context)


@require_POST
@login_required
def read(request: HttpRequest) -> HttpResponse:
    """Marks the notices with the given ids as read, or all; `next` names one to open."""
    user = access.actor_of(request).user
    ids = request.POST.getlist("notice") or None
    services.mark_read(user, ids, request.POST.get("read") != "no")
    return redirect("inbox")


@login_required
def notice(request: HttpRequest, pk: str) -> HttpResponse:
    """To the comment that a notice tells of; the notice is read."""
    user = access.actor_of(request).user
    notices = inboxes.notices_of(user).select_related("comment")
    found = access.get(notices, pk, access.actor_of(request))
    services.mark_read(user, [found.pk])
    replay = reverse("replay", args=[found.comment.trajectory_id])
    return redirect(f"{replay}#comment={found.comment_id}")


@page_of(RewardScheme.objects.select_related("project"))
def scheme_suspects(request: HttpRequest, scheme: RewardScheme) -> HttpResponse:
    """`?version=` narrows the list to one version; a fragment of the scheme's page."""
    given, cursor = request.GET.get("version", ""), request.GET.get("cursor")
    version = int(given) if given.isdecimal() and len(given) < 9 else None
    try:
        page = suspects.page_of(scheme, version, cursor)
    except RefusedError:
        cursor, page = None, suspects.page_of(scheme, version)
    context = {
        "section": "rewards",
        "scheme": scheme,
        "versions": suspects.counts_of(scheme),
        "version": version,
        "page": page,
        "cursor": cursor,
    }
    return show(request, "reviews/suspects.html", context, "reviews/suspects_part.html")
