"""Sampling from the hybrid: speed beside transformers' `generate`, log-probs beside the trainer's.

One process and one thread, rivals in turns, ratios of least CPU times. The peer is `generate`, both
on transformers' own MiniMax class with our weights and on our model; the faster one counts.
"""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import MiniMaxForCausalLM

from bench._timing import interleaved_min_cpu_seconds
from bench.figures import Figure, Options
from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.hybrid.minimax import minimax_config, minimax_weights
from engine.models.logprobs import token_logprobs
from engine.rollout.sampler import SampledTurn
from engine.rollout.torch_sampler import TorchSampler

VOCABULARY, WIDTH, HEADS, MLP_WIDTH = 1000, 128, 4, 256
NEW_TOKENS = 64
BATCH, SHORT_PROMPT = 64, 16
GROUP, LONG_PROMPT = 16, 2048
ROUNDS = 5
PEER_BLOCK = 64  # of the peer's lightning loop; its default of 256 is slower here
NEVER = -1  # no token ends a turn: all rivals sample the same number


def run(options: Options) -> list[Figure]:
    del options
    torch.manual_seed(0)
    model = _model(conv_width=0)
    short = torch.randint(VOCABULARY, (BATCH, SHORT_PROMPT))
    long = torch.randint(VOCABULARY, (1, LONG_PROMPT))
    return [
        _speed("tokens_per_second_batch_64", "at least 1.5", model, short, 1),
        _speed("tokens_per_second_group_16", "at least 4", model, long, GROUP),
        *(_difference(temperature) for temperature in (1.0, 0.7)),
    ]


def _model(conv_width: int) -> HybridForCausalLM:
    config = HybridConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        intermediate_size=MLP_WIDTH,
        layer_types=["linear_attention", "full_attention"] * 2,
        conv_width=conv_width,
    )
    model = HybridForCausalLM(config)
    model.train(False)
    return model


def _speed(metric: str, bar: str, model: HybridForCausalLM, prompts: Tensor, copies: int) -> Figure:
    theirs = _peer(model)
    calls: dict[str, Callable[[], object]] = {
        "sampler": lambda: sample(model, prompts, copies),
        "MiniMaxForCausalLM": lambda: generate(theirs, prompts, copies),
        "HybridForCausalLM": lambda: generate(model, prompts, copies),
    }
    times = interleaved_min_cpu_seconds(calls, ROUNDS)
    rows = len(prompts) * copies
    rates = {name: rows * NEW_TOKENS / seconds for name, seconds in times.items()}
    generators = ("MiniMaxForCausalLM", "HybridForCausalLM")
    best = max(generators, key=lambda name: rates[name])
    ratio = rates["sampler"] / rates[best]
    shown = ", ".join(f"{name} {rates[name]:,.0f}" for name in generators)
    setup = (
        f"{len(prompts)} prompts of {prompts.shape[1]:,} tokens x {copies}, {NEW_TOKENS} new "
        f"tokens each, width {WIDTH}, 4 layers, fp32: {rates['sampler']:,.0f} tokens/s; "
        f"generate on {shown}"
    )
    return Figure("decode", metric, ratio, "x", bar, f"transformers generate, {best}", ratio, setup)


def _peer(model: HybridForCausalLM) -> MiniMaxForCausalLM:
    """transformers' own class with the weights of our model."""
    config = minimax_config(model.config)
    config.block_size = PEER_BLOCK
    theirs = MiniMaxForCausalLM(config)  # type: ignore[no-untyped-call]
    theirs.load_state_dict(minimax_weights(model.config, model.state_dict()), strict=False)
    theirs.train(False)
    return theirs


def sample(model: HybridForCausalLM, prompts: Tensor, copies: int) -> None:
    """Opens every prompt `copies` times, and samples until all turns have ended."""
    sampler = TorchSampler(
        model,
        end_id=NEVER,
        capacity=len(prompts) * copies,
        max_tokens=prompts.shape[1] + NEW_TOKENS,
        seed=0,
    )
    for prompt in prompts.tolist():
        sampler.open(prompt, copies, NEW_TOKENS, 1.0)
    ended = 0
    while ended < len(prompts) * copies:
        ended += len(sampler.step())


@torch.no_grad()
def generate(model: torch.nn.Module, prompts: Tensor, copies: int) -> None:
    ids = model.generate(  # type: ignore[operator]
        prompts,
        do_sample=True,
        top_k=0,
        min_new_tokens=NEW_TOKENS,
        max_new_tokens=NEW_TOKENS,
        num_return_sequences=copies,
        pad_token_id=0,
    )
    assert ids.shape == (len(prompts) * copies, prompts.shape[1] + NEW_TOKENS)


def _difference(temperature: float) -> Figure:
    """Sampled log-probs against the trainer's, over turns, a context edit and new weights."""
    model, newer = _model(conv_width=3), _model(conv_width=3)
    policies = [copy.deepcopy(model), newer]
    sampler = TorchSampler(
        model, end_id=NEVER, capacity=2 * GROUP, max_tokens=LONG_PROMPT, seed=0, version=0
    )
    contexts: dict[int, list[int]] = {}
    for tokens in (700, 40):  # the one prompt is held once, the other one copied
        prompt = torch.randint(VOCABULARY, (tokens,)).tolist()
        for sequence in sampler.open(prompt, GROUP, NEW_TOKENS, temperature):
            contexts[sequence] = prompt
    turns, seen = [_turn(sampler, contexts)], torch.randint(VOCABULARY, (15,)).tolist()
    marks = {sequence: (sampler.mark(sequence), context) for sequence, context in contexts.items()}
    _extend(sampler, contexts, seen)
    turns.append(_turn(sampler, contexts))
    for sequence, (mark, context) in marks.items():
        sampler.rewind(sequence, mark, seen[:5], NEW_TOKENS)
        contexts[sequence] = [*context, *seen[:5]]
    turns.append(_turn(sampler, contexts))
    _extend(sampler, contexts, seen)
    for _ in range(NEW_TOKENS // 2):
        sampler.step()
    sampler.load_weights(1, newer.state_dict())
    turns.append(_turn(sampler, contexts))
    worst = max(_worst(policies, *one, temperature) for turn in turns for one in turn)
    tokens = sum(len(turn.ids) for of_all in turns for _, turn in of_all)
    return Figure(
        "decode",
        f"logprob_difference_temperature_{temperature}",
        worst,
        "",
        "at most 0.0001",
        setup=f"{tokens:,} tokens, fp32: prompts of 700 and 40 tokens x {GROUP}, four turns, back "
        "to the first one's end, new weights inside the last; top-p is refused",
    )


def _turn(
    sampler: TorchSampler, contexts: dict[int, list[int]]
) -> list[tuple[list[int], SampledTurn]]:
    """Finishes the turns of all sequences; each with the context before it."""
    found: list[tuple[list[int], SampledTurn]] = []
    while len(found) < len(contexts):
        for turn in sampler.step():
            found.append((contexts[turn.sequence], turn))
            contexts[turn.sequence] = [*contexts[turn.sequence], *turn.ids]
    return found


def _extend(sampler: TorchSampler, contexts: dict[int, list[int]], seen: list[int]) -> None:
    for sequence, context in contexts.items():
        sampler.extend(sequence, seen, NEW_TOKENS)
        contexts[sequence] = [*context, *seen]


@torch.no_grad()
def _worst(
    policies: Sequence[HybridForCausalLM],
    context: list[int],
    turn: SampledTurn,
    temperature: float,
) -> float:
    """The largest difference to the trainer's log-prob under the version that each token names."""
    ids = torch.tensor([*context, *turn.ids])
    expected = []
    for policy in policies:
        hidden = policy.hidden(ids[None])[0, len(context) - 1 : -1]
        targets = ids[len(context) :]
        expected.append(token_logprobs(hidden, policy.head_weight, targets, temperature).logprobs)
    versions = torch.tensor(turn.versions)
    of_version = torch.stack(expected).gather(0, versions[None])[0]
    return float((of_version - torch.tensor(turn.logprobs)).abs().max())
