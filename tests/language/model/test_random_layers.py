"""Layers that are random in training mode, in which transformers checkpoints: none draws anything here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from language_fixtures import error_line
from tiny_model import write_model

from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.spec import LanguageSpec

HEADS = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
KINDS: dict[str, dict[str, Any]] = {
    "OPT": {"ffn_dim": 24, "word_embed_proj_dim": 16, "dropout": 0.5, "layerdrop": 0.5},
    "GPTBigCode": {**HEADS, "attn_pdrop": 0.5},
    "Mixtral": {**EXPERTS, "router_jitter_noise": 0.5},
    "Bloom": {"n_layer": 2, "n_head": 2, "attention_dropout": 0.5, "hidden_dropout": 0.5},
}


def checkpointing(folder: Path) -> CausalLM:
    spec = LanguageSpec(env="gsm8k", algorithm="ppo_clip", model=str(folder), gradient_checkpointing=True)
    return CausalLM(str(folder), spec)


@pytest.mark.parametrize("kind", KINDS)
def test_no_layer_draws_anything_in_training_mode(tmp_path: Path, kind: str) -> None:
    write_model(tmp_path, kind=kind, **KINDS[kind])
    policy = checkpointing(tmp_path)
    ids = torch.arange(12).reshape(2, 6)
    arguments = (ids, torch.ones_like(ids), torch.arange(6).expand(2, 6), None, 6)
    first, second = (policy.forward(*arguments).detach() for _ in range(2))
    assert policy.model.training
    with torch.no_grad():
        evaluation = policy.forward(*arguments)
    assert torch.equal(first, second)
    assert torch.allclose(first, evaluation, atol=1e-6)


def test_a_model_that_draws_its_experts_is_refused(tmp_path: Path) -> None:
    """PhiMoE's router does, whatever its settings; its threshold stays, which holds in evaluation, too."""
    write_model(tmp_path, kind="Phimoe", **EXPERTS, router_jitter_noise=0.5, input_jitter_noise=0.5)
    state = torch.get_rng_state()
    line = error_line(lambda: checkpointing(tmp_path))
    assert "(phimoe) draws at random; give gradient_checkpointing=false" in line
    assert torch.equal(torch.get_rng_state(), state)
    model = CausalLM(str(tmp_path), LanguageSpec(env="gsm8k", algorithm="ppo_clip", model=str(tmp_path))).model
    assert (model.config.router_jitter_noise, model.config.input_jitter_noise) == (0.5, 0.0)


def test_a_model_that_is_another_in_training_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.phi.modeling_phi import PhiMLP

    write_model(tmp_path, kind="Phi")
    checkpointing(tmp_path)
    forward = PhiMLP.forward
    monkeypatch.setattr(PhiMLP, "forward", lambda layer, x: forward(layer, x) * (1 + layer.training))
    assert "(phi) gives other logits; give" in error_line(lambda: checkpointing(tmp_path))
