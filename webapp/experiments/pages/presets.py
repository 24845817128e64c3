"""Presets: the recipes that a project saved, found by name, opened for a launch, deleted."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from webapp.accounts import access
from webapp.accounts.models import Project, Role
from webapp.experiments import lists, services
from webapp.experiments.models import Preset
from webapp.pages import is_fragment, page_of, show

CARDS = 8  # on the Launch page


@page_of(Project.objects.all())
def listing(request: HttpRequest, project: Project) -> HttpResponse:
    """`?q=` is a part of the name; with `?cards=1` a fragment is what the Launch page shows."""
    q, cursor = request.GET.get("q", ""), request.GET.get("cursor")
    cards = bool(request.GET.get("cards")) and is_fragment(request)
    actor = access.actor_of(request)
    page = lists.list_presets(actor, project.pk, q, cursor, CARDS if cards else 50)
    context = {"section": "launch", "page": page, "q": q, "cursor": cursor, "presets": page.items}
    fragment = "experiments/launch_presets.html" if cards else "experiments/presets_table.html"
    return show(request, "experiments/presets.html", context, fragment)


@require_POST
@page_of(Preset.objects.select_related("project"), Role.EDITOR)
def delete(request: HttpRequest, preset: Preset) -> HttpResponse:
    services.delete_preset(preset, access.actor_of(request).user)
    messages.success(request, _("The preset %(name)s is deleted.") % {"name": preset.name})
    return redirect("presets", preset.project_id)
