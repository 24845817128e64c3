"""Log-probabilities in chunks against torch's log-softmax over the whole."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.models import logprobs as module
from engine.models.logprobs import token_logprobs


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("chunk", [3, 7, 1000])
def test_values_and_gradients_equal_the_whole(
    monkeypatch: pytest.MonkeyPatch, temperature: float, chunk: int
) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", chunk)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(17, 8, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn(30, 8, generator=generator, dtype=torch.float64).requires_grad_()
    targets = torch.randint(0, 30, (17,), generator=generator)
    scale = torch.randn(17, generator=generator, dtype=torch.float64)

    log_p = torch.log_softmax(hidden @ weight.T / temperature, dim=-1)
    expected = log_p.gather(1, targets[:, None])[:, 0]
    gradients = torch.autograd.grad((expected * scale).sum(), (hidden, weight))

    actual, entropy, likeliest = token_logprobs(hidden, weight, targets, temperature)
    assert torch.equal(likeliest, log_p.argmax(-1) == targets)
    assert torch.allclose(actual, expected, atol=1e-12)
    assert torch.allclose(entropy, -(log_p.exp() * log_p).sum(-1), atol=1e-12)
    assert not entropy.requires_grad
    for ours, theirs in zip(
        torch.autograd.grad((actual * scale).sum(), (hidden, weight)), gradients, strict=True
    ):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_hidden_states_in_bf16_meet_an_fp32_head() -> None:
    hidden = torch.randn(5, 8).bfloat16().requires_grad_()
    weight = torch.randn(30, 8).requires_grad_()
    actual, *_ = token_logprobs(hidden, weight, torch.arange(5))
    expected = torch.log_softmax(hidden.float() @ weight.T, dim=-1)[range(5), range(5)]
    assert actual.dtype == torch.float32
    assert torch.allclose(actual, expected, atol=1e-6)
    actual.sum().backward()
    assert hidden.grad is not None and hidden.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("limit", [1, 100, 1 << 24])
def test_tokens_times_vocabulary_never_exists(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """torch is asked for every matrix that is made: none has more logits than the limit."""
    monkeypatch.setattr(module, "CHUNK_LOGITS", limit)
    monkeypatch.setattr(module, "CHUNK_ROWS", 50)
    vocabulary = 30
    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            for made in out if isinstance(out, tuple) else (out,):
                is_head = made.shape == (8, vocabulary)
                if made.shape[-1:] == (vocabulary,) and not is_head:
                    largest = max(largest, made.numel())
            return out

    hidden = torch.randn(200, 8).requires_grad_()
    weight = torch.randn(vocabulary, 8).requires_grad_()
    targets = torch.randint(0, vocabulary, (200,))
    with Sizes():
        token_logprobs(hidden, weight, targets).logprobs.sum().backward()
    assert vocabulary <= largest <= max(vocabulary, min(limit, 50 * vocabulary))
