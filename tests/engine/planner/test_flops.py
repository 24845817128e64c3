"""FLOPs against published figures and against sums over tokens and chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.planner import (
    Architecture,
    Convention,
    Layer,
    Lightning,
    Mlp,
    Softmax,
    generation,
    next_token,
    parameters,
    prefill,
    shipped,
    softmax_twin,
    training,
)

M1, R1, QWEN = shipped("minimax-m1"), shipped("deepseek-r1"), shipped("qwen3-235b-a22b")
TWIN = shipped("minimax-m1-softmax")


@pytest.mark.parametrize(
    ("model", "total"), [(M1, 456), (R1, 671), (QWEN, 235)], ids=["M1", "R1", "Qwen3"]
)
def test_a_model_has_the_parameters_that_are_published(model: Architecture, total: int) -> None:
    """MiniMax-M1 (2506.13585), DeepSeek-V3 (2412.19437), Qwen3 (2505.09388)."""
    assert round(parameters(model).total / 1e9) == total


def test_active_parameters_are_those_published() -> None:
    """MiniMax counts the layers alone (45.9B); "37B" and "22B" have the head in them."""
    assert round(parameters(M1).active / 1e9, 1) == 45.9
    for model, published in ((R1, 37), (QWEN, 22)):
        found = parameters(model)
        assert round((found.active + found.head) / 1e9) == published


@pytest.mark.parametrize(
    ("model", "coefficient", "softmax_layers"),
    [(R1, 3_497_986, 1.0), (QWEN, 2_310_145, 1.0), (M1, 196_609, 8 / 10)],
    ids=["R1", "Qwen3", "M1"],
)
def test_the_paper_convention_has_the_coefficients_of_its_figure(
    model: Architecture, coefficient: int, softmax_layers: float
) -> None:
    """Fitted to the curves of 2506.13585, figure 1, which draws M1 with 8 softmax layers of 10."""
    tokens = 100_000
    found = prefill(model, tokens, Convention.PAPER).softmax * softmax_layers / tokens**2
    assert found == pytest.approx(coefficient, rel=1e-5)


@pytest.mark.parametrize("convention", [Convention.MULTI_HEAD, Convention.ABSORBED])
@pytest.mark.parametrize("model", [M1, R1, TWIN], ids=lambda model: model.name)
def test_generating_costs_the_sum_of_its_tokens(
    model: Architecture, convention: Convention
) -> None:
    whole = generation(model, 40, convention)
    one_by_one = [next_token(model, context, convention).total for context in range(1, 41)]
    assert whole.total == pytest.approx(sum(one_by_one), rel=1e-12)


@pytest.mark.parametrize(
    ("model", "convention", "pair"),
    # Per (query, key) pair: layers * heads * 2 * (key + value dims).
    [
        (R1, Convention.MULTI_HEAD, 61 * 128 * 2 * (192 + 128)),
        (R1, Convention.ABSORBED, 61 * 128 * 2 * (576 + 512)),
        (M1, Convention.MULTI_HEAD, 10 * 64 * 2 * (128 + 128)),
        (M1, Convention.ABSORBED, 10 * 64 * 2 * (128 + 128)),
    ],
)
def test_a_token_costs_one_pair_more_than_the_one_before(
    model: Architecture, convention: Convention, pair: int
) -> None:
    later, earlier = (next_token(model, context, convention) for context in (5001, 5000))
    assert later.total - earlier.total == pytest.approx(pair, rel=1e-6)


def test_lightning_costs_the_same_at_any_context() -> None:
    assert next_token(M1, 1).lightning == next_token(M1, 10**6).lightning == 70 * 64 * 5 * 128**2


@given(tokens=st.integers(1, 300), chunk=st.integers(1, 64))
def test_lightning_costs_the_sum_of_its_chunks(tokens: int, chunk: int) -> None:
    heads, dim = 3, 8
    model = Architecture("m", 24, 10, (Layer(Lightning(heads, dim, chunk), Mlp(16)),), True)
    forward = again = 0
    for start in range(0, tokens, chunk):
        size = min(chunk, tokens - start)
        scores = 2 * size * dim * size
        product_with_v = 2 * size * size * dim
        update = read_out = 2 * size * dim * dim
        forward += heads * (scores + product_with_v + update + read_out)
        again += heads * scores
    assert prefill(model, tokens).lightning == forward
    kept = training(model, tokens, recompute_scores=False).lightning
    assert kept == 3 * forward
    assert training(model, tokens).lightning == kept + again


def test_training_recomputes_one_product_of_five_in_softmax() -> None:
    forward = prefill(TWIN, 1000)
    assert training(TWIN, 1000).softmax == 3.5 * forward.softmax
    assert training(TWIN, 1000, recompute_scores=False).total == 3 * forward.total


def test_the_twin_has_the_hybrids_own_softmax_layer_everywhere() -> None:
    assert {layer.mixer for layer in TWIN.layers} == {Softmax(64, 8, 128)}
    assert [layer.mlp for layer in TWIN.layers] == [layer.mlp for layer in M1.layers]
    # Attention of the hybrid at 8 times the length costs what the twin's costs (7 layers to 1).
    assert next_token(M1, 2**20).softmax == next_token(TWIN, 2**17).softmax


def test_a_model_without_softmax_has_no_twin() -> None:
    model = Architecture("linear", 24, 10, (Layer(Lightning(3, 8, 8), Mlp(16)),), True)
    with pytest.raises(ValueError, match="linear has no softmax layer"):
        softmax_twin(model)
