"""The game of the rare fork, played and learnt by our hybrid model through our losses.

A prompt is one of a few symbols; the policy then writes `steps` actions. One action, the fork, is
rare in the cold start and pays 1 where it comes among the first `early` actions; the actions after
them pay 0.5 in all, by the share that the prompt's key asks for. 1.5 is the most.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engine.algorithms.advantages import group_normalised
from engine.algorithms.losses import LOSSES
from engine.algorithms.tokens import Tokens
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.spec.algorithms import Bound, Loss

FORK = 0
RARE = -3.0  # log-probability below which a token is called rare: 5%


@dataclass(frozen=True)
class Game:
    """`prior`: probability of the fork at each step after the cold start. Widths of the model."""

    prior: float
    actions: int = 12
    prompts: int = 8
    steps: int = 5
    early: int = 2
    width: int = 32
    experts: int = 1
    cold_start: int = 120


class Rollout(NamedTuple):
    """prompts [rows]; actions, behaviour (log-probs), advantages [rows, steps]; rewards [rows]."""

    prompts: Tensor
    actions: Tensor
    behaviour: Tensor
    advantages: Tensor
    rewards: Tensor


# Losses [rows, steps] from log-probs under the policy, a part of a rollout, and which rows it is.
Objective = Callable[[Tensor, Rollout, Tensor], Tensor]


def policy(game: Game, draw: torch.Generator, seed: int) -> HybridForCausalLM:
    """A lightning and a softmax layer, taught to play at random with a rare fork."""
    torch.manual_seed(seed)
    config = HybridConfig(
        vocab_size=game.actions + game.prompts,
        hidden_size=game.width,
        num_attention_heads=2,
        intermediate_size=2 * game.width,
        layer_types=["linear_attention", "full_attention"],
        num_local_experts=game.experts,
        tie_word_embeddings=False,
    )
    model = HybridForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    wanted = torch.full((game.actions,), (1 - game.prior) / (game.actions - 1))
    wanted[FORK] = game.prior
    for _ in range(game.cold_start):
        prompts = torch.randint(game.prompts, (64,), generator=draw)
        actions = torch.multinomial(wanted, 64 * game.steps, True, generator=draw)
        found = all_logprobs(model, game, prompts, actions.view(64, -1))
        optimizer.zero_grad()
        loss = -(wanted * found).sum(-1).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def all_logprobs(model: HybridForCausalLM, game: Game, prompts: Tensor, actions: Tensor) -> Tensor:
    """Log-probs [rows, steps, actions] of every action at each step, after those before it."""
    logits = model.logits(model.hidden(contexts(game, prompts, actions)))
    return torch.log_softmax(logits[..., : game.actions], dim=-1)


def contexts(game: Game, prompts: Tensor, actions: Tensor) -> Tensor:
    """Ids [rows, steps] of what is known before each action: the prompt and the actions so far."""
    return torch.cat([prompts[:, None] + game.actions, actions[:, :-1]], dim=1)


def logprobs(model: HybridForCausalLM, game: Game, prompts: Tensor, actions: Tensor) -> Tensor:
    """Log-probs [rows, steps] of the actions."""
    found = all_logprobs(model, game, prompts, actions)
    return found.gather(2, actions[..., None]).squeeze(2)


def rewards(game: Game, prompts: Tensor, actions: Tensor) -> Tensor:
    """[rows], from 0 to 1.5."""
    forked = (actions[:, : game.early] == FORK).any(1)
    late = torch.arange(game.early, game.steps)
    key = 1 + (prompts[:, None] * 5 + late * 3) % (game.actions - 1)
    return forked + 0.5 * (actions[:, game.early :] == key).float().mean(1)


@torch.no_grad()
def play(
    model: HybridForCausalLM, game: Game, groups: int, size: int, draw: torch.Generator
) -> Rollout:
    """`groups` prompts, each played `size` times, with group-normalised advantages."""
    prompts = torch.randint(game.prompts, (groups,), generator=draw).repeat_interleave(size)
    actions = torch.zeros(len(prompts), 0, dtype=torch.long)
    for step in range(game.steps):
        blank = torch.zeros(len(prompts), 1, dtype=torch.long)
        found = all_logprobs(model, game, prompts, torch.cat([actions, blank], 1))[:, step]
        drawn = torch.multinomial(found.exp(), 1, generator=draw)
        actions = torch.cat([actions, drawn], 1)
    found = rewards(game, prompts, actions)
    advantages = torch.tensor(
        [group_normalised(group) for group in found.view(groups, -1).tolist()]
    )
    return Rollout(
        prompts,
        actions,
        logprobs(model, game, prompts, actions),
        advantages.view(-1, 1).expand(-1, game.steps),
        found,
    )


def frozen(model: HybridForCausalLM) -> HybridForCausalLM:
    return copy.deepcopy(model).requires_grad_(False)


class Update(NamedTuple):
    """What one update showed.

    rare, silent: early forks of positive advantage that the behaviour policy played with less than
    5%, and those among them without any gradient; kl: k3 of KL(behaviour || policy); norm: of the
    gradient, before any clipping.
    """

    rare: int
    silent: int
    loss: float
    kl: float
    norm: float


def learn(
    model: HybridForCausalLM,
    optimizer: torch.optim.Optimizer,
    game: Game,
    played: Rollout,
    objective: Objective,
    parts: int,
    draw: torch.Generator,
) -> list[Update]:
    """One pass over a rollout in `parts` updates of as many rows each."""
    updates = []
    for rows in torch.randperm(len(played.prompts), generator=draw).chunk(parts):
        part = Rollout(*(values[rows] for values in played))
        found = logprobs(model, game, part.prompts, part.actions)
        leaf = found.detach().requires_grad_()
        loss = objective(leaf, part, rows).sum() / leaf.numel()
        (gradient,) = torch.autograd.grad(loss, leaf)
        optimizer.zero_grad()
        found.backward(gradient)  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.get_total_norm(
            p.grad for p in model.parameters() if p.grad is not None
        )
        optimizer.step()
        moved = leaf.detach() - part.behaviour
        early = torch.arange(game.steps) < game.early
        rare = (part.actions == FORK) & early & (part.behaviour < RARE) & (part.advantages > 0)
        updates.append(
            Update(
                rare=int(rare.sum()),
                silent=int((gradient[rare] == 0).sum()),
                loss=float(loss.detach()),
                kl=float((torch.expm1(moved) - moved).mean()),
                norm=float(norm),
            )
        )
    return updates


def policy_losses(
    loss: Loss, bounds: Mapping[Bound, float], current: Tensor, anchor: Tensor, advantages: Tensor
) -> Tensor:
    """What a policy loss of ours says of each token; all [rows, steps], rows are trajectories."""
    mean, steps = (current.detach() - anchor).mean(1), current.shape[1]
    tokens = Tokens(
        logprobs=current.flatten(),
        anchor=anchor.flatten(),
        advantages=advantages.flatten(),
        mean_log_ratio=mean.repeat_interleave(steps),
        bounds=bounds,
    )
    return LOSSES[loss](tokens).losses.view_as(current)


def optimizer_of(model: HybridForCausalLM, lr: float) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)


def entropy(model: HybridForCausalLM, game: Game, played: Rollout) -> float:
    """Mean entropy in nats over the steps of a rollout."""
    with torch.no_grad():
        found = all_logprobs(model, game, played.prompts, played.actions)
    return float(-(found.exp() * found).sum(-1).mean())


def first_at_least(curve: Sequence[float], threshold: float) -> int:
    """Rollouts played until the reward first reached a threshold; all of them if it never did."""
    return next((i for i, reward in enumerate(curve) if reward >= threshold), len(curve))
