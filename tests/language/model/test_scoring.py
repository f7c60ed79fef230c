"""Reading a prompt once, sorting by length, dropping ended rows and the quick pass change no number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from language_fixtures import Policies
from tiny_model import tiny_config
from torch import Tensor

from staleharness.language import batched_generation
from staleharness.language.decoder_interface import Decoded, Request
from staleharness.language.in_process_decoders import make_decoder
from staleharness.language.model import scoring
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.fused_forward import FusedForward, supports_fused_forward
from staleharness.language.model.kv_cache import (
    MASK_VALUE,
    DistinctPrompts,
    PreallocatedCache,
    distinct_prompts,
    mask_term,
)
from staleharness.language.model.scoring import by_length
from staleharness.language.model.shared_prompt_cache import SharedPromptCache
from staleharness.language.prompt_formatting import pad_left
from staleharness.tokens.policy_interface import TokenScores
from staleharness.training.policy_buffer import PolicyBuffer

PROMPTS = [[5, 7, 9], [6, 8, 10, 12, 5, 9, 7], [11, 4]]
EACH, WIDTH = 4, 9


def batch(policy: CausalLM) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Prompts (each `EACH` times), and completions of all lengths; one of them is empty."""
    rng = np.random.default_rng(0)
    prompt, prompt_mask = pad_left([p for p in PROMPTS for _ in range(EACH)], policy.pad, policy.device)
    rows = len(prompt)
    length = np.r_[0, 1, WIDTH, rng.integers(1, WIDTH + 1, rows - 3)]
    mask = torch.from_numpy((np.arange(WIDTH) < length[:, None]).astype(np.float32))
    token = torch.from_numpy(rng.integers(3, len(policy.tokenizer), (rows, WIDTH))) * mask.long()
    return prompt, prompt_mask, token, mask


def gradients(policy: CausalLM, scored: TokenScores) -> list[Tensor]:
    assert scored.entropy is not None
    pull = torch.from_numpy(np.random.default_rng(1).normal(size=scored.logp.shape).astype(np.float32))
    policy.model.zero_grad()
    (scored.logp * pull + scored.entropy * pull.flip(0)).sum().backward()
    return [p.grad.clone() for p in policy.parameters.values() if p.grad is not None]


@pytest.mark.parametrize("versions", ["full", "lora"])
@pytest.mark.parametrize("quick", [True, False], ids=["quick", "general"])
@pytest.mark.parametrize("least", [2, 5, 32])
def test_scores_and_gradients_are_those_of_one_plain_pass(
    policy: Policies, versions: str, least: int, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = policy(versions=versions)
    with torch.no_grad():  # B begins at 0, where A has no gradient
        for i, p in enumerate(actor.parameters.values()):
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(i)))
    given = batch(actor)
    assert actor.shares_prompts and actor.fuses
    actor.shares_prompts = actor.fuses = False
    plain = actor.score(*given, entropy="gradient", norm=True)
    wanted = gradients(actor, plain)
    actor.shares_prompts, actor.fuses = True, quick
    monkeypatch.setattr(scoring, "MIN_ROWS", least)
    assert len(by_length(given[3])) == max(1, len(given[0]) // least)
    found = actor.score(*given, entropy="gradient", norm=True)
    for a, b in zip(found[:3], plain[:3], strict=True):  # those of a mixture of experts are apart
        assert a is not None and b is not None
        assert torch.allclose(a, b, atol=1e-5)
    assert len(wanted) == len(actor.parameters) and all(float(g.abs().max()) > 0 for g in wanted)
    for a, b in zip(gradients(actor, found), wanted, strict=True):
        assert float((a - b).abs().max()) <= 2e-5 * float(b.abs().max())


def test_a_prompt_is_read_once_where_rows_share_it(policy: Policies) -> None:
    actor = policy()
    prompt, mask, _, _ = batch(actor)
    found = distinct_prompts(actor.shares_prompts, prompt, mask)
    assert len(found.ids) == len(PROMPTS)
    assert found.prompt_index is not None
    assert torch.equal(found.ids[found.prompt_index], prompt)
    assert torch.equal(found.mask[found.prompt_index], mask)
    assert distinct_prompts(actor.shares_prompts, prompt[::EACH], mask[::EACH]).prompt_index is None
    assert distinct_prompts(policy(versions="lora").shares_prompts, prompt, mask).prompt_index is not None
    assert distinct_prompts(policy(gradient_checkpointing=True).shares_prompts, prompt, mask).prompt_index is not None
    padded = prompt[:1].clone()  # the same numbers, once as padding and once as tokens, are two prompts
    twice = distinct_prompts(
        actor.shares_prompts, torch.cat([padded, padded]), torch.cat([mask[:1], torch.ones_like(mask[:1])])
    )
    assert twice.prompt_index is None


def test_pieces_hold_every_row_once_sorted_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "MIN_ROWS", 3)
    length = torch.tensor([4, 1, 0, 7, 7, 2, 5, 1])
    mask = (torch.arange(8) < length[:, None]).float()
    pieces = by_length(mask)
    assert sorted(torch.cat([rows for rows, _ in pieces]).tolist()) == list(range(8))
    assert [sorted(length[rows].tolist()) for rows, _ in pieces] == [[0, 1, 1, 2], [4, 5, 7, 7]]
    assert [longest for _, longest in pieces] == [2, 7]
    assert by_length(torch.zeros(2, 4))[0][1] == 1  # an empty completion is one column of padding


def sample(actor: CausalLM, versions: int = 1) -> Decoded:
    rng = np.random.default_rng(3)
    buffer = PolicyBuffer(versions)
    noise = torch.Generator().manual_seed(2)
    for v in range(versions):
        with torch.no_grad():
            for p in actor.parameters.values():
                p.add_(0.05 * v * torch.randn(p.shape, generator=noise))
        buffer.push(actor.snapshot(v, v))
    prompt, mask = pad_left([p for p in PROMPTS * 2 for _ in range(EACH)], actor.pad, actor.device)
    rows = len(prompt)
    acting = np.repeat(np.arange(rows // EACH) % versions, EACH)[:, None]
    uniform = torch.from_numpy(rng.random((rows, 12), np.float32))
    asked = Request(prompt, mask, acting, 12, uniform, 12)
    return make_decoder("transformers", actor).complete(asked, buffer)


@pytest.mark.parametrize(
    "settings", [{}, {"versions": "lora"}, {"gradient_checkpointing": True}], ids=["full", "lora", "checkpointed"]
)
def test_sampling_is_the_same_without_any_shortcut(
    policy: Policies, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched_generation, "COMPACT_SHARE", 0.99)  # rows leave as soon as they end
    found = sample(policy(**settings), versions=2)
    assert 0 < int(found.ended.sum()) < len(found.ended)
    monkeypatch.setattr(batched_generation, "COMPACT_SHARE", 0.0)
    slow = policy(**{**settings, "gradient_checkpointing": False})
    slow.shares_prompts = slow.fuses = False
    wanted = sample(slow, versions=2)
    assert torch.equal(found.token, wanted.token)
    assert torch.equal(found.mask, wanted.mask)
    assert torch.equal(found.ended, wanted.ended)
    assert torch.allclose(found.logp, wanted.logp, atol=1e-5)


def model_of(kind: str, **changes: Any) -> Any:
    named = {"qwen2": "Qwen2", "llama": "Llama", "mistral": "Mistral"}[kind]
    sizes = {"hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 6, "num_key_value_heads": 2}
    config = tiny_config(30, named, **{**sizes, "initializer_range": 0.3, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("qwen2", {}),
        ("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 6}),
        ("llama", {"head_dim": 8}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
        ("llama", {"attention_bias": True, "mlp_bias": True}),
    ],
    ids=["qwen2", "qwen2-tied", "llama-wide-heads", "llama-linear-rope", "llama-biases"],
)
def test_fused_forward_equals_transformers(kind: str, changes: dict[str, Any]) -> None:
    model = model_of(kind, **changes)
    assert supports_fused_forward(model)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                p.uniform_(-1.0, 1.0, generator=torch.Generator().manual_seed(len(name)))
        ids = torch.randint(0, 30, (4, 7), generator=torch.Generator().manual_seed(1))
        attention = torch.ones_like(ids)
        attention[1, :3] = attention[2, :2] = 0
        positions = (attention.cumsum(1) - 1).clamp(min=0)
        wanted = model(input_ids=ids, attention_mask=attention, position_ids=positions).logits
        quick = FusedForward(model, torch.float32)
        whole = quick(ids, attention, positions, None, 7)
        cache = PreallocatedCache(model.config, 10, torch.float32)
        pieces = [
            quick(ids[:, a:b], attention[:, :b], positions[:, a:b], cache, b - a) for a, b in ((0, 4), (4, 6), (6, 7))
        ]
        some = attention[:, 4] == 1  # the prompts, of at most five tokens
        shared = SharedPromptCache(2, 3)
        shared.begin(DistinctPrompts(ids[some, :5], attention[some, :5], None), quick)
        behind = [
            quick(ids[some, a:b], attention[some, :b], positions[some, a:b], shared, b - a) for a, b in ((4, 6), (6, 7))
        ]
    tokens = attention.bool()
    assert torch.allclose(whole[tokens], wanted[tokens], atol=1e-5)
    assert torch.allclose(torch.cat(pieces, 1)[tokens], wanted[tokens], atol=1e-5)
    assert cache.get_seq_length() == 7
    assert torch.allclose(torch.cat(behind, 1), wanted[some, 4:], atol=1e-5)
    assert whole.isfinite().all()


def test_the_mask_hides_padding_and_later_tokens() -> None:
    found = mask_term(torch.tensor([[0, 1, 1, 1], [1, 1, 1, 0]]), 2, torch.float32)[:, 0] == MASK_VALUE
    assert found.int().tolist() == [[[1, 0, 0, 1], [1, 0, 0, 0]], [[0, 0, 0, 1], [0, 0, 0, 1]]]


def test_bfloat16_sampling_agrees_with_a_plain_pass(policy: Policies) -> None:
    actor = policy(dtype="bfloat16")
    found = sample(actor)
    prompt, mask = pad_left([p for p in PROMPTS * 2 for _ in range(EACH)], actor.pad, actor.device)
    exact = policy()
    with torch.no_grad():
        plain = exact.score(prompt, mask, found.token, found.mask).logp
        scored = actor.score(prompt, mask, found.token, found.mask).logp
    rounding = (scored - plain).abs().mean()
    assert 0 < rounding < 0.1
    assert (found.logp - plain).abs().mean() < 2 * rounding
    assert (found.logp - scored).abs().mean() < 2 * rounding


def test_other_architectures_have_no_fused_forward(tiny: Path) -> None:
    assert not supports_fused_forward(model_of("mistral"))
    assert not supports_fused_forward(model_of("qwen2", hidden_act="gelu"))
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    assert not supports_fused_forward(model_of("llama", rope_parameters=dynamic))
    assert not supports_fused_forward(model_of("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1))


def test_checkpointing_changes_no_bit_of_the_fused_forward(policy: Policies) -> None:
    """So a ratio at lag 0 is exactly 1 with it too, and prompts are read once in sampling, scoring and training."""
    plain, saving = policy(), policy(gradient_checkpointing=True)
    assert saving.fuses and saving.shares_prompts and saving.trains_with_cache
    given = batch(plain)
    with torch.no_grad():
        scored = saving.score(*given).logp
    trained = saving.score(*given, entropy="gradient")
    assert torch.equal(trained.logp, scored)
    assert torch.equal(trained.logp, plain.score(*given).logp)
    wanted = gradients(plain, plain.score(*given, entropy="gradient"))
    for a, b in zip(gradients(saving, trained), wanted, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_fused_gradients_with_padding_tokens_equal_transformers(tied: bool) -> None:
    """An embedding with a padding token learns nothing of that row from where it is read."""
    model = model_of("qwen2", tie_word_embeddings=tied, pad_token_id=4)
    ids = torch.tensor([[5, 4, 7, 4, 9], [4, 4, 8, 6, 5]])
    attention = torch.ones_like(ids)
    positions = attention.cumsum(1) - 1
    found = []
    for forward in (FusedForward(model, torch.float32), None):
        model.zero_grad()
        logits = (
            model(input_ids=ids, attention_mask=attention, position_ids=positions).logits
            if forward is None
            else forward(ids, attention, positions, None, 5)
        )
        (logits[..., 3:9] + 1.0).square().sum().backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    quick, plain = found
    assert quick.keys() == plain.keys()
    for name, wanted in plain.items():
        assert float((quick[name] - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max()), name
    assert bool(plain["model.embed_tokens.weight"][4].any()) is tied
