"""Stored versions put into a spec: a reward scheme's definition, a dataset that a stage learns."""

from typing import Any

from pydantic import ValidationError

from engine.rewards.scheme import RewardScheme as Definition
from engine.spec import ExperimentSpec
from webapp.accounts.models import Project
from webapp.experiments import spec_text
from webapp.experiments.models import DatasetVersion, RewardSchemeVersion
from webapp.experiments.services.schemes import definition_digest
from webapp.experiments.services.stage_datasets import LEARNS, unfit
from webapp.problems import invalid_field

MOST_OFFERED = 200


def definition_of(version: RewardSchemeVersion) -> dict[str, Any]:
    """As a person would write it; what another Caravan stored is given as it was."""
    try:
        found = Definition.model_validate(version.definition)
    except ValidationError:
        return version.definition  # type: ignore[no-any-return]
    return found.model_dump(mode="json", exclude_none=True)


def with_reward(text: str, version: RewardSchemeVersion) -> str:
    """The spec's text with the scheme of this version."""
    return spec_text.set_block(text, "reward", definition_of(version))


def with_dataset(text: str, version: DatasetVersion, kind: str, alone: bool = False) -> str:
    """The spec's text with a stage of this kind ("sft", "dpo") that learns from the version.

    It is the first stage of the kind, or one that is added at the end. `alone`: the spec keeps its
    first stage and this one, as a run that starts from a checkpoint and learns nothing else.

    Raises RefusedError where a stage of the kind learns from no such rows.
    """
    if problem := unfit(version, kind):
        raise invalid_field("as", problem)
    stages = (spec_text.data_of(text) or {}).get("stages") or []
    if alone:
        for index in reversed(range(1, len(stages))):
            text = spec_text.remove_value(text, f"stages.{index}")
        stages = stages[:1]
    kinds = [stage.get("kind") if isinstance(stage, dict) else "" for stage in stages]
    fields = {"source": "dataset", "dataset": version.pk} if kind == "sft" else {}
    fields = fields or {"dataset": version.pk}
    if kind not in kinds:
        return spec_text.set_value(text, f"stages.{len(stages)}", {"kind": kind, **fields})
    place = f"stages.{kinds.index(kind)}"
    for unread in ("practice", "per_prompt"):
        text = spec_text.remove_value(text, f"{place}.{unread}")
    for name, value in fields.items():
        text = spec_text.set_value(text, f"{place}.{name}", value)
    return text


def learner_of(version: DatasetVersion) -> str:
    """The kind of stage that learns from such rows; empty where none does."""
    return next((kind for kind, held in LEARNS.items() if held == version.dataset.kind), "")


def scheme_version(project: Project, spec: ExperimentSpec) -> RewardSchemeVersion | None:
    """The stored version that the spec's rewards are; None where a launch would store them."""
    rows = RewardSchemeVersion.objects.filter(
        scheme__project=project,
        scheme__name__iexact=spec.reward.name,
        digest=definition_digest(spec.reward),
    )
    return rows.select_related("scheme").order_by("-number").first()


def offered(project: Project) -> dict[str, list[dict[str, Any]]]:
    """The newest stored versions, for the pickers of the Launch page."""
    schemes = RewardSchemeVersion.objects.filter(scheme__project=project)
    datasets = DatasetVersion.objects.filter(
        dataset__project=project, dataset__kind__in=LEARNS.values()
    )
    return {
        "rewards": [
            {"id": pk, "name": name, "number": number, "note": note}
            for pk, name, number, note in schemes.order_by("-created_at", "-number").values_list(
                "pk", "scheme__name", "number", "note"
            )[:MOST_OFFERED]
        ],
        "datasets": [
            {"id": pk, "name": name, "kind": kind, "number": number, "rows": rows}
            for pk, name, kind, number, rows in datasets.order_by(
                "-created_at", "-number"
            ).values_list("pk", "dataset__name", "dataset__kind", "number", "rows")[:MOST_OFFERED]
        ],
    }
