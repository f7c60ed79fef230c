"""Forward pass with fused weights: the numbers of transformers in a third of the calls.

For Qwen2 and Llama as they are (no sliding window, no other activation). The matrices of queries, keys and values are
one, those of the gated layer are one, and all layers share one mask.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .fused_weights import Weights, embedding, fused_weights, linear, linear_of, prepack, rms_norm
from .kv_caches import CacheLayer, attend, mask_term

FAMILIES = ("qwen2", "llama")
ROTARY_TYPES = ("default", "linear", "llama3")  # those that do not depend on the sequence's length


def supports_fused_forward(model: Any) -> bool:
    """Return whether `FusedForward` computes what `model` does."""
    config = model.config
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    return (
        config.model_type in FAMILIES
        and (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default") in ROTARY_TYPES
        and layers == {"full_attention"}
        and config.hidden_act == "silu"
        and config._attn_implementation == "sdpa"
    )


class _FusedLayer:
    """One layer's fused weights and its constants."""

    def __init__(self, layer: Any, weights: Weights, name: str) -> None:
        attention = layer.self_attn
        self.before, self.between = (
            (weights[f"{name}.{norm}"], float(of.variance_epsilon))
            for norm, of in (("before", layer.input_layernorm), ("between", layer.post_attention_layernorm))
        )
        self.qkv, self.out, self.gate_up, self.down = (
            linear_of(weights, f"{name}.{part}") for part in ("qkv", "out", "gate_up", "down")
        )
        self.scale, self.head = float(attention.scaling), int(attention.head_dim)
        keys = int(attention.k_proj.weight.shape[0]) // self.head
        self.heads = [int(attention.q_proj.weight.shape[0]) // self.head, keys, keys]
        self.group = self.heads[0] // keys  # heads of queries per head of keys


class FusedForward:
    """Forward pass of `model` with its weights at this moment; gradients flow into it. `dtype`: of matrix products.

    weights: others in their place; with several versions [K, ...] the rows are K times as many, version by version.
    checkpointing: where a gradient is wanted, store the input of each layer and recompute the rest.
    """

    def __init__(
        self, model: Any, dtype: torch.dtype, checkpointing: bool = False, weights: Weights | None = None
    ) -> None:
        self.model, self.inner, self.dtype, self.checkpointing = model, model.model, dtype, checkpointing
        self.weights = weights = fused_weights(model, dtype) if weights is None else weights
        self.words = weights["words"]
        self.layers = [_FusedLayer(layer, weights, str(i)) for i, layer in enumerate(self.inner.layers)]
        self.after = weights["after"], float(self.inner.norm.variance_epsilon)
        self.logits = linear_of(weights, "logits")
        self.rotations: tuple[Tensor, Tensor] | None = None  # cos and sin by position

    def __call__(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Any, keep: int) -> Tensor:
        """Return logits like `CausalLM.forward`."""
        mask = mask_term(attention, ids.shape[1], self.dtype, self.layers[0].group)
        self.extend_positions(attention.shape[1])
        return self.run(ids, mask, positions, cache, keep)

    def run(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any, keep: int) -> Tensor:
        """Return logits given the term of attention; positions must be known. Reads no number on the host."""
        x = embedding(ids, self.words, self.inner.embed_tokens.padding_idx)
        assert self.rotations is not None
        cos, sin = (F.embedding(positions, table)[:, None] for table in self.rotations)
        for i, layer in enumerate(self.layers):
            inside = partial(self._through, layer, None if cache is None else cache.layers[i], cos, sin, mask)
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(inside, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = inside(x)
        if keep < ids.shape[1]:
            x = x[:, -keep:]
        return linear(rms_norm(x, *self.after).to(self.dtype), *self.logits)

    def _through(
        self, layer: _FusedLayer, cache: CacheLayer | None, cos: Tensor, sin: Tensor, mask: Tensor, x: Tensor
    ) -> Tensor:
        """Pass x [B, new, width] through one layer; keys and values go through its part of a cache."""
        count, new, _ = x.shape
        y = linear(rms_norm(x, *layer.before).to(self.dtype), *layer.qkv)
        y = y.view(count, new, -1, layer.head).transpose(1, 2)
        queries, heads, _ = layer.heads
        y, values = y.split([queries + heads, heads], 1)
        y = y.float()  # queries and keys
        y = torch.addcmul(y * cos, y.roll(layer.head // 2, -1), sin).to(self.dtype)
        query, keys = y.split([queries, heads], 1)
        through = attend if cache is None else cache.attend
        y = through(query, keys, values, mask, layer.scale)
        x = x + linear(y.transpose(1, 2).reshape(count, new, -1), *layer.out)
        gate, up = linear(rms_norm(x, *layer.between).to(self.dtype), *layer.gate_up).chunk(2, -1)
        return x + linear(F.silu(gate) * up, *layer.down)

    def part(self, k: int) -> FusedForward:
        """Return the pass by the k-th of several versions alone."""
        one = FusedForward(self.model, self.dtype, weights={name: w[k] for name, w in self.weights.items()})
        one.rotations = self.rotations
        return one

    def prepack(self) -> FusedForward:
        """Return the same pass without gradient, its matrices converted once for all calls."""
        return FusedForward(self.model, self.dtype, weights=prepack(self.weights))

    def extend_positions(self, length: int) -> None:
        """Compute cosines, and sines with their signs [L, head], for at least `length` positions."""
        if self.rotations is not None and len(self.rotations[0]) >= length:
            return
        with torch.no_grad():
            positions = torch.arange(2 * length, device=self.words.device)[None]
            like = self.words.new_empty(())  # for its type alone
            cos, sin = (table[0] for table in self.inner.rotary_emb(like, positions))
            half = sin.shape[-1] // 2
            self.rotations = cos, torch.cat([-sin[:, :half], sin[:, half:]], -1)
