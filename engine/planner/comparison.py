"""What models cost at one length, beside each other, in every convention that tells them apart."""

from dataclasses import dataclass

from engine.planner.architecture import Architecture, LayerKind
from engine.planner.flops import Convention, Flops, generation, next_token, prefill, training


@dataclass(frozen=True)
class Costs:
    """FLOPs of one model at one length. The paper's convention is a curve of whole generations;
    a single token, a prefill and training have no counterpart in it."""

    convention: Convention
    generation: Flops
    next_token: Flops | None = None
    prefill: Flops | None = None
    training: Flops | None = None


@dataclass(frozen=True)
class Ratio:
    """FLOPs of a model as a share of another's, both in one convention."""

    convention: Convention
    generation: float
    next_token: float | None


def conventions(*models: Architecture) -> tuple[Convention, ...]:
    """Those that differ for these models: the absorbed form only where one has MLA."""
    absorbed = any(model.count(LayerKind.LATENT) for model in models)
    middle = (Convention.ABSORBED,) if absorbed else ()
    return (Convention.MULTI_HEAD, *middle, Convention.PAPER)


def costs(model: Architecture, tokens: int, convention: Convention) -> Costs:
    """What `tokens` tokens cost: decoded one by one, the last of them, in one pass, trained on."""
    whole = generation(model, tokens, convention)
    if convention is Convention.PAPER:
        return Costs(convention, whole)
    return Costs(
        convention,
        whole,
        next_token(model, tokens, convention),
        prefill(model, tokens, convention),
        training(model, tokens, convention),
    )


def ratio(model: Architecture, other: Architecture, tokens: int, convention: Convention) -> Ratio:
    """The model's FLOPs by the other's, at one length."""
    ours, theirs = costs(model, tokens, convention), costs(other, tokens, convention)
    single = None
    if ours.next_token and theirs.next_token:
        single = ours.next_token.total / theirs.next_token.total
    return Ratio(convention, ours.generation.total / theirs.generation.total, single)
