"""The value head on the hybrid model's hidden states."""

import torch
from safetensors.torch import load_file, save_file

from engine.models.hybrid import HybridConfig, HybridForCausalLM
from engine.models.value_head import ValueHead


def test_values_begin_at_zero_and_regress_to_returns() -> None:
    torch.manual_seed(0)
    model = HybridForCausalLM(HybridConfig(vocab_size=50, hidden_size=32)).copy_in(torch.bfloat16)
    ids = torch.randint(0, 50, (4, 12))
    hidden = model.hidden(ids)
    head = ValueHead(32)
    values = head(hidden)
    assert values.shape == (4, 12) and values.dtype == torch.float32
    assert not values.any()
    known = torch.randn(32)
    returns = hidden.detach().float() @ known + 0.7
    flat = torch.cat([hidden.detach().float().flatten(0, 1), torch.ones(48, 1)], dim=1)
    solution = torch.linalg.lstsq(flat, returns.flatten()).solution
    with torch.no_grad():
        head.weight.copy_(solution[None, :-1])
        head.bias.copy_(solution[-1:])
    assert torch.allclose(head(hidden), returns, atol=1e-2)


def test_its_loss_reaches_the_policy() -> None:
    torch.manual_seed(0)
    model = HybridForCausalLM(HybridConfig(vocab_size=50, hidden_size=32))
    head = ValueHead(32)
    torch.nn.init.normal_(head.weight)
    head(model.hidden(torch.arange(9)[None])).square().mean().backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in [*head.parameters(), *model.parameters()])


def test_it_is_kept_in_a_file_without_pickle(tmp_path) -> None:
    head = ValueHead(8)
    torch.nn.init.normal_(head.weight)
    save_file(head.state_dict(), tmp_path / "value.safetensors")
    other = ValueHead(8)
    other.load_state_dict(load_file(tmp_path / "value.safetensors"))
    hidden = torch.randn(3, 8)
    assert torch.equal(other(hidden), head(hidden))
