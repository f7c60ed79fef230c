"""Scores without all logits at once: the numbers and gradients of the plain computation."""

from __future__ import annotations

import pytest
import torch
from language_fixtures import Policies
from torch import Tensor

from staleharness.language.model import native_forward_backward as module
from staleharness.language.model.scoring import _statistics, chunked_scores

ROWS, TOKENS, WIDTH, VOCABULARY = 3, 5, 7, 11


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (ROWS, TOKENS, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,)
    states, weight, bias = (torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes)
    return states, weight, bias, torch.randint(VOCABULARY, (ROWS, TOKENS), generator=generator)


@pytest.mark.parametrize("chunk", [1, 4 * VOCABULARY, 1 << 28], ids=["a-row", "four-rows", "all"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_scores_and_gradients_are_those_of_all_logits(
    monkeypatch: pytest.MonkeyPatch, chunk: int, with_bias: bool
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    states, weight, bias, token = inputs()
    leaves = [states, weight, bias][: 3 if with_bias else 2]
    pull = torch.randn(ROWS, TOKENS, generator=torch.Generator().manual_seed(1))
    logits = torch.nn.functional.linear(states, weight, bias if with_bias else None)
    wanted = _statistics(logits, token, torch.ones(ROWS, TOKENS), "value", True)
    gradients = torch.autograd.grad((wanted.logp * pull).sum(), leaves)
    found = chunked_scores(states, weight, bias if with_bias else None, token, True)
    for number, other in zip(found, (wanted.logp, wanted.entropy, wanted.norm), strict=True):
        assert number is not None and other is not None
        assert torch.allclose(number, other, atol=1e-6)
    assert not found[1].requires_grad and found[2] is not None and not found[2].requires_grad
    for gradient, other in zip(torch.autograd.grad((found[0] * pull).sum(), leaves), gradients, strict=True):
        assert torch.allclose(gradient, other, atol=1e-6)


def test_gradient_agrees_with_finite_differences() -> None:
    states, weight, bias, token = inputs()
    found = chunked_scores(states, weight, bias, token, False)
    gradient = torch.autograd.grad(found[0].sum(), states)[0]
    direction = torch.randn(states.shape, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        step = 1e-2
        up, down = (chunked_scores(states + s * step * direction, weight, bias, token, False)[0] for s in (1, -1))
    difference = (up.double() - down.double()).sum() / (2 * step)
    assert float((gradient * direction).sum()) == pytest.approx(float(difference), rel=2e-3)


def test_frozen_weights_receive_no_gradient() -> None:
    states, weight, _, token = inputs()
    chunked_scores(states, weight.detach(), None, token, False)[0].sum().backward()
    assert states.grad is not None and weight.grad is None


def test_gradients_of_bfloat16_chunks_add_up_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", VOCABULARY)
    states, weight, bias, token = inputs(torch.bfloat16)
    chunked_scores(states, weight, bias, token, False)[0].sum().backward()
    exact = [x.detach().float().requires_grad_() for x in (states, weight, bias)]
    chunked_scores(*exact, token, False)[0].sum().backward()
    for rounded, other in zip((states, weight, bias), exact, strict=True):
        assert rounded.grad is not None and other.grad is not None
        error = (rounded.grad.float() - other.grad).norm() / other.grad.norm()
        assert float(error) < 5e-3  # one rounding to 8 bits of each chunk's products, not of their running sum


def test_policy_scores_in_chunks_as_it_does_at_once(policy: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    causal_lm = policy()
    prompt = torch.randint(3, 20, (2, 4), generator=torch.Generator().manual_seed(3)).repeat_interleave(3, 0)
    token = torch.randint(3, 20, (6, 5), generator=torch.Generator().manual_seed(4))
    mask = torch.ones(6, 5)
    mask[1, 3:] = 0
    results = []
    for in_chunks in (False, True):
        monkeypatch.setattr(module, "CHUNK", 64)
        causal_lm.scores_in_chunks = in_chunks
        scores = causal_lm.score(prompt, torch.ones_like(prompt), token, mask, None, "value", True)
        gradients = torch.autograd.grad(scores.logp.sum(), list(causal_lm.parameters.values()), allow_unused=True)
        results.append((scores, gradients))
    (plain, plain_gradients), (chunked, chunked_gradients) = results
    assert torch.allclose(plain.logp, chunked.logp, atol=1e-6)
    assert plain.entropy is not None and chunked.entropy is not None
    assert torch.allclose(plain.entropy, chunked.entropy, atol=1e-5)
    for a, b in zip(plain_gradients, chunked_gradients, strict=True):
        assert (a is None) == (b is None) and (a is None or torch.allclose(a, b, atol=1e-5))
