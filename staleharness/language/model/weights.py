"""The weights of a decoder as the quick pass wants them, and what is done with them; of one version or of several.

Several versions have their weights one behind the other, [K, ...], and what they are applied to has K times the rows,
version by version: one product for all, where each in turn would leave a GPU waiting.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Weights = dict[str, Tensor]
MATRICES = ("qkv", "out", "gate_up", "down", "logits")  # what the names of those of linear layers end in


def joined(model: Any, dtype: torch.dtype) -> Weights:
    """By name, with layers that read the same as one, and the matrices in `dtype`; gradients flow into the model."""
    inner = model.model
    found = {"words": inner.embed_tokens.weight, "after": inner.norm.weight}
    linears = {"logits": [model.lm_head]}
    for i, layer in enumerate(inner.layers):
        attention, mlp = layer.self_attn, layer.mlp
        found[f"{i}.before"] = layer.input_layernorm.weight
        found[f"{i}.between"] = layer.post_attention_layernorm.weight
        linears[f"{i}.qkv"] = [attention.q_proj, attention.k_proj, attention.v_proj]
        linears[f"{i}.out"] = [attention.o_proj]
        linears[f"{i}.gate_up"] = [mlp.gate_proj, mlp.up_proj]
        linears[f"{i}.down"] = [mlp.down_proj]
    for name, parts in linears.items():
        found[name] = _one([_weight(part) for part in parts]).to(dtype)
        if parts[0].bias is not None:
            found[f"{name}.bias"] = _one([part.bias for part in parts]).to(dtype)
    return found


def _weight(part: Any) -> Tensor:
    """Of a linear layer [out, in], with what its LoRA adapter adds: W + s·B·A (Hu et al. 2021, arXiv:2106.09685,
    equation 3)."""
    weight: Tensor = part.weight
    if not hasattr(part, "lora_A"):
        return weight
    (adapter,) = part.active_adapters
    scale, up, down = part.scaling[adapter], part.lora_B[adapter].weight, part.lora_A[adapter].weight
    merged: Tensor = weight + scale * (up @ down)
    return merged


def _one(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def linear_of(weights: Weights, name: str) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the linear layer called `name`."""
    return weights[name], weights.get(f"{name}.bias")


def packed(weights: Weights) -> Weights:
    """Those of one version with matrices laid out as oneDNN's kernels read them, without gradient: the layout that a
    plain product makes of them, every time anew. As they are where this processor has no such kernel for them."""
    kind = weights["logits"].dtype
    known = torch.backends.mkldnn.is_available() and (
        kind == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    if not known or weights["logits"].device.type != "cpu":
        return weights
    return {
        name: torch.ops.mkldnn._reorder_linear_weight(w.detach()) if name.endswith(MATRICES) else w
        for name, w in weights.items()
    }


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [B, T, in] by weights [out, in], or by [K, out, in] each its K-th part of the rows."""
    if weight.is_mkldnn:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y
    if weight.ndim == 2:
        return F.linear(x, weight, bias)
    rows = x.reshape(len(weight), -1, x.shape[-1])
    y = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)
    return y.view(*x.shape[:-1], -1)


def normed(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """x [B, T, width] over its root mean square, times weights [width] or [K, width]."""
    if weight.ndim == 1:
        return F.rms_norm(x, x.shape[-1:], weight, epsilon)
    y = F.rms_norm(x, x.shape[-1:], None, epsilon)
    return (y.view(len(weight), -1, *x.shape[1:]) * weight[:, None, None]).view(x.shape)


def embedded(ids: Tensor, words: Tensor, padding: int | None) -> Tensor:
    """Rows of `words` [V, width] or [K, V, width] for ids [B, T]; that of `padding` has no gradient from here."""
    if words.ndim == 2:
        return F.embedding(ids, words, padding)
    first = torch.arange(len(words), device=ids.device) * words.shape[1]
    place = ids.view(len(words), -1) + first[:, None]
    return F.embedding(place.view(ids.shape), words.flatten(0, 1))
