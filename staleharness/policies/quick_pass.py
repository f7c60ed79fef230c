"""A forward pass in a third of the calls that the general code of transformers makes.

For Qwen2 and Llama as they are (no sliding window, no other activation). What is computed is the same, with the
matrices of queries, keys and values as one, those of the gated layer as one, and one mask for all layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

FAMILIES = ("qwen2", "llama")
BLOCKED = (
    -1e30
)  # added before the softmax: 0 behind it, and finite where a row of padding may attend to nothing


def suits(model: Any) -> bool:
    """Whether `QuickPass` computes what `model` does."""
    config = model.config
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    return (
        config.model_type in FAMILIES
        and layers == {"full_attention"}
        and config.hidden_act == "silu"
        and config._attn_implementation == "sdpa"
    )


class QuickPass:
    """The weights of `model` at this moment, joined; gradients flow into it. `dtype` is that of matrix products."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self.inner, self.dtype = model.model, dtype
        self.head, _ = self._joined(model.lm_head)
        self.layers = [
            (
                layer,
                self._joined(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                self._joined(layer.self_attn.o_proj),
                self._joined(layer.mlp.gate_proj, layer.mlp.up_proj),
                self._joined(layer.mlp.down_proj),
            )
            for layer in self.inner.layers
        ]

    def _joined(self, *linear: Any) -> tuple[Tensor, Tensor | None]:
        weight = linear[0].weight if len(linear) == 1 else torch.cat([x.weight for x in linear])
        bias = None if linear[0].bias is None else torch.cat([x.bias for x in linear]).to(self.dtype)
        return weight.to(self.dtype), bias

    def __call__(
        self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Any, keep: int,
        rows: Sequence[int] | None = None,
    ) -> Tensor:  # fmt: skip
        """As `CausalLM.forward`; all rows have the same weights, so it does not matter which `rows` they are."""
        x = F.embedding(ids, self.inner.embed_tokens.weight)
        count, new = ids.shape
        cos, sin = (t[:, None] for t in self.inner.rotary_emb(x, positions))  # [B, 1, L, width of a head]
        half = cos.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)
        mask = mask_of(attention, new, self.dtype)
        for i, (layer, qkv, out, gate_up, down) in enumerate(self.layers):
            y = F.linear(self._norm(layer.input_layernorm, x), *qkv)
            y = y.view(count, new, -1, 2 * half).transpose(1, 2)
            heads = int(layer.self_attn.k_proj.weight.shape[0]) // (2 * half)  # of keys and values
            y, values = y.split([y.shape[1] - heads, heads], 1)
            y = y.float()  # queries and keys
            swapped = y.unflatten(-1, (2, half)).flip(-2).flatten(-2)
            y = torch.addcmul(y * cos, swapped, sin).to(self.dtype)
            query, keys = y.split([y.shape[1] - heads, heads], 1)
            if cache is not None:
                keys, values = cache.layers[i].update(keys, values)
            y = F.scaled_dot_product_attention(
                query, keys, values, mask, scale=layer.self_attn.scaling,
                enable_gqa=query.shape[1] != heads,
            )  # fmt: skip
            x = x + F.linear(y.transpose(1, 2).reshape(count, new, -1), *out)
            gate, up = F.linear(self._norm(layer.post_attention_layernorm, x), *gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, *down)
        if keep < new:
            x = x[:, -keep:]
        return F.linear(self._norm(self.inner.norm, x), self.head)

    def _norm(self, norm: Any, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon).to(self.dtype)


def mask_of(attention: Tensor, new: int, dtype: torch.dtype) -> Tensor:
    """The term [B, 1, new, L] by which the last `new` of L tokens attend to `attention` [B, L] and to nothing later."""
    padding = ((attention == 0) * BLOCKED).to(dtype)[:, None, None]
    if new == 1:
        return padding
    length = attention.shape[1]
    later = torch.full((new, length), BLOCKED, dtype=dtype, device=attention.device).triu(length - new + 1)
    return torch.minimum(padding, later)
