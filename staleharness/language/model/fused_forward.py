"""Forward pass with fused weights: the numbers of transformers in a third of the calls.

For Qwen2 and Llama as they are (no sliding window, no other activation). The matrices of queries, keys and values are
one, those of the gated layer are one, and all layers share one mask. Several versions have their weights stacked,
[K, ...], and each has its part of the rows: one product for all, where each in turn would leave a GPU waiting.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .kv_cache import CacheLayer, CausalWithPadding, Mask, attend, mask_term
from .matrix_products import has_bfloat16_kernels, linear

FAMILIES = ("qwen2", "llama")
ROTARY_TYPES = ("default", "linear", "llama3")  # types that do not depend on the sequence's length
Weights = dict[str, Tensor]
MATRICES = ("qkv", "out", "gate_up", "down", "logits")  # ends of the names of linear layers


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


def fused_weights(model: Any, dtype: torch.dtype) -> Weights:
    """Return weights by name: layers with the same input as one, matrices in `dtype`. Gradients flow into the model."""
    inner = model.model
    weights = {"embedding": inner.embed_tokens.weight, "final_norm": inner.norm.weight}
    linears = {"logits": [model.lm_head]}
    for i, layer in enumerate(inner.layers):
        attention, mlp = layer.self_attn, layer.mlp
        weights[f"{i}.input_norm"] = layer.input_layernorm.weight
        weights[f"{i}.mlp_norm"] = layer.post_attention_layernorm.weight
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
    dtype = weights["logits"].dtype
    has_kernel = has_bfloat16_kernels() if dtype == torch.bfloat16 else torch.backends.mkldnn.is_available()
    if not has_kernel or weights["logits"].device.type != "cpu":
        return weights
    return {
        name: torch.ops.mkldnn._reorder_linear_weight(w.detach()) if name.endswith(MATRICES) else w
        for name, w in weights.items()
    }


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Divide x [B, T, width] by its root mean square and multiply it by weights [width] or [K, width]."""
    if weight.ndim == 1:
        return F.rms_norm(x, x.shape[-1:], weight, epsilon)
    y = F.rms_norm(x, x.shape[-1:], None, epsilon)
    return (y.view(len(weight), -1, *x.shape[1:]) * weight[:, None, None]).view(x.shape)


def embedding(ids: Tensor, words: Tensor, padding: int | None) -> Tensor:
    """Look up ids [B, T] in `words` [V, width], whose row `padding` receives no gradient, or each K-th of the rows in
    its own of `words` [K, V, width]."""
    if words.ndim == 2:
        return F.embedding(ids, words, padding)
    versions, vocabulary, _ = words.shape
    place = ids.view(versions, -1) + vocabulary * torch.arange(versions, device=ids.device)[:, None]
    return F.embedding(place.view(ids.shape), words.flatten(0, 1))


class PaddedParts(NamedTuple):
    """Layout of rows of several versions: products of stacked weights take parts of equal length, one after the other,
    attention and sampling only the actual rows."""

    rows: Tensor  # [K * longest] row at each place; any row after the end of a shorter part
    places: Tensor  # [B] place of each row

    @classmethod
    def of(cls, position: NDArray[np.int64], versions: int, device: torch.device) -> PaddedParts | None:
        """Return the layout given the version of each row [B] by its number below `versions`; None where the rows
        already have that layout."""
        sizes = np.bincount(position, minlength=versions)
        longest, order = int(sizes.max()), position.argsort(kind="stable")
        places = np.empty_like(position)
        places[order] = np.concatenate([k * longest + np.arange(size) for k, size in enumerate(sizes)])
        if np.array_equal(places, np.arange(versions * longest)):
            return None
        rows = np.zeros(versions * longest, dtype=np.int64)
        rows[places] = np.arange(len(position))
        return cls(torch.from_numpy(rows).to(device), torch.from_numpy(places).to(device))


class _FusedLayer:
    """One layer's fused weights and its constants."""

    def __init__(self, layer: Any, weights: Weights, name: str) -> None:
        attention = layer.self_attn
        self.input_norm, self.mlp_norm = (
            (weights[f"{name}.{norm}"], float(module.variance_epsilon))
            for norm, module in (("input_norm", layer.input_layernorm), ("mlp_norm", layer.post_attention_layernorm))
        )
        self.qkv, self.out, self.gate_up, self.down = (
            linear_of(weights, f"{name}.{part}") for part in ("qkv", "out", "gate_up", "down")
        )
        self.scale, self.head = float(attention.scaling), int(attention.head_dim)
        keys = int(attention.k_proj.weight.shape[0]) // self.head
        self.heads = int(attention.q_proj.weight.shape[0]) // self.head, keys  # of queries; of keys and values
        self.group = self.heads[0] // keys  # heads of queries per head of keys


class FusedForward:
    """Forward pass of `model` with its weights at this moment; gradients flow into it. `dtype`: of matrix products.

    weights: replacements for these; with several versions [K, ...] rows come version by version, in parts of equal
    length, unless `run` is given another layout.
    checkpointing: where a gradient is wanted, store the input of each layer and recompute the rest.
    """

    def __init__(
        self, model: Any, dtype: torch.dtype, checkpointing: bool = False, weights: Weights | None = None
    ) -> None:
        self.model, self.inner, self.dtype, self.checkpointing = model, model.model, dtype, checkpointing
        self.weights = weights = fused_weights(model, dtype) if weights is None else weights
        self.embedding = weights["embedding"]
        self.layers = [_FusedLayer(layer, weights, str(i)) for i, layer in enumerate(self.inner.layers)]
        self.final_norm = weights["final_norm"], float(self.inner.norm.variance_epsilon)
        self.logits = linear_of(weights, "logits")
        self.rotations: tuple[Tensor, Tensor] | None = None  # cos and sin by position

    def __call__(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Any, keep: int) -> Tensor:
        """Return logits like `CausalLM.forward`."""
        return linear(self.last_states(ids, attention, positions, cache, keep), *self.logits)

    def last_states(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Any, keep: int) -> Tensor:
        """Return the states [B, keep, width] after the last `keep` of `ids`; the logits are linear in them."""
        layer = self.layers[0]
        self.extend_positions(attention.shape[1])
        mask: Mask
        if CausalWithPadding.serves(ids.device, self.dtype, layer.head):
            mask = CausalWithPadding.of(attention, self.dtype)
        else:
            mask = mask_term(attention, ids.shape[1], self.dtype, layer.group)
        return self._states(ids, mask, positions, cache, keep)

    def run(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any, parts: PaddedParts | None = None) -> Tensor:
        """Return logits after the last of `ids`, given the term of attention; positions must be known. Reads no number
        on the host."""
        logits = linear(self._states(ids, mask, positions, cache, 1, parts), *self.logits)
        return logits if parts is None else logits.index_select(0, parts.places)

    def _states(
        self, ids: Tensor, mask: Mask, positions: Tensor, cache: Any, keep: int, parts: PaddedParts | None = None
    ) -> Tensor:
        ids = ids if parts is None else ids.index_select(0, parts.rows)
        x = embedding(ids, self.embedding, self.inner.embed_tokens.padding_idx)
        assert self.rotations is not None
        cos, sin = (F.embedding(positions, table)[:, None] for table in self.rotations)
        for i, layer in enumerate(self.layers):
            inside = partial(self._through, layer, None if cache is None else cache.layers[i], cos, sin, mask, parts)
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(inside, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = inside(x)
        if keep < ids.shape[1]:
            x = x[:, -keep:]
        return rms_norm(x, *self.final_norm).to(self.dtype)

    def _through(
        self,
        layer: _FusedLayer,
        cache: CacheLayer | None,
        cos: Tensor,
        sin: Tensor,
        mask: Mask,
        parts: PaddedParts | None,
        x: Tensor,
    ) -> Tensor:
        """Pass x [B, new, width] through one layer; keys and values go through its part of a cache."""
        y = linear(rms_norm(x, *layer.input_norm).to(self.dtype), *layer.qkv)
        if parts is not None:
            y = y.index_select(0, parts.places)
        count, new, _ = y.shape
        y = y.view(count, new, -1, layer.head).transpose(1, 2)
        queries, heads = layer.heads
        y, values = y.split([queries + heads, heads], 1)
        y = y.float()  # queries and keys
        y = torch.addcmul(y * cos, y.roll(layer.head // 2, -1), sin).to(self.dtype)
        query, keys = y.split([queries, heads], 1)
        through = attend if cache is None else cache.attend
        y = through(query, keys, values, mask, layer.scale)
        y = y.transpose(1, 2).reshape(count, new, -1)
        if parts is not None:
            y = y.index_select(0, parts.rows)
        x = x + linear(y, *layer.out)
        gate, up = linear(rms_norm(x, *layer.mlp_norm).to(self.dtype), *layer.gate_up).chunk(2, -1)
        return x + linear(F.silu(gate) * up, *layer.down)

    @property
    def versions(self) -> int:
        """Number of versions in its weights."""
        return 1 if self.embedding.ndim == 2 else len(self.embedding)

    def version(self, k: int) -> FusedForward:
        """Return the pass by the k-th of several versions alone."""
        if self.embedding.ndim == 2:
            return self
        forward = FusedForward(self.model, self.dtype, weights={name: w[k] for name, w in self.weights.items()})
        forward.rotations = self.rotations
        return forward

    def extend_positions(self, length: int) -> None:
        """Compute cosines, and sines with their signs [L, head], for at least `length` positions."""
        if self.rotations is not None and len(self.rotations[0]) >= length:
            return
        with torch.no_grad():
            positions = torch.arange(2 * length, device=self.embedding.device)[None]
            like = self.embedding.new_empty(())  # for its type alone
            cos, sin = (table[0] for table in self.inner.rotary_emb(like, positions))
            half = sin.shape[-1] // 2
            self.rotations = cos, torch.cat([-sin[:, :half], sin[:, half:]], -1)
