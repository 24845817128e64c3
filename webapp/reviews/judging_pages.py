"""Pages on which a reviewer works: the next item, an item with its rubric, a verdict, an undo."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Role, User
from webapp.pages import page_of, show, tell
from webapp.problems import RefusedError
from webapp.reviews import queue_queries, services
from webapp.reviews.models import Queue, QueueItem
from webapp.reviews.pages import comparison_context, replay_context
from webapp.reviews.rubric import Rubric

QUEUES = Queue.objects.select_related("project", "run").prefetch_related("assignees")
ITEMS = QueueItem.objects.select_related(
    "queue__project",
    "trajectory__run__experiment",
    "trajectory__attempt",
    "trajectory__project",
    "other__run",
).prefetch_related("verdicts__reviewer", "queue__assignees")


@page_of(QUEUES, Role.EDITOR)
def go_on(request: HttpRequest, queue: Queue) -> HttpResponse:
    """By POST to the next item for this person, held for them, or back to the queue when none is
    left. Whoever only follows the address, a browser that looks ahead for example, holds nothing.
    """
    if request.method != "POST":
        return redirect("queue", queue.pk)
    after = request.GET.get("after", "")
    return _to_next(request, queue, int(after) if after.isdecimal() and len(after) < 9 else -1)


def _to_next(request: HttpRequest, queue: Queue, position: int) -> HttpResponse:
    user = access.actor_of(request).user
    item = services.claim_next(queue, user, position) if services.may_judge(queue, user) else None
    if item is not None:
        return redirect("queue_item", item.pk)
    left = queue_queries.progress_of(queue, user).left
    messages.success(
        request,
        _("Others are at work on all that is left for you; come back in a while.")
        if left and services.may_judge(queue, user)
        else _("Nothing is left for you in this queue."),
    )
    return redirect("queue", queue.pk)


@page_of(ITEMS)
def item(request: HttpRequest, found: QueueItem) -> HttpResponse:
    """The replay, or two side by side, with the rubric above. Looking at it holds nothing: the page
    claims the item once somebody sees it, where that person may judge it."""
    user = access.actor_of(request).user
    role = access.require(access.actor_of(request), found.queue.project_id)
    editor = role.rank >= Role.EDITOR.rank
    if found.other is None:
        context, status = replay_context(request, found.trajectory)
        template = "reviews/queue_item.html"
    else:
        context, status = comparison_context([found.trajectory, found.other]), 200
        template = "reviews/queue_item_two.html"
    context |= {
        "section": "review",
        "queue": found.queue,
        "item": found,
        "rubric": Rubric.model_validate(found.queue.rubric),
        "progress": queue_queries.progress_of(found.queue, user),
        "previous_item": found.queue.items.filter(position__lt=found.position)
        .order_by("-position")
        .first(),
        "next_item": found.queue.items.filter(position__gt=found.position)
        .order_by("position")
        .first(),
        "shown_verdicts": [
            one for one in queue_queries.visible_verdicts(found, user) if one.reviewer_id != user.pk
        ],
        **_standing(found, user, editor),
    }
    withdrawn = request.session.get("withdrawn")
    if withdrawn and withdrawn["item"] == found.pk and context["verdict"] is None:
        context["verdict"] = withdrawn
    return show(request, template, context, status=status)


def _standing(found: QueueItem, user: User, editor: bool) -> dict[str, Any]:
    """What this person can do here: judge, change, rule, or nothing, and why."""
    own = next((one for one in found.verdicts.all() if one.reviewer_id == user.pk), None)
    mine = editor and services.may_judge(found.queue, user)
    is_open = found.queue.closed_at is None
    rules = own.adjudicates if own else found.outcome == "disputed" and editor and is_open
    held_back = (services.refusal(found, user) or "") if mine and not rules else ""
    marks = found.marks.filter(reviewer=user).order_by("step")
    return {
        "verdict": own,
        "may_judge": editor and is_open and not held_back and bool(mine or rules),
        "rules": rules,
        "held_back": held_back,
        "may_go_on": mine and not rules,
        "next_url": reverse("queue_next", args=[found.queue_id]) + f"?after={found.position}",
        "review_data": {
            "item": found.pk,
            "queue": found.queue_id,
            "position": found.position,
            "single": found.other_id is None,
            "holds": mine and own is None and not rules and not held_back,
            "disputes": reverse("queue", args=[found.queue_id]) + "?outcome=disputed",
            "undo": reverse("queue_undo", args=[found.queue_id]),
            "marks": [{"step": one.step, "mark": one.mark, "note": one.note} for one in marks],
            "may_mark": mine and found.other_id is None,
        },
    }


@require_POST
@page_of(ITEMS, Role.EDITOR)
def verdict(request: HttpRequest, found: QueueItem) -> HttpResponse:
    """The form without its script; with it, the same goes through the API."""
    form = request.POST
    given = {name: str(form[name]) for name in form if name.startswith("score.") and form[name]}
    scores = {
        name.removeprefix("score."): int(value) if value.isdecimal() and len(value) < 9 else -1
        for name, value in given.items()
    }
    try:
        if not form.get("choice"):
            raise RefusedError(_("Say first which it is: the note alone is no verdict."))
        services.judge(
            found,
            access.actor_of(request).user,
            choice=form["choice"],
            labels=form.getlist("labels"),
            scores=scores,
            note=form.get("note", ""),
        )
    except RefusedError as refused:
        tell(request, refused)
        return redirect("queue_item", found.pk)
    return _to_next(request, found.queue, found.position)


@require_POST
@page_of(QUEUES, Role.EDITOR)
def undo(request: HttpRequest, queue: Queue) -> HttpResponse:
    """Take the verdict back that this person gave last, and open its item; the form there shows
    what it said."""
    user = access.actor_of(request).user
    last = services.last_judged(queue, user)
    try:
        if last is None:
            raise RefusedError(_("You have given no verdict in this queue yet."))
        taken = services.withdraw(last, user)
    except RefusedError as refused:
        tell(request, refused)
        return redirect("queue", queue.pk)
    request.session["withdrawn"] = {
        "item": last.pk,
        "choice": taken.choice,
        "labels": taken.labels,
        "scores": taken.scores,
        "note": taken.note,
    }
    return redirect("queue_item", last.pk)
