"""What an algorithm needs beside the policy: sampling, a critic, a reference, teachers."""

from dataclasses import dataclass

from engine.planner.architecture import Architecture


@dataclass(frozen=True)
class Needs:
    """samples: the policy samples what it is trained on; rows: sequences of one example, in pairs
    for DPO; reference: a KL term is usual, and the policy at the start is held for it; about: what
    it is for, in a sentence.
    """

    samples: bool = True
    critic: bool = False
    reference: bool = False
    teachers: bool = False
    rows: int = 1
    about: str = ""


NEEDS: dict[str, Needs] = {
    "ppo": Needs(
        critic=True,
        reference=True,
        about="A critic judges every token: credit inside long trajectories, at about twice the "
        "training memory and time.",
    ),
    "grpo": Needs(about="The group is the baseline: no critic. Clips tokens away from the policy."),
    "dapo": Needs(about="GRPO with a higher upper clip, and groups sampled until they teach."),
    "cispo": Needs(
        about="Clips weights and not tokens: rare tokens keep their gradient when data is off "
        "policy. No critic, no reference.",
    ),
    "gspo": Needs(
        about="One ratio a sequence: suits mixtures of experts, whose tokens' ratios jump."
    ),
    "rloo": Needs(about="The others of the group are the baseline; unclipped policy gradient."),
    "reinforce_pp": Needs(about="Whitened over the batch: no critic, and groups of one suffice."),
    "dpo": Needs(
        samples=False,
        rows=2,
        about="Repairs local faults, such as the form of tool calls, from pairs. The reference's "
        "log-probabilities are computed beforehand: it costs what supervised training costs.",
    ),
    "opd": Needs(
        teachers=True,
        about="Merges experts of several domains into one student on its own samples.",
    ),
    "sft": Needs(samples=False, about="Learns from trajectories that are given."),
}


@dataclass(frozen=True)
class Roles:
    """The models of a run. `critic` and `reward` have a scalar head in place of the vocabulary's;
    `reference` is as large as the actor, and free under LoRA (adapters off)."""

    actor: Architecture
    critic: Architecture | None = None
    reference: bool = False
    reward: Architecture | None = None
    teachers: tuple[Architecture, ...] = ()


def roles_of(
    algorithm: str,
    actor: Architecture,
    *,
    critic: Architecture | None = None,
    teachers: int = 1,
    reference: bool | None = None,
) -> Roles:
    """The models that an algorithm trains and asks; critic and teachers are as large as the actor
    where nothing else is said. reference: of algorithms of practice; None: as is usual."""
    needs = NEEDS[algorithm]
    practises = needs.samples and not needs.teachers
    return Roles(
        actor=actor,
        critic=(critic or actor) if needs.critic else None,
        reference=needs.reference if reference is None else practises and reference,
        teachers=(actor,) * teachers if needs.teachers else (),
    )
