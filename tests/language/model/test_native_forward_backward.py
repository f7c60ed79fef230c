"""`learner=native`: scores and gradients of transformers in double precision, each row alone, to rounding."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from language_fixtures import Policies, Specs, error_line
from needs import needs_compiler
from torch import Tensor

from staleharness.base.cpp_library import build_library
from staleharness.errors import Diverged, UserError
from staleharness.language.model import causal_lm_policy, native_forward_backward, native_kernels
from staleharness.language.model.fused_forward import FusedForward
from staleharness.language.model.kv_cache import distinct_prompts
from staleharness.language.model.native_forward_backward import NativeForward, lay_out
from staleharness.language.model.scoring import CachingModel, score
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

pytestmark = needs_compiler
PROMPTS, COMPLETIONS, WIDTH, LENGTH = 3, 4, 7, 6

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2": {"model_type": "qwen2", "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0},
    "llama": {"model_type": "llama", "num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": False},
    "grouped": {"model_type": "llama", "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 48},
}


@pytest.fixture(params=list(CONFIGS))
def model(request: pytest.FixtureRequest) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 601}
    settings = {**sizes, "tie_word_embeddings": True, **CONFIGS[request.param]}
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))  # biases and norms too
    return model.eval()


def completions() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Prompts, their mask, tokens and their mask [B, ...]; prompts and completions of all lengths from 1 on."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.tensor([WIDTH, 1, 4]).repeat_interleave(COMPLETIONS)
    prompt_mask = (torch.arange(WIDTH) >= WIDTH - lengths[:, None]).long()
    prompt = torch.randint(1, 601, (PROMPTS, WIDTH), generator=generator).repeat_interleave(COMPLETIONS, 0)
    own = torch.tensor([LENGTH, 1, 2, 5] * PROMPTS)
    mask = (torch.arange(LENGTH) < own[:, None]).float()
    token = torch.randint(0, 601, mask.shape, generator=generator) * mask.long()
    return prompt * prompt_mask, prompt_mask, token, mask


def reference(model: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability, entropy and Σ p² [B, T] by transformers in double precision, row by row."""
    prompt, prompt_mask, token, mask = completions()
    columns: list[list[Tensor]] = [[], [], []]
    for row in range(len(token)):
        before, after = prompt[row][prompt_mask[row] > 0], token[row][mask[row] > 0]
        all_logp = model(input_ids=torch.cat([before, after])[None]).logits[0, len(before) - 1 : -1].log_softmax(-1)
        rest = torch.zeros(LENGTH - len(after)).double()
        p = all_logp.exp()
        values = all_logp.gather(1, after[:, None])[:, 0], -(p * all_logp).sum(1), p.square().sum(1)
        for column, value in zip(columns, values, strict=True):
            column.append(torch.cat([value, rest]))
    logp, entropy, square = (torch.stack(column) for column in columns)
    return logp, entropy, square


@pytest.mark.parametrize("bonus", [0.0, 0.3], ids=["", "entropy"])
@pytest.mark.parametrize("chunk", [1, 5 * 601, 1 << 28], ids=["a-row", "five-rows", "all"])
def test_scores_and_gradients_are_those_of_transformers(
    model: Any, bonus: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_forward_backward, "CHUNK", chunk)
    prompt, prompt_mask, token, mask = completions()
    pull = torch.randn(mask.shape, generator=torch.Generator().manual_seed(2)) * mask
    prompts = distinct_prompts(True, prompt, prompt_mask)
    assert prompts.prompt_index is not None
    found = NativeForward(model, torch.float32).score(prompts, token, mask, "gradient" if bonus else "value", True)
    assert found.entropy is not None and found.norm is not None and found.entropy.requires_grad == bool(bonus)
    pulls = ([found.logp, found.entropy], [pull, bonus * pull]) if bonus else ([found.logp], [pull])
    torch.autograd.backward(*pulls)
    parameters = dict(model.named_parameters())
    gradients = {name: p.grad for name, p in parameters.items()}
    model.zero_grad()
    logp, entropy, square = reference(model.double())
    (pull * (logp + bonus * entropy)).sum().backward()
    for number, other in zip((found.logp, found.entropy, found.norm), (logp, entropy, square), strict=True):
        torch.testing.assert_close(number.double(), other, atol=1e-5, rtol=1e-5)
    for name, p in parameters.items():
        gradient = gradients[name]
        assert gradient is not None and p.grad is not None
        assert float((gradient - p.grad).norm() / p.grad.norm()) < 3e-6, name


def test_bfloat16_rounds_no_more_than_torch_does(model: Any) -> None:
    """Distances of log-probabilities and gradients from double precision, beside those of torch in bfloat16."""
    prompt, prompt_mask, token, mask = completions()
    pull = torch.randn(mask.shape, generator=torch.Generator().manual_seed(2)) * mask
    columns = []
    for kind in (NativeForward, FusedForward):
        forward = kind(model, torch.bfloat16)
        policy = SimpleNamespace(shares_prompts=kind is NativeForward, trains_with_cache=True, scores_in_chunks=False)
        found = score(cast(CachingModel, policy), prompt, prompt_mask, token, mask, forward, "value", True)
        found.logp.backward(pull)
        assert found.logp.dtype == torch.float32
        gradients = {name: p.grad for name, p in model.named_parameters()}
        columns.append({"": found.logp.detach(), **gradients})
        model.zero_grad()
    logp, _, _ = reference(model.double())
    logp.backward(pull.double())
    right = {"": logp.detach(), **{name: p.grad for name, p in model.named_parameters()}}
    native, torch_ = (
        {name: float((x[name] - right[name]).norm() / right[name].norm()) for name in right} for x in columns
    )
    assert all(1e-4 < error < 0.02 for error in native.values()), native
    assert sum(native.values()) < 1.2 * sum(torch_.values()), (native, torch_)


def test_tokens_lie_without_padding_and_each_prompt_once() -> None:
    prompt, prompt_mask, token, mask = completions()
    tokens = lay_out(distinct_prompts(True, prompt, prompt_mask), token, mask)
    assert len(tokens.ids) == (7 + 1 + 4) + PROMPTS * (5 + 0 + 1 + 4)
    assert tokens.sequences[:5].tolist() == [[0, 7, 0, 0], [7, 1, 0, 0], [8, 4, 0, 0], [12, 5, 0, 7], [17, 1, 0, 7]]
    assert tokens.position[12:18].tolist() == [7, 8, 9, 10, 11, 7]
    assert tokens.outputs[:3].tolist() == [6, 7, 11]
    assert tokens.state[: LENGTH + 1].tolist() == [0, 3, 4, 5, 6, 7, 0]  # the second row: one token


def test_frozen_weights_receive_no_gradient(model: Any) -> None:
    for name, p in model.named_parameters():
        p.requires_grad_("q_proj" in name)
    prompt, prompt_mask, token, mask = completions()
    scores = NativeForward(model, torch.float32).score(
        distinct_prompts(True, prompt, prompt_mask), token, mask, "value", False
    )
    scores.logp.sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == {
        name for name, _ in model.named_parameters() if "q_proj" in name
    }


def test_a_changed_weight_is_noticed_in_the_backward_pass(model: Any) -> None:
    prompt, prompt_mask, token, mask = completions()
    scores = NativeForward(model, torch.float32).score(
        distinct_prompts(True, prompt, prompt_mask), token, mask, "value", False
    )
    with torch.no_grad():
        model.lm_head.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        scores.logp.sum().backward()


@pytest.mark.parametrize("settings", [{}, {"versions": "lora", "lora_rank": 4}], ids=["full", "lora"])
def test_a_phase_is_that_of_torch_to_rounding(spec: Specs, settings: dict[str, Any]) -> None:
    rows = []
    for learner, decoder in (("torch", "packed_weights"), ("native", "native")):
        simulation = simulation_of(spec(learner=learner, decoder=decoder, minibatches=2, **settings))
        rows.append([simulation.advance().metrics for _ in range(2)])
    for one, other in zip(*rows, strict=True):
        for key in ("reward", "rollout_length", "entropy", "tv", "grad_norm"):
            assert float(one[key]) == pytest.approx(float(other[key]), rel=1e-3, abs=1e-5), key


def test_behaviour_and_target_are_equal_without_lag(spec: Specs) -> None:
    simulation = simulation_of(spec(learner="native", decoder="native", capacity=1, minibatches=1))
    assert float(simulation.advance().metrics["tv"]) == 0.0


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("weight", ["down_proj", "q_proj", "input_layernorm", "embed_tokens"])
def test_a_number_that_is_not_finite_reaches_every_score(model: Any, weight: str, number: float) -> None:
    name, p = next((name, p) for name, p in model.named_parameters() if weight in name)
    prompt, prompt_mask, token, mask = completions()
    with torch.no_grad():
        p.view(-1)[: p.shape[-1]] = number  # of embeddings, those of padding, which are logits too where they are tied
    scores = NativeForward(model, torch.float32).score(
        distinct_prompts(True, prompt, prompt_mask), token, mask, "value", False
    )
    tied = weight != "embed_tokens" or model.config.tie_word_embeddings
    assert not tied or not torch.isfinite(scores.logp[mask > 0]).any(), name


@pytest.mark.parametrize("decoder", ["native", "packed_weights", "shared_prompts", "transformers"])
def test_a_run_whose_logits_are_no_longer_finite_has_diverged(spec: Specs, decoder: str) -> None:
    simulation = simulation_of(spec(decoder=decoder, capacity=1, minibatches=1))
    simulation.advance()
    with torch.no_grad():
        for p in simulation.learner.policy.parameters.values():
            p.fill_(1e38)
    with pytest.raises(Diverged, match=r"of sampled tokens are not finite, of versions \[1\]"):
        simulation.advance()


def test_what_it_cannot_compute_is_refused_in_one_line(
    spec: Specs, policy: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("gradient_checkpointing", True), ("device", "cuda")):
        settings: dict[str, Any] = {"learner": "native", name: value}
        assert f"learner=native has no {name}={value}" in error_line(partial(spec, **settings))
    monkeypatch.setattr(causal_lm_policy, "supports_native_forward", lambda model: False)
    assert "not this model (qwen2); use learner=torch" in error_line(partial(policy, learner="native"))


def test_it_comes_with_its_decoder_unless_another_is_named(tiny: Any) -> None:
    _, family = find_env("word-problems")
    for dtype in ("float32", "bfloat16"):
        assert family.completed({"model": str(tiny), "learner": "native", "dtype": dtype})["decoder"] == "native"
    assert family.completed({"learner": "native", "decoder": "transformers"})["decoder"] == "transformers"
    assert "decoder" not in family.completed({"learner": "torch"})


def test_a_compiler_that_fails_is_quoted(own_cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = own_cache.parent / "broken-c++"
    broken.write_text("#!/bin/sh\necho 'no such flag' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(UserError, match=r"cannot build layers.cpp, vocabulary.cpp, decode_attention.cpp: no such flag"):
        build_library(native_kernels.SOURCES, {})
