"""Webhooks: the list of a project, and one with its deliveries."""

import json
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access, webhooks
from webapp.accounts.models import Delivery, Project, Role, Webhook
from webapp.pages import field_errors, page_of, show, tell
from webapp.paging import keyset
from webapp.problems import RefusedError

PAGE = 50


@page_of(Project.objects.all(), Role.ADMIN)
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    """With POST: a new webhook, whose secret is shown on the page that answers."""
    context: dict[str, Any] = {
        "section": "team",
        "events": webhooks.EVENTS,
        "chosen": list(webhooks.EVENTS),
        "url": "",
        "errors": {},
    }
    status = 200
    if request.method == "POST":
        context |= {"url": request.POST.get("url", ""), "chosen": request.POST.getlist("event")}
        try:
            webhook = webhooks.create_webhook(
                project,
                access.actor_of(request).user,
                request.POST.get("url", ""),
                request.POST.getlist("event"),
            )
        except RefusedError as refused:
            context["errors"], status = field_errors(refused), refused.status
        else:
            return _one(request, webhook, secret=webhooks.secret_of(webhook))
    rows = list(project.webhooks.order_by("created_at", "pk"))
    last = Delivery.objects.filter(webhook__in=rows).order_by("webhook", "-pk")
    newest = {delivery.webhook_id: delivery for delivery in last.distinct("webhook")}
    context["webhooks"] = [(row, newest.get(row.pk)) for row in rows]
    return show(request, "accounts/webhooks.html", context, status=status)


@page_of(Webhook.objects.select_related("project"), Role.ADMIN)
def one(request: HttpRequest, webhook: Webhook) -> HttpResponse:
    return _one(request, webhook)


def _one(request: HttpRequest, webhook: Webhook, secret: str = "") -> HttpResponse:
    """`secret` is shown on this one page and never again."""
    cursor = request.GET.get("cursor")
    page = keyset(webhook.deliveries.all(), ("-id",), cursor, PAGE)
    context: dict[str, Any] = {
        "section": "team",
        "webhook": webhook,
        "secret": secret,
        "deliveries": [
            (row, json.dumps(row.body, indent=2, ensure_ascii=False)) for row in page.items
        ],
        "cursor": cursor,
        "next": page.next_cursor,
    }
    return show(request, "accounts/webhook.html", context)


@require_POST
@page_of(Webhook.objects.select_related("project"), Role.ADMIN)
def change(request: HttpRequest, webhook: Webhook) -> HttpResponse:
    """One of the page's buttons: test, rotate, on, off, delete, or a delivery once more."""
    user = access.actor_of(request).user
    wanted = request.POST.get("action", "")
    try:
        if wanted == "rotate":
            return _one(request, webhook, secret=webhooks.rotate_secret(webhook, user))
        if wanted == "delete":
            webhooks.delete_webhook(webhook, user)
            messages.success(request, _("Removed. Nothing more is sent to it."))
            return redirect("webhooks", webhook.project_id)
        if wanted in ("on", "off"):
            webhooks.edit_webhook(webhook, user, enabled=wanted == "on")
        elif wanted == "test":
            webhooks.send_test(webhook)
            messages.success(request, _("On its way; reload this page to see the answer."))
        elif wanted.isdecimal():
            rows = webhook.deliveries.select_related("webhook")
            webhooks.send_again(access.found_or_404(rows.filter(pk=int(wanted)).first()))
        else:
            raise RefusedError(f"There is no action {wanted!r}.")
    except RefusedError as refused:
        tell(request, refused)
    return redirect("webhook", webhook.pk)
