"""The estimate of memory against what passes allocate on the device `meta`, where tensors have sizes and no numbers."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from language_fixtures import Policies
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from staleharness.language.decoder_interface import Request
from staleharness.language.model import gpu_memory, native_forward_backward, scoring
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.fused_forward import FusedForward
from staleharness.language.model.gpu_memory import (
    completion_bytes,
    decoding_bytes,
    max_completions,
    reading_bytes,
    training_bytes,
)
from staleharness.language.model.kv_cache import DistinctPrompts
from staleharness.language.spec import LanguageSpec
from staleharness.language.static_decoding import StaticBatch

ROWS, PROMPT, COMPLETION = 8, 96, 160
META = torch.device("meta")
SHAPE: dict[str, Any] = {
    "vocab_size": 4000,
    "hidden_size": 112,
    "intermediate_size": 608,
    "num_hidden_layers": 6,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}


class Peak(TorchDispatchMode):
    """Bytes of the tensors that are made inside and still there: now, and at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.seen = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and (storage := tensor.untyped_storage()) not in self.seen:
                self.seen[storage] = size = storage.nbytes()
                self.now += size
                weakref.finalize(storage, self.free, size)
        self.most = max(self.most, self.now)
        return out

    def free(self, size: int) -> None:
        self.now -= size


class FusedKernel(torch.autograd.Function):
    """Tensors that a fused kernel keeps: its input, its output, and one number per query."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        out = torch.empty_like(query)
        ctx.save_for_backward(query, keys, values, mask, out, query.new_empty(query.shape[:3], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor | None, ...]:
        return *(torch.empty_like(x) for x in ctx.saved_tensors[:3]), None


@pytest.fixture
def fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """On `meta` torch has the math kernel alone."""
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda q, k, v, mask, **_: FusedKernel.apply(q, k, v, mask))


def on_meta(policy: Policies, monkeypatch: pytest.MonkeyPatch, heads: int = 14, **settings: Any) -> CausalLM:
    """A policy of that shape without numbers; rows of one prompt, and all of them of one length."""
    actor = policy(prompt_tokens=PROMPT, completion_tokens=COMPLETION, **settings)
    with META:
        config = transformers.Qwen2Config(**{**SHAPE, "num_attention_heads": heads})
        actor.model = transformers.AutoModelForCausalLM.from_config(config)
    actor.device, actor.parameters = META, dict(actor.model.named_parameters())
    which = torch.zeros(ROWS, dtype=torch.int64, device=META)
    for module in ("staleharness.language.model.scoring", "staleharness.language.static_decoding"):
        monkeypatch.setattr(
            f"{module}.distinct_prompts", lambda p, ids, mask: DistinctPrompts(ids[:1], mask[:1], which)
        )
    monkeypatch.setattr(scoring, "by_length", lambda mask: [(which, mask.shape[1])])
    return actor


def numbers(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64, device=META)


def peak_of_training(actor: CausalLM) -> int:
    """Return the peak of one pass forward and back, gradients included."""
    mask = torch.zeros(ROWS, COMPLETION, device=META)
    with Peak() as peak:
        prompt = numbers(ROWS, PROMPT)
        scored = actor.score(prompt, prompt, numbers(ROWS, COMPLETION), mask, None, "value")
        torch.autograd.backward([scored.logp], [torch.zeros_like(scored.logp)])
    return peak.most


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
@pytest.mark.long
def test_a_training_pass_stays_below_the_estimate(
    policy: Policies, monkeypatch: pytest.MonkeyPatch, fused_kernel: None, dtype: str, checkpointing: bool
) -> None:
    actor = on_meta(policy, monkeypatch, dtype=dtype, gradient_checkpointing=checkpointing)
    estimate = ROWS * completion_bytes(actor.spec, actor.model.config) + training_bytes(
        actor.spec, actor.size, actor.total_size
    )
    assert peak_of_training(actor) < estimate < 4 * peak_of_training(actor)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
def test_a_pass_without_all_logits_stays_below_the_estimate(
    policy: Policies, monkeypatch: pytest.MonkeyPatch, fused_kernel: None, checkpointing: bool
) -> None:
    """All rows are one piece of those that go through a layer together; a chunk is a quarter of the logits."""
    actor = on_meta(policy, monkeypatch, dtype="bfloat16", gradient_checkpointing=checkpointing)
    actor.scores_in_chunks = True
    for module in (native_forward_backward, gpu_memory):
        monkeypatch.setattr(module, "CHUNK", ROWS * COMPLETION * SHAPE["vocab_size"] // 4)
    monkeypatch.setattr(gpu_memory, "MIN_ROWS", ROWS // 2)
    peak = peak_of_training(actor) - training_bytes(actor.spec, actor.size, actor.total_size)
    least = next(mb for mb in range(1, 10_000) if max_completions(actor, mb * 2**20) >= ROWS) * 2**20
    assert peak < least < 4 * (peak + training_bytes(actor.spec, actor.size, actor.total_size))


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
def test_attention_matrices_count_without_a_fused_kernel(
    policy: Policies, monkeypatch: pytest.MonkeyPatch, checkpointing: bool
) -> None:
    """56 heads of 2 numbers: matrices are most of what is held, and without them the estimate would be too small."""
    actor = on_meta(policy, monkeypatch, 56, dtype="bfloat16", gradient_checkpointing=checkpointing)
    spec, config = actor.spec, actor.model.config
    assert gpu_memory.writes_matrices(spec, config)
    beside = training_bytes(spec, actor.size, actor.total_size)
    assert peak_of_training(actor) < ROWS * completion_bytes(spec, config) + beside
    monkeypatch.setattr(gpu_memory, "writes_matrices", lambda *_: False)
    assert peak_of_training(actor) > ROWS * completion_bytes(spec, config) + beside


def test_fused_kernels_take_what_models_have() -> None:
    def writes(dtype: str, **changes: Any) -> bool:
        config = transformers.Qwen2Config(**{**SHAPE, "hidden_size": 896, **changes})
        return gpu_memory.writes_matrices(
            LanguageSpec.from_dict({"env": "x", "algorithm": "x", "dtype": dtype}), config
        )

    assert not writes("bfloat16") and not writes("float32")
    assert writes("bfloat16", head_dim=12) and not writes("float32", head_dim=12)
    assert writes("bfloat16", attn_implementation="eager")


@pytest.mark.parametrize("sizes", [[ROWS], [1, ROWS - 1]])
def test_decoding_stays_below_the_estimate(
    policy: Policies, monkeypatch: pytest.MonkeyPatch, fused_kernel: None, sizes: list[int]
) -> None:
    """Counts reading the prompts, one per row as in an evaluation, and one token."""
    actor = on_meta(policy, monkeypatch, dtype="bfloat16")
    monkeypatch.setattr(
        "staleharness.language.static_decoding.distinct_prompts", lambda p, ids, mask: DistinctPrompts(ids, mask, None)
    )
    versions = torch.zeros(ROWS, 1).long().numpy()
    uniform = torch.zeros(ROWS, COMPLETION, device=META)
    prompt = numbers(ROWS, PROMPT)
    asked = Request(prompt, prompt, versions, COMPLETION, uniform, COMPLETION)
    with torch.no_grad():
        forward = actor.forward_pass()
        if len(sizes) > 1:
            stacks = {name: w.expand(len(sizes), *w.shape).contiguous() for name, w in forward.weights.items()}
            forward = FusedForward(actor.model, forward.dtype, weights=stacks)
        forward.extend_positions(PROMPT + COMPLETION)
        with Peak() as peak:
            peak.seen.update((w.untyped_storage(), 0) for w in forward.weights.values())
            state = StaticBatch(actor, asked, numbers(ROWS))
            state.position = np.repeat(np.arange(len(sizes)), sizes)
            state._read(forward, 0)
            step = state._begin(forward, 0)
            state._step(forward, step, state.cache.columns)
            state._carry(step, 0, PROMPT)
    estimate = ROWS * decoding_bytes(actor.spec, actor.model.config) + reading_bytes(actor.spec, actor.model.config)
    assert peak.most < estimate < 4 * peak.most
