"""Divergences to a teacher against the formulas written naively, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.algorithms.distillation import FLOOR, divergence, one_token_advantages
from engine.models import logprobs as module


def case(rows: int, vocabulary: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The teacher is wider than the student."""
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    return normal(rows, 5), normal(vocabulary, 5), normal(rows, 7), normal(vocabulary, 7)


def naive(
    hidden: Tensor,
    head: Tensor,
    teacher_hidden: Tensor,
    teacher_head: Tensor,
    beta: float,
    t: float,
) -> Tensor:
    q = torch.softmax(hidden @ head.T / t, dim=-1)
    p = torch.softmax(teacher_hidden @ teacher_head.T / t, dim=-1)

    def kl(a: Tensor, b: Tensor) -> Tensor:
        return (a * (a / b).log()).sum(-1)

    if beta == 1:
        return kl(q, p)
    if beta == 0:
        return kl(p, q)
    m = beta * p + (1 - beta) * q
    return beta * kl(p, m) + (1 - beta) * kl(q, m)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 9),
    vocabulary=st.integers(2, 13),
    beta=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    seed=st.integers(0, 99),
)
def test_it_is_the_formula_and_has_its_gradient(rows, vocabulary, beta, temperature, seed):
    hidden, head, *teacher = case(rows, vocabulary, seed)
    weights = torch.randn(rows, dtype=torch.float64)
    found = []
    for formula in (
        lambda h, w: divergence(h, w, *teacher, beta=beta, temperature=temperature).values,
        lambda h, w: naive(h, w, *teacher, beta, temperature),
    ):
        h, w = hidden.clone().requires_grad_(), head.clone().requires_grad_()
        values = formula(h, w)
        (values * weights).sum().backward()
        found.append((values.detach(), h.grad, w.grad))
    for ours, expected in zip(*found, strict=True):
        assert torch.allclose(ours, expected, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_its_gradient_passes_gradcheck_whatever_the_chunks(beta, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ROWS", 2)
    hidden, head, *teacher = case(5, 6, 0)
    hidden.requires_grad_(), head.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda h, w: divergence(h, w, *teacher, beta=beta, temperature=1.7).values, (hidden, head)
    )


def test_two_outcomes_have_the_published_numbers():
    """p = (.7, .3) of the student, (.5, .5) of the teacher: KL .082283, its gradient .177933."""
    logit = torch.tensor([[0.7 / 0.3]], dtype=torch.float64).log().requires_grad_()
    head = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    even = torch.zeros(1, 1, dtype=torch.float64)
    reverse = divergence(logit, head, even, head, beta=1.0)
    reverse.values.sum().backward()
    assert float(reverse.values.detach()) == pytest.approx(0.082283, abs=1e-6)
    assert float(logit.grad) == pytest.approx(0.177933, abs=1e-6)
    logit.grad = None
    divergence(logit, head, even, head, beta=0.0).values.sum().backward()
    assert float(logit.grad) == pytest.approx(0.2, abs=1e-6)


def test_a_student_that_is_its_teacher_has_no_distance_and_no_gradient():
    hidden, head, *_ = case(4, 9, 3)
    hidden.requires_grad_()
    for beta in (0.0, 0.4, 1.0):
        found = divergence(hidden, head, hidden, head, beta=beta)
        assert torch.allclose(found.values, torch.zeros(4, dtype=torch.float64), atol=1e-12)
        assert bool(found.agree.all()) and float(found.entropy_gap.abs().max()) < 1e-12
        (gradient,) = torch.autograd.grad(found.values.sum(), hidden)
        assert float(gradient.abs().max()) < 1e-12


def test_it_tells_agreement_and_the_gap_of_entropies():
    hidden, head, *teacher = case(50, 4, 1)
    found = divergence(hidden, head, *teacher)
    q = torch.distributions.Categorical(logits=hidden @ head.T)
    p = torch.distributions.Categorical(logits=teacher[0] @ teacher[1].T)
    assert torch.equal(found.agree, q.probs.argmax(-1) == p.probs.argmax(-1))
    assert 0 < int(found.agree.sum()) < 50
    assert torch.allclose(found.entropy_gap, q.entropy() - p.entropy())


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_tokens_that_one_of_both_never_says_cost_much_and_break_nothing(beta):
    """A token whose logit is minus infinity, first on the teacher's side, then on the student's."""
    head = torch.tensor([[1.0], [2.0], [float("-inf")]], dtype=torch.float64)
    other = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.float64)
    for student, teacher in ((other, head), (head, other), (head, head)):
        hidden, weight = one.clone().requires_grad_(), student.clone()
        values = divergence(hidden, weight, one, teacher, beta=beta).values
        assert bool(values.isfinite().all()) and float(values.detach()) <= -FLOOR
    hidden = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    values = divergence(hidden + 1, other, one, head, beta=beta).values
    values.sum().backward()
    assert bool(hidden.grad.isfinite().all())
    likelier = torch.tensor([-1.0, -2.0]), torch.tensor([-2.0, float("-inf")])
    assert one_token_advantages(*likelier).tolist() == [-1.0, FLOOR + 2]


def test_the_one_token_form_is_the_reverse_kl_on_average():
    """Summed over all tokens by the student's probabilities: same value, same gradient."""
    hidden, head, *teacher = case(1, 6, 2)
    hidden.requires_grad_()
    expected = divergence(hidden, head, *teacher)
    (gradient,) = torch.autograd.grad(expected.values.sum(), hidden)
    log_q = torch.log_softmax(hidden @ head.T, dim=-1)[0]
    log_p = torch.log_softmax(teacher[0] @ teacher[1].T, dim=-1)[0]
    advantages = one_token_advantages(log_q, log_p)
    q = log_q.exp().detach()
    assert float((q * advantages).sum()) == pytest.approx(-float(expected.values.detach()))
    (estimate,) = torch.autograd.grad(-(q * advantages * log_q).sum(), hidden)
    assert torch.allclose(estimate, gradient)


def test_it_refuses_what_does_not_fit():
    hidden, head, teacher_hidden, teacher_head = case(3, 6, 0)
    with pytest.raises(ValueError, match="student knows 6 tokens and the teacher 5"):
        divergence(hidden, head, teacher_hidden, teacher_head[:5])
    with pytest.raises(ValueError, match="hidden has 3 rows and teacher_hidden 2"):
        divergence(hidden, head, teacher_hidden[:2], teacher_head)
    with pytest.raises(ValueError, match="beta is 1.5"):
        divergence(hidden, head, teacher_hidden, teacher_head, beta=1.5)
