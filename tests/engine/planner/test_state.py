"""Bytes of training state against the published table and against counts made by hand."""

import pytest

from engine.planner import parameters, read_config, shipped, sized
from engine.planner.configs import ConfigError
from engine.planner.needs import Roles
from engine.planner.phases import Setup, static_state
from engine.planner.sizes import Size, size_of
from engine.planner.state import OptimizerKind, frozen, trained

GB = 1e9
SHARDS = 8
ADAPTERS = 0.004  # of the parameters: rank 16 on every matrix is 0.2 to 0.5%

# GB a GPU on 8 GPUs, by billions of parameters and optimizer: alone, with a reference, PPO with a
# critic as large, reference and reward model, PPO with critic and reward model of 1B.
TABLE = [
    (7.6, "adamw", (15.2, 17.1, 34.2, 19.3)),
    (7.6, "adamw8", (5.7, 7.6, 15.2, 8.6)),
    (7.6, "adamw_cpu", (3.8, 5.7, 11.4, 6.4)),
    (34.4, "adamw", (68.8, 77.4, 154.8, 79.6)),
    (34.4, "adamw8", (25.8, 34.4, 68.8, 35.4)),
    (34.4, "adamw_cpu", (17.2, 25.8, 51.6, 26.5)),
    (70.6, "adamw", (141.2, 158.9, 317.7, 161.1)),
    (70.6, "adamw8", (52.9, 70.6, 141.2, 71.6)),
    (70.6, "adamw_cpu", (35.3, 52.9, 105.9, 53.7)),
]
# LoRA: alone (a reference is free), PPO on a shared base, PPO with a base of its own.
LORA = [(7.6, (2.0, 2.0, 3.9)), (34.4, (8.9, 9.2, 17.8)), (70.6, (18.2, 18.8, 36.4))]
HOST = [(7.6, 91), (34.4, 413), (70.6, 847)]


def of(billions: float) -> Size:
    total = billions * GB
    return Size(total, 0.9 * total, ADAPTERS * total)


def a_gpu(size: float) -> float:
    return size / SHARDS / GB


@pytest.mark.parametrize(("billions", "optimizer", "row"), TABLE)
def test_it_is_the_published_table(
    billions: float, optimizer: OptimizerKind, row: tuple[float, ...]
) -> None:
    alone, other = trained(of(billions), optimizer).device, frozen(of(billions))
    critic, judge = trained(of(1), optimizer).device, frozen(of(1))
    found = (alone, alone + other, 2 * alone + 2 * other, alone + other + critic + judge)
    for mine, published in zip(found, row, strict=True):
        assert a_gpu(mine) == pytest.approx(published, abs=0.051)


@pytest.mark.parametrize(("billions", "row"), LORA)
def test_it_is_the_published_table_of_adapters(
    billions: float, row: tuple[float, float, float]
) -> None:
    alone = trained(of(billions), "lora").device
    shared = alone + trained(of(billions), "lora", shared_base=True).device
    for mine, published in zip((alone, shared, 2 * alone), row, strict=True):
        assert a_gpu(mine) == pytest.approx(published, abs=0.051)


@pytest.mark.parametrize(("billions", "host"), HOST)
def test_an_optimizer_on_the_host_takes_the_published_ram(billions: float, host: float) -> None:
    assert trained(of(billions), "adamw_cpu").host / GB == pytest.approx(host, abs=1)


@pytest.mark.parametrize(
    ("optimizer", "bytes_each"), [("adamw", 16), ("adamw8", 6), ("adamw8_master", 10), ("muon", 12)]
)
def test_a_matrix_parameter_takes_what_is_said(optimizer: OptimizerKind, bytes_each: int) -> None:
    state = trained(Size(1000, 1000, 4), optimizer)
    assert state.device == 1000 * bytes_each
    assert state.host == 0


def test_muon_leaves_the_rest_to_adamw() -> None:
    assert trained(Size(1000, 600, 0), "muon").device == 600 * 12 + 400 * 16


def test_adapters_are_counted_matrix_by_matrix() -> None:
    """Qwen2.5-7B at rank 16: q and out 3584 x 3584, k and v 512 x 3584, MLP 18944 x 3584."""
    sides = 2 * (3584 + 3584) + 2 * (512 + 3584) + 3 * (18944 + 3584)
    assert size_of(shipped("qwen2.5-7b"), 16).adapters == 28 * 16 * sides


def test_matrices_of_a_dense_model_are_all_but_tables_norms_and_biases() -> None:
    model = shipped("yi-34b")
    norms = (2 * 60 + 1) * 7168
    tables = 2 * 64000 * 7168
    assert size_of(model, 0).matrices == parameters(model).total - norms - tables


def test_the_state_of_a_run_adds_its_roles() -> None:
    yi, small = shipped("yi-34b"), shipped("qwen2.5-1.5b")
    n, m = parameters(yi).total, parameters(small).total
    roles = Roles(yi, critic=small, reference=True, reward=small, teachers=(yi, yi))
    states = static_state(roles, Setup(optimizer="adamw"))
    assert {name: state.device for name, state in states.items()} == {
        "actor": 16 * n,
        "critic": 16 * m,
        "reference": 2 * n,
        "reward model": 2 * m,
        "teachers": 4 * n,
    }
    lora = static_state(roles, Setup(optimizer="lora"))
    assert "reference" not in lora  # the actor without its adapters
    assert lora["teachers"].device < 0.02 * n  # adapters on one base
    own = static_state(roles, Setup(optimizer="lora", shared_base=False))
    assert own["teachers"].device == 4 * n


@pytest.mark.parametrize("wanted", [0.35e9, 1e9, 3e9, 34e9, 66e9, 400e9])
def test_a_model_of_a_size_has_about_that_size(wanted: float) -> None:
    model = sized(wanted)
    assert parameters(model).total == pytest.approx(wanted, rel=0.06)
    assert "layers" in model.source


@pytest.mark.parametrize("wanted", [0, 1e6, 3e12, float("nan")])
def test_a_size_beyond_reason_is_refused(wanted: float) -> None:
    with pytest.raises(ConfigError, match=r"0\.1 billion to 2 trillion can"):
        sized(wanted)


def test_experts_all_have_matrices_and_adapters() -> None:
    config = {
        "model_type": "qwen3_moe",
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 256,
        "moe_intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 1000,
    }
    size = size_of(read_config(config, "moe"), rank=2)
    assert size.matrices == 2 * 64 * 16 * (4 + 2) + 3 * 64 * 32 * 8
    assert size.adapters == 2 * (2 * (64 + 64) + 2 * (64 + 32) + 8 * 3 * (64 + 32))
