"""A forward pass in a third of the calls that the general code of transformers makes.

For Qwen2 and Llama as they are (no sliding window, no other activation). What is computed is the same, with the
matrices of queries, keys and values as one, those of the gated layer as one, and one mask for all layers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .attention import attend, mask_of
from .past import Layer
from .weights import Weights, embedded, joined, linear, linear_of, normed, packed

FAMILIES = ("qwen2", "llama")
TURNS = ("default", "linear", "llama3")  # rotary positions that do not depend on the sequence's length


def suits(model: Any) -> bool:
    """Whether `QuickPass` computes what `model` does."""
    config = model.config
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    return (
        config.model_type in FAMILIES
        and (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default") in TURNS
        and layers == {"full_attention"}
        and config.hidden_act == "silu"
        and config._attn_implementation == "sdpa"
    )


class _Layer:
    """One layer's weights, joined, and its few numbers."""

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
        self.each = self.heads[0] // keys  # heads of queries that have one of keys in common


class QuickPass:
    """The weights of `model` at this moment, joined; gradients flow into it. `dtype` is that of matrix products.

    weights: others in their place; with several versions [K, ...] the rows are K times as many, version by version.
    checkpointing: where a gradient is wanted, keep what goes into a layer and compute its inside again.
    """

    def __init__(
        self, model: Any, dtype: torch.dtype, checkpointing: bool = False, weights: Weights | None = None
    ) -> None:
        self.model, self.inner, self.dtype, self.checkpointing = model, model.model, dtype, checkpointing
        self.weights = weights = joined(model, dtype) if weights is None else weights
        self.words = weights["words"]
        self.layers = [_Layer(layer, weights, str(i)) for i, layer in enumerate(self.inner.layers)]
        self.after = weights["after"], float(self.inner.norm.variance_epsilon)
        self.logits = linear_of(weights, "logits")
        self.turns: tuple[Tensor, Tensor] | None = None  # cos and sin by position

    def __call__(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Any, keep: int) -> Tensor:
        """As `CausalLM.forward`."""
        mask = mask_of(attention, ids.shape[1], self.dtype, self.layers[0].each)
        self.make_room(attention.shape[1])
        return self.run(ids, mask, positions, cache, keep)

    def run(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any, keep: int) -> Tensor:
        """The same with the term that attention adds, and room for the positions; no number is read on the way."""
        x = embedded(ids, self.words, self.inner.embed_tokens.padding_idx)
        assert self.turns is not None
        cos, sin = (F.embedding(positions, table)[:, None] for table in self.turns)
        for i, layer in enumerate(self.layers):
            inside = partial(self._through, layer, None if cache is None else cache.layers[i], cos, sin, mask)
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(inside, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = inside(x)
        if keep < ids.shape[1]:
            x = x[:, -keep:]
        return linear(normed(x, *self.after).to(self.dtype), *self.logits)

    def _through(self, layer: _Layer, past: Layer | None, cos: Tensor, sin: Tensor, mask: Tensor, x: Tensor) -> Tensor:
        """One layer; keys and values go through `past`, its part of a cache."""
        count, new, _ = x.shape
        y = linear(normed(x, *layer.before).to(self.dtype), *layer.qkv)
        y = y.view(count, new, -1, layer.head).transpose(1, 2)
        queries, heads, _ = layer.heads
        y, values = y.split([queries + heads, heads], 1)
        y = y.float()  # queries and keys
        y = torch.addcmul(y * cos, y.roll(layer.head // 2, -1), sin).to(self.dtype)
        query, keys = y.split([queries, heads], 1)
        through = attend if past is None else past.attend
        y = through(query, keys, values, mask, layer.scale)
        x = x + linear(y.transpose(1, 2).reshape(count, new, -1), *layer.out)
        gate, up = linear(normed(x, *layer.between).to(self.dtype), *layer.gate_up).chunk(2, -1)
        return x + linear(F.silu(gate) * up, *layer.down)

    def part(self, k: int) -> QuickPass:
        """By the K-th of several versions alone."""
        one = QuickPass(self.model, self.dtype, weights={name: w[k] for name, w in self.weights.items()})
        one.turns = self.turns
        return one

    def packed(self) -> QuickPass:
        """The same without gradient, with its matrices laid out once for all that it will be asked."""
        return QuickPass(self.model, self.dtype, weights=packed(self.weights))

    def make_room(self, length: int) -> None:
        """Have cosines, and sines with their signs [L, head], for at least `length` positions."""
        if self.turns is not None and len(self.turns[0]) >= length:
            return
        with torch.no_grad():
            every = torch.arange(2 * length, device=self.words.device)[None]
            like = self.words.new_empty(())  # says the type alone
            cos, sin = (table[0] for table in self.inner.rotary_emb(like, every))
            half = sin.shape[-1] // 2
            self.turns = cos, torch.cat([-sin[:, :half], sin[:, half:]], -1)
