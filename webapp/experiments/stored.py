"""Stored versions put into a spec: a reward scheme's definition, a dataset that a stage learns."""

from typing import Any

from pydantic import ValidationError

from engine.rewards.scheme import RewardScheme as Definition
from engine.spec import ExperimentSpec
from engine.spec.datasets import EVALUATION
from webapp.accounts.access import Actor
from webapp.accounts.models import Project
from webapp.experiments import spec_text
from webapp.experiments.lists import list_dataset_versions, list_scheme_versions, with_chosen
from webapp.experiments.models import DatasetVersion, RewardSchemeVersion
from webapp.experiments.services.schemes import definition_digest
from webapp.experiments.services.stage_datasets import LEARNS, unfit
from webapp.problems import invalid_field


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
    """The spec's text with a stage of this kind (of LEARNS) that learns from the version, or with
    evaluations that play its tasks ("evaluation").

    It is the first stage of the kind, or one that is added at the end. `alone`: the spec keeps its
    first stage and this one, as a run that starts from a checkpoint and learns nothing else.

    Raises RefusedError where a stage of the kind learns from no such rows.
    """
    if kind not in (*LEARNS, EVALUATION):
        said = f"{kind!r} reads no dataset: take {', '.join((*LEARNS, EVALUATION))}."
        raise invalid_field("as", said)
    if problem := unfit(version, kind):
        raise invalid_field("as", problem)
    if kind == EVALUATION:
        text = spec_text.remove_value(text, "evaluation.hops")
        return spec_text.set_value(text, "evaluation.dataset", version.pk)
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
    plays = LEARNS[kind] == "tasks"
    for unread in ("hops",) if plays else ("practice", "per_prompt"):
        text = spec_text.remove_value(text, f"{place}.{unread}")
    if plays and _gated(text) != set(version.categories):
        text = spec_text.remove_value(text, "pool.gate.shares")
    for name, value in fields.items():
        text = spec_text.set_value(text, f"{place}.{name}", value)
    return text


def _gated(text: str) -> set[str]:
    """The categories that the text's gate gives shares to."""
    part = spec_text.data_of(text)
    for step in ("pool", "gate", "shares"):
        part = part.get(step) if isinstance(part, dict) else None
    return set(part) if isinstance(part, dict) else set()


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


def offered(actor: Actor, project: Project, text: str) -> dict[str, dict[str, Any]]:
    """The newest stored versions for the pickers of the Launch page, with those of datasets that
    the spec's text names; `more` where there are others, which the API finds."""
    schemes = list_scheme_versions(actor, project.pk)
    kinds = ",".join(dict.fromkeys(LEARNS.values()))
    datasets = list_dataset_versions(actor, project.pk, kind=kinds)
    known = DatasetVersion.objects.filter(dataset__project=project).select_related("dataset")
    rows = with_chosen(datasets, known, _named(text))
    return {
        "rewards": {
            "items": [scheme_row(version) for version in schemes.items],
            "more": schemes.next_cursor is not None,
        },
        "datasets": {
            "items": [_dataset_row(version) for version in rows],
            "more": datasets.next_cursor is not None,
        },
    }


def _named(text: str) -> set[str]:
    """What the stages of a spec's text, and its evaluations, name as their datasets."""
    data = spec_text.data_of(text) if len(text) <= spec_text.MAX_SPEC else None
    data = data if isinstance(data, dict) else {}
    stages = data.get("stages")
    parts = [*(stages if isinstance(stages, list) else []), data.get("evaluation")]
    parts += [one.get("practice") for one in parts if isinstance(one, dict)]
    found = [one.get("dataset") for one in parts if isinstance(one, dict)]
    return {one for one in found if isinstance(one, str) and "\0" not in one}


def scheme_row(version: RewardSchemeVersion) -> dict[str, Any]:
    """What a picker shows of a version, as the API names it."""
    return {
        "id": version.pk,
        "number": version.number,
        "note": version.note,
        "scheme": {"name": version.scheme.name},
    }


def _dataset_row(version: DatasetVersion) -> dict[str, Any]:
    return {
        "id": version.pk,
        "number": version.number,
        "note": version.note,
        "rows": version.rows,
        "dataset": {"name": version.dataset.name, "kind": version.dataset.kind},
    }
