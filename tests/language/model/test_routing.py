"""Routers that are watched and forced: hand-worked gates, and layers against a computation of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from language_fixtures import Specs
from torch import Tensor

from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.routing import ANY_EXPERT, Routers, gates_over, mask_unread_tokens, routing_differs

RNG = np.random.default_rng(0)


def block(kind: str = "Qwen3Moe", normalise: bool = True) -> Any:
    """A layer of four experts, two for each token."""
    import importlib

    import transformers

    sizes = {"hidden_size": 6, "moe_intermediate_size": 5, "num_experts": 4, "num_experts_per_tok": 2}
    shared = {"shared_expert_intermediate_size": 3} if kind == "Qwen2Moe" else {}
    config = getattr(transformers, f"{kind}Config")(**sizes, **shared, norm_topk_prob=normalise)
    config._experts_implementation = "eager"
    name = kind.replace("Moe", "_moe").lower()
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    made = getattr(module, f"{kind}SparseMoeBlock")(config)
    for p in made.parameters():
        p.data = torch.from_numpy(RNG.standard_normal(tuple(p.shape)).astype(np.float32))
    return made.eval()


def dense(made: Any, x: Tensor, experts: Tensor, normalise: bool) -> np.ndarray:
    """Σ over a token's experts of gate × expert, every product written out, in float64."""
    weights = {name: p.detach().numpy().astype(np.float64) for name, p in made.named_parameters()}

    def swiglu(up: np.ndarray, down: np.ndarray, state: np.ndarray) -> np.ndarray:
        a, b = np.split(up @ state, 2)
        return np.asarray(down @ (a / (1 + np.exp(-a)) * b))

    out = []
    for state, chosen in zip(x.detach().numpy().astype(np.float64), experts.tolist(), strict=True):
        odds = np.exp(weights["gate.weight"] @ state)
        total = odds[chosen].sum() if normalise else odds.sum()
        each = [swiglu(weights["experts.gate_up_proj"][e], weights["experts.down_proj"][e], state) for e in chosen]
        y = sum(odds[e] / total * z for e, z in zip(chosen, each, strict=True))
        if "shared_expert_gate.weight" in weights:
            up = np.concatenate([weights[f"shared_expert.{name}_proj.weight"] for name in ("gate", "up")])
            share = 1 / (1 + np.exp(-weights["shared_expert_gate.weight"][0] @ state))
            y = y + share * swiglu(up, weights["shared_expert.down_proj.weight"], state)
        out.append(y)
    return np.stack(out)


def test_gates_of_a_router_of_two_experts_by_hand() -> None:
    """Logits 0 and ln 3 are probabilities of 1/4 and 3/4: forced to the first, a token's gate is 1/4, or 1 of 1."""
    logits = torch.tensor([[0.0, np.log(3.0)]], dtype=torch.float32)
    first, second, both = (torch.tensor([chosen]) for chosen in ([0], [1], [1, 0]))
    assert gates_over(logits, first, False).tolist() == [[pytest.approx(0.25)]]
    assert gates_over(logits, second, False).tolist() == [[pytest.approx(0.75)]]
    assert gates_over(logits, first, True).tolist() == [[1.0]]
    assert gates_over(logits, both, True).tolist() == [[pytest.approx(0.75), pytest.approx(0.25)]]


@pytest.mark.parametrize("kind", ["Qwen3Moe", "Qwen2Moe"])
@pytest.mark.parametrize("normalise", [True, False])
def test_forced_experts_are_the_dense_computation_over_them(kind: str, normalise: bool) -> None:
    made, x = block(kind, normalise), torch.from_numpy(RNG.standard_normal((7, 6)).astype(np.float32))
    routers = Routers(made)
    given = torch.tensor([[0, 1], [2, 3], [3, 0], [1, 2], [ANY_EXPERT, ANY_EXPERT], [0, 2], [1, 3]], dtype=torch.int16)
    with routers.watching(given[:, None]) as seen:
        forced = made(x[None])[0]
    (own,) = seen
    expected_own = (made.gate.weight @ x.T).T.topk(2).indices
    assert torch.equal(own.sort(-1).values, expected_own.sort(-1).values)
    experts = torch.where(given == ANY_EXPERT, own, given.long())
    np.testing.assert_allclose(forced.detach().numpy(), dense(made, x, experts, normalise), rtol=2e-4, atol=2e-4)
    forced.square().sum().backward()
    assert made.gate.weight.grad.abs().max() > 0, "gates are of the router's own logits"
    outside = made(x[None])[0]  # nothing stays behind
    np.testing.assert_allclose(outside.detach().numpy(), dense(made, x, own, normalise), rtol=2e-4, atol=2e-4)
    with routers.watching(own[:, None].to(torch.int16)):
        assert torch.equal(made(x[None])[0], outside), "a router's own choice, forced, has the same bits"


def test_share_of_layers_that_differ_by_hand() -> None:
    """Three tokens after a prompt of two: the first is drawn at the prompt's second token, and so on; order is
    nothing."""
    same = torch.tensor([[[[0, 1], [2, 3]]] * 5], dtype=torch.int16)  # one row, two layers
    other = same.clone()
    other[0, 0] = 9  # before the last token of the prompt: nothing is drawn there
    other[0, 1, 0] = torch.tensor([1, 0])  # another order
    other[0, 2, 1] = torch.tensor([2, 5])  # one layer of two
    other[0, 3] = torch.tensor([4, 5])  # both, and the token drawn there is padding
    other[0, 4] = 7  # the last token
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    assert routing_differs(same, other, mask).tolist() == [[0.0, 0.5, 0.0]]
    assert routing_differs(same, other, torch.ones(1, 3)).tolist() == [[0.0, 0.5, 1.0]]


def test_experts_behind_the_last_token_are_not_kept() -> None:
    experts = torch.ones((2, 5, 1, 2), dtype=torch.int16)
    kept = mask_unread_tokens(experts, torch.tensor([[0, 1], [1, 1]]), torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]))
    assert kept[:, :, 0, 0].tolist() == [[ANY_EXPERT, 1, 1, 1, ANY_EXPERT], [1, 1, ANY_EXPERT, ANY_EXPERT, ANY_EXPERT]]


def test_scores_go_through_the_given_experts(mixture: Specs, tiny_mixture: Any) -> None:
    """Its own choice changes no bit, another one does; what it reports is its own by the model's own account."""
    policy = CausalLM(str(tiny_mixture), mixture())
    prompt, token = torch.tensor([[5, 6, 7], [5, 6, 7]]), torch.tensor([[8, 9], [10, 11]])
    arguments = prompt, torch.ones_like(prompt), token, torch.ones(token.shape)
    with torch.no_grad():
        plain = policy.score(*arguments)
        logits = policy.model(torch.cat([prompt, token], 1), output_router_logits=True).router_logits
        assert plain.experts is not None and plain.experts.shape == (2, 5, 2, 2)
        for layer, each in enumerate(logits):
            own = each.topk(2).indices.view(2, 5, 2).sort(-1).values
            assert torch.equal(plain.experts[:, :, layer].long().sort(-1).values, own)
        again = policy.score(*arguments, experts=plain.experts)
        moved = policy.score(*arguments, experts=(plain.experts + 1) % 6)
    assert torch.equal(again.logp, plain.logp)
    assert (moved.logp - plain.logp).abs().max() > 1e-3
