"""Weights of a decoder as the fused forward pass reads them, of one version or of several that stay on the device.

Several versions have their weights stacked, [K, ...], and their input has K times the rows, version by version: one
product for all, where each in turn would leave a GPU waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...simulator.policy_buffer import Version

Weights = dict[str, Tensor]
MATRICES = ("qkv", "out", "gate_up", "down", "logits")  # ends of the names of linear layers


def fused_weights(model: Any, dtype: torch.dtype) -> Weights:
    """Return weights by name: layers with the same input as one, matrices in `dtype`. Gradients flow into the model."""
    inner = model.model
    weights = {"words": inner.embed_tokens.weight, "after": inner.norm.weight}
    linears = {"logits": [model.lm_head]}
    for i, layer in enumerate(inner.layers):
        attention, mlp = layer.self_attn, layer.mlp
        weights[f"{i}.before"] = layer.input_layernorm.weight
        weights[f"{i}.between"] = layer.post_attention_layernorm.weight
        linears[f"{i}.qkv"] = [attention.q_proj, attention.k_proj, attention.v_proj]
        linears[f"{i}.out"] = [attention.o_proj]
        linears[f"{i}.gate_up"] = [mlp.gate_proj, mlp.up_proj]
        linears[f"{i}.down"] = [mlp.down_proj]
    for name, parts in linears.items():
        weights[name] = _concatenate([_merge_adapter(part) for part in parts]).to(dtype)
        if parts[0].bias is not None:
            weights[f"{name}.bias"] = _concatenate([part.bias for part in parts]).to(dtype)
    return weights


def _merge_adapter(linear: Any) -> Tensor:
    """Return a linear layer's weight [out, in] with its LoRA adapter: W + s·B·A (Hu et al. 2021, arXiv:2106.09685,
    equation 3)."""
    weight: Tensor = linear.weight
    if not hasattr(linear, "lora_A"):
        return weight
    (adapter,) = linear.active_adapters
    scale, up, down = linear.scaling[adapter], linear.lora_B[adapter].weight, linear.lora_A[adapter].weight
    merged_weight: Tensor = weight + scale * (up @ down)
    return merged_weight


def _concatenate(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def linear_of(weights: Weights, name: str) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of the linear layer called `name`."""
    return weights[name], weights.get(f"{name}.bias")


def prepack(weights: Weights) -> Weights:
    """Return one version's weights with matrices in the layout of oneDNN's kernels, without gradient; a plain product
    converts them every time. Unchanged where this processor has no such kernel."""
    kind = weights["logits"].dtype
    has_kernel = torch.backends.mkldnn.is_available() and (
        kind == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    if not has_kernel or weights["logits"].device.type != "cpu":
        return weights
    return {
        name: torch.ops.mkldnn._reorder_linear_weight(w.detach()) if name.endswith(MATRICES) else w
        for name, w in weights.items()
    }


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply x [B, T, in] by weights [out, in], or each K-th of its rows by its own of [K, out, in]."""
    if weight.is_mkldnn:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y
    if weight.ndim == 2:
        return F.linear(x, weight, bias)
    rows = x.reshape(len(weight), -1, x.shape[-1])
    y = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias[:, None], rows, weight.mT)
    return y.view(*x.shape[:-1], -1)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Divide x [B, T, width] by its root mean square and multiply it by weights [width] or [K, width]."""
    if weight.ndim == 1:
        return F.rms_norm(x, x.shape[-1:], weight, epsilon)
    y = F.rms_norm(x, x.shape[-1:], None, epsilon)
    return (y.view(len(weight), -1, *x.shape[1:]) * weight[:, None, None]).view(x.shape)


def embedding(ids: Tensor, words: Tensor, padding: int | None) -> Tensor:
    """Look up ids [B, T] in `words` [V, width] or [K, V, width]; `padding`'s row receives no gradient."""
    if words.ndim == 2:
        return F.embedding(ids, words, padding)
    first = torch.arange(len(words), device=ids.device) * words.shape[1]
    place = ids.view(len(words), -1) + first[:, None]
    return F.embedding(place.view(ids.shape), words.flatten(0, 1))


class ResidentVersions:
    """Versions of the policy that stay on its device, in one tensor [capacity, ...] for each of their weights.

    load: returns a version's weights on the device; called once for as long as the version stays. When all slots are
    taken, the oldest version that is not requests is replaced.
    """

    def __init__(self, capacity: int, load: Callable[[Version], Weights]) -> None:
        self.capacity, self.load = capacity, load
        self.slots: list[Version | None] = [None] * capacity
        self.stacks: Weights = {}

    def weights(self, versions: Sequence[Version]) -> Weights:
        """Return weights of one version [...], or of several [K, ...] in their order, repeated ones included."""
        slots = self.slots_of(versions)
        if len(slots) == 1:
            return {name: stack[slots[0]] for name, stack in self.stacks.items()}
        if slots == list(range(self.capacity)):
            return self.stacks
        return {name: stack[slots] for name, stack in self.stacks.items()}

    @torch.no_grad()
    def slots_of(self, versions: Sequence[Version]) -> list[int]:
        """Return the slot of each version, loading those that are absent."""
        if len({id(v) for v in versions}) > self.capacity:
            raise ValueError(f"{len(versions)} versions do not fit into {self.capacity} slots")
        for version in versions:
            if self._find(version) is None:
                self._insert(version, versions)
        slots = [self._find(version) for version in versions]
        return [slot for slot in slots if slot is not None]

    def _find(self, version: Version) -> int | None:
        return next((i for i, resident in enumerate(self.slots) if resident is version), None)

    def _insert(self, version: Version, requests: Sequence[Version]) -> None:
        free = [i for i, resident in enumerate(self.slots) if not any(resident is v for v in requests)]
        phase = [-1 if (resident := self.slots[i]) is None else resident.phase for i in free]
        slot = free[phase.index(min(phase))]
        weights = self.load(version)
        if not self.stacks:
            self.stacks = {name: w.new_empty((self.capacity, *w.shape)) for name, w in weights.items()}
        for name, w in weights.items():
            self.stacks[name][slot].copy_(w)
        self.slots[slot] = version
