"""What the Launch page begins with: a recipe, a preset, a run or a checkpoint, and the stored
versions that its address puts in."""

from dataclasses import dataclass, field

from django.http import HttpRequest
from django.utils.translation import gettext as _

from engine.spec.datasets import EVALUATION
from webapp.accounts import access
from webapp.accounts.models import Project
from webapp.experiments import stored
from webapp.experiments.frozen_spec import asked_text
from webapp.experiments.models import Checkpoint, DatasetVersion, Preset, RewardSchemeVersion, Run
from webapp.experiments.recipes import Recipe, recipe, recipes
from webapp.problems import RefusedError

DEFAULT_RECIPE = "kg-search"
NAMED = ("checkpoint", "parent", "clone", "preset", "recipe")


@dataclass
class Start:
    """`kind` and `name` say which card is chosen; `told` what was put in, `problems` what not."""

    kind: str
    name: str
    text: str
    label: str = ""  # the preset's name
    parent: Run | None = None
    checkpoint: Checkpoint | None = None
    told: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def start_of(request: HttpRequest, project: Project) -> Start:
    """As the address says: `recipe`, `preset`, `clone` (a run) or `checkpoint`, then `reward` (a
    scheme's version) and `dataset` (a version) `as` a kind of stage, or as evaluation.

    Raises Http404 for ids of nothing that the person can see."""
    found = _begun(request, project)
    _put_reward(request, project, found)
    _put_dataset(request, project, found)
    return found


def sorted_recipes() -> list[Recipe]:
    return sorted(recipes(), key=lambda item: (item.name != DEFAULT_RECIPE, item.name))


def _begun(request: HttpRequest, project: Project) -> Start:
    given = {name: request.POST.get(name) or request.GET.get(name) for name in NAMED}
    actor = access.actor_of(request)
    if wanted := given.get("checkpoint"):
        rows = Checkpoint.objects.filter(run__project=project)
        rows = rows.select_related("run__project", "run__experiment")
        checkpoint = access.get(rows, wanted, actor)
        parent = checkpoint.run
        return Start("clone", parent.pk, asked_text(parent), "", parent, checkpoint)
    if wanted := given.get("parent") or given.get("clone"):
        runs = Run.objects.filter(project=project).select_related("experiment")
        parent = access.get(runs, wanted, actor)
        if parent.is_external:
            found = _recipe(None)
            said = _("%(name)s is of a trainer of its own, whose config is no spec of Caravan's.")
            found.problems.append(said % {"name": parent.name})
            return found
        return Start("clone", parent.pk, asked_text(parent), "", parent)
    if wanted := given.get("preset"):
        preset = access.get(Preset.objects.filter(project=project), wanted, actor)
        return Start("preset", preset.pk, preset.text, preset.name)
    return _recipe(given["recipe"])


def _recipe(wanted: str | None) -> Start:
    """The first one where none, or none that there is, is wanted."""
    names = [item.name for item in sorted_recipes()]
    wanted = wanted or (names[0] if names else "")
    text = recipe(wanted).text if wanted in names else "name: my-run\nstages: []\n"
    return Start("recipe", wanted, text)


def _put_reward(request: HttpRequest, project: Project, found: Start) -> None:
    wanted = request.GET.get("reward")
    if not wanted:
        return
    rows = RewardSchemeVersion.objects.filter(scheme__project=project).select_related("scheme")
    version = access.get(rows, wanted, access.actor_of(request))
    found.text = stored.with_reward(found.text, version)
    told = {"name": version.scheme.name, "n": version.number}
    found.told.append(_("Its rewards are version %(n)s of %(name)s.") % told)


def _put_dataset(request: HttpRequest, project: Project, found: Start) -> None:
    wanted = request.GET.get("dataset")
    if not wanted:
        return
    rows = DatasetVersion.objects.filter(dataset__project=project).select_related("dataset")
    version = access.get(rows, wanted, access.actor_of(request))
    kind = request.GET.get("as") or stored.learner_of(version) or "sft"
    alone = found.checkpoint is not None
    try:
        found.text = stored.with_dataset(found.text, version, kind, alone)
    except RefusedError as refused:
        found.problems.append(refused.detail)
        return
    told = {"name": version.dataset.name, "n": version.number, "kind": kind, "rows": version.rows}
    said = (
        _("The run is judged by version %(n)s of %(name)s, %(rows)s rows.")
        if kind == EVALUATION
        else _("A stage of kind %(kind)s learns from version %(n)s of %(name)s, %(rows)s rows.")
    )
    found.told.append(said % told)
