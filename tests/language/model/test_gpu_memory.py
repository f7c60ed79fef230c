"""Arithmetic of how many completions fit, and one line for running out of memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from language_fixtures import Policies, Specs
from raising import raising
from tiny_model import tiny_config

from staleharness.errors import OOM
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.gpu_memory import (
    _available,
    advice,
    completion_bytes,
    decoding_bytes,
    equal_parts,
    explain_oom,
    fit_to_memory,
    max_completions,
    reading_bytes,
    version_bytes,
)
from staleharness.language.spec import LanguageSpec
from staleharness.running.worker import describe
from staleharness.training.loop import simulation_of

SIZES = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14}
HALF_BILLION = tiny_config(151_936, **SIZES, num_key_value_heads=2, tie_word_embeddings=True)
PAPER = {**LanguageSpec.presets["paper"], "hyper": {}, "gradient_checkpointing": False}


def paper(**settings: Any) -> LanguageSpec:
    return LanguageSpec.from_dict({"env": "gsm8k", "algorithm": "ppo_clip", "model": "x", **PAPER, **settings})


def test_logits_dominate_and_checkpointing_saves_the_rest() -> None:
    logits = 24 * 512 * 151_936
    plain, saved = (completion_bytes(paper(gradient_checkpointing=c), HALF_BILLION) for c in (False, True))
    assert logits < saved < 1.2 * logits
    # one layer, by hand: 1024 tokens, 24 bytes of float32 and 16 of bfloat16 per unit of width, 10 per inner unit
    # and what is added to attention, of 7 queries to each of keys in bfloat16, beside two that it is made from
    beside = logits + 9 * 512 * 1024 * 2
    assert plain - beside == 24 * 1024 * (24 * 896 + 16 * 896 + 10 * 4864)
    assert saved - beside == 1024 * (24 * 896 + 16 * 896 + 10 * 4864) + 24 * 1024 * 4 * 896


def test_completions_share_what_gradients_and_optimiser_leave() -> None:
    each = completion_bytes(paper(), HALF_BILLION)

    def policy_of_size(numbers: int, whole: int, **settings: Any) -> Any:
        config = SimpleNamespace(config=HALF_BILLION)
        return SimpleNamespace(
            spec=paper(**settings), model=config, size=numbers, total_size=whole, scores_in_chunks=False
        )

    full, lora = policy_of_size(494_000_000, 494_000_000), policy_of_size(9_000_000, 494_000_000)
    for wanted in (1, 7, 100):
        room = int((wanted + 0.9) * each / 0.8)
        for policy, beside in (
            (full, (12 + 4) * 494_000_000),
            (lora, 12 * 9_000_000 + 4 * 494_000_000),  # weights joined all the same
        ):
            assert max_completions(policy, _available(policy, room + beside)) == wanted
    assert max_completions(full, 0) == 1  # one has to be tried
    more = policy_of_size(494_000_000, 494_000_000, gradient_checkpointing=True)
    assert max_completions(more, 60 * 2**30) > max_completions(full, 60 * 2**30)


def test_a_round_of_the_paper_trains_at_once_on_80_gb() -> None:
    """256 completions of a 0.5B model, with 16 versions resident: without its logits, its pieces' layers alone."""
    free = 79 * 2**30 - 4 * 494_000_000  # less the weights
    spec = paper(gradient_checkpointing=True, capacity=16, dtype="bfloat16")
    resident: list[int] = []
    policy: Any = SimpleNamespace(
        spec=spec,
        model=SimpleNamespace(config=HALF_BILLION),
        size=494_000_000,
        total_size=494_000_000,
        scores_in_chunks=True,
        shares_prompts=True,
        device=torch.device("cuda"),
        resident=SimpleNamespace(capacity=16),
        keep_resident=resident.append,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 79 * 2**30))
        patch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
        patch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
        patch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)
        fit_to_memory(policy)
    assert resident == [16]
    assert policy.micro_batch == 256
    # a completion: two heads' keys and values of 24 layers in bfloat16, and the logits of one token
    # a version: matrices in bfloat16, the tied embedding in float32 too
    row, version = 24 * 2 * 2 * 64 * 1024 * 2 + 16 * 151_936, 2 * 494_000_000 + 4 * 896 * 151_936
    room = 0.8 * (free - (12 + 4) * 494_000_000) - 16 * version
    assert policy.decode_batch == (room - reading_bytes(spec, HALF_BILLION)) // row


def test_the_estimate_is_no_less_than_what_a_training_pass_saves(policy: Policies) -> None:
    for checkpointing in (False, True):
        actor = policy(prompt_tokens=12, completion_tokens=20, gradient_checkpointing=checkpointing)
        rows, saved = 3, {}
        prompt = torch.randint(3, 20, (rows, 12), generator=torch.Generator().manual_seed(0))
        token = torch.randint(3, 20, (rows, 20), generator=torch.Generator().manual_seed(1))
        weights = {p.untyped_storage().data_ptr() for p in actor.model.parameters()}

        def keep(x: torch.Tensor, saved: Any = saved, weights: Any = weights) -> torch.Tensor:
            if x.untyped_storage().data_ptr() not in weights:
                saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            actor.score(prompt, torch.ones_like(prompt), token, torch.ones(rows, 20))
        held = sum(saved.values()) / rows
        estimate = completion_bytes(actor.spec, actor.model.config)
        assert held < estimate < 6 * held + 24 * 20 * actor.model.config.vocab_size


@pytest.mark.parametrize(
    ("rows", "most", "size"), [(256, 300, 256), (256, 100, 86), (256, 64, 64), (256, 1, 1), (7, 3, 3), (7, 6, 4)]
)
def test_pieces_are_as_few_and_as_equal_as_can_be(rows: int, most: int, size: int) -> None:
    assert equal_parts(rows, most) == size <= most
    assert -(-rows // size) == -(-rows // most)


def test_the_micro_batch_on_a_cpu_is_as_set(policy: Policies) -> None:
    for actor, size in ((policy(), 0), (policy(micro_batch=3), 3)):
        fit_to_memory(actor)
        assert actor.micro_batch == size


def test_the_micro_batch_follows_from_free_gpu_memory(policy: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    actor = policy()
    actor.device, actor.fuses = torch.device("cuda"), False  # no version stays on the device
    each = completion_bytes(actor.spec, actor.model.config)
    beside = 12 * actor.size
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 * each + beside, 10**12))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 5 * each)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 2 * each)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)
    fit_to_memory(actor)
    assert actor.micro_batch == 4  # 0.8 × 7 = 5.6 fit; 12 rows in 3 pieces of 4
    share = (2 * each + 4 * each + beside) / 10**12  # of which 2 are taken: 0.8 × 4 = 3.2 fit, 12 rows in 4 pieces
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: share)
    fit_to_memory(actor)
    assert actor.micro_batch == 3


def test_resident_versions_and_sampling_share_the_free_memory(
    policy: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, spec = policy().model.config, policy().spec
    each, one = decoding_bytes(spec, config), version_bytes(spec, config, policy().total_size)
    reading = reading_bytes(spec, config)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)

    def fit(free: int, **settings: Any) -> CausalLM:
        actor = policy(capacity=4, **settings)
        actor.device = torch.device("cuda")
        beside = (12 + 8) * actor.size  # gradients and AdamW's state, joined weights and their gradients
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(beside + free / 0.8), 10**12))
        fit_to_memory(actor)
        return actor

    roomy = fit(10**9)
    assert roomy.parallel_versions == 4  # no more than there are
    assert roomy.decode_batch == (10**9 - reading - 4 * one) // each
    assert roomy.micro_batch == 12
    rows = spec.sequences * each
    assert fit(int(reading + rows + 2.5 * one)).parallel_versions == 2
    in_flight = fit(int(reading + rows + 2.5 * one), lag="inflight:2")  # a version is there once
    assert in_flight.parallel_versions == 2
    none = fit(int(one))
    assert none.parallel_versions == 1 and none.resident is None and none.decode_batch >= 1
    assert fit(10**9, decode_batch=7, micro_batch=5).decode_batch == 7
    assert fit(10**9, decode_batch=7, micro_batch=5).micro_batch == 5
    on_cpu = policy(capacity=4)
    fit_to_memory(on_cpu)
    assert (on_cpu.micro_batch, on_cpu.decode_batch, on_cpu.resident) == (0, 0, None)


def test_sampling_that_runs_out_of_memory_names_its_own_setting(policy: Policies) -> None:
    actor = policy(decode_batch=64)
    with pytest.raises(OOM, match=r"64 completions at once; SET=decode_batch=32"), explain_oom(actor, True):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")


def test_out_of_memory_names_the_setting_to_change(
    spec: Specs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = simulation_of(spec(micro_batch=6))
    error = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
    monkeypatch.setattr(run.learner, "train", raising(error))
    with pytest.raises(OOM) as caught:
        run.advance()
    failure = describe(caught.value, tmp_path)
    assert failure["class"] == "OOM"
    assert failure["message"].endswith("SET=micro_batch=3")
    assert "6 completions" in failure["message"]


def test_the_advice_goes_on_where_there_is_nothing_left_to_halve() -> None:
    assert advice(paper(), 0).endswith("SET=micro_batch=128")
    assert advice(paper(), 1).endswith("SET=gradient_checkpointing=true")
    assert "SET=completion_tokens=256" in advice(paper(gradient_checkpointing=True), 1)


def test_other_errors_pass_as_they_are(policy: Policies) -> None:
    with pytest.raises(RuntimeError, match="something else"), explain_oom(policy()):
        raise RuntimeError("something else")
