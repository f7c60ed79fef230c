"""Forward and backward pass of `learner=native`: tokens without padding, and C++ between the products of matrices.

All prompts and completions of a batch go through a layer as one matrix [n, width]. A prompt is stored once, and the
completions that continue it attend to it. What is not a product of matrices (`native/`) reads and writes each number
once, where torch does so in each of its operations. Numbers differ from torch's by rounding.

With `dtype=bfloat16` the factors and results of products are bfloat16; all else is float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...tokens.policy_interface import Entropy, TokenScores
from .fused_forward import FusedForward
from .kv_cache import DistinctPrompts
from .matrix_products import linear, matmul
from .native_kernels import WIDTH, at, gate, is_bfloat16, kernels, norm

CHUNK = 1 << 28  # logits at a time; where there are more, the backward pass computes them again


def supports_native_forward(model: Any) -> bool:
    """Return whether the kernels take the heads of a model that `FusedForward` serves."""
    return int(model.model.layers[0].self_attn.head_dim) % WIDTH == 0


class Tokens(NamedTuple):
    """Tokens [n] of prompts, then those of completions but their last, and the targets [m] to score."""

    ids: Tensor
    position: Tensor
    sequences: Tensor  # [S, 4] begin and number of tokens, begin and number of those of the prompt before
    outputs: Tensor  # tokens before a target
    state: Tensor  # [m] place among `outputs` of the token before each target
    target: Tensor  # [m]
    target_mask: Tensor  # [B, T] where these are

    @property
    def longest(self) -> int:
        return int(self.position.max()) + 1


def lay_out(prompts: DistinctPrompts, token: Tensor, mask: Tensor) -> Tokens:
    """Lay out prompts [U, P], padded on the left, and completions [B, T], padded on the right."""
    real, target_mask = prompts.mask.bool(), mask.bool()
    prompt_lengths, row_lengths = real.sum(1).numpy(), target_mask.sum(1).numpy()
    prompt_index = np.arange(len(row_lengths)) if prompts.prompt_index is None else prompts.prompt_index.numpy()
    read_tokens = np.maximum(row_lengths - 1, 0)
    prompt_begin = np.cumsum(prompt_lengths) - prompt_lengths
    row_begin = prompt_lengths.sum() + np.cumsum(read_tokens) - read_tokens
    zeros = np.zeros_like(prompt_lengths)
    prompt_sequences = np.stack([prompt_begin, prompt_lengths, zeros, zeros], 1)
    row_sequences = np.stack([row_begin, read_tokens, prompt_begin[prompt_index], prompt_lengths[prompt_index]], 1)
    nth = torch.arange(token.shape[1])
    read = target_mask & (nth < torch.from_numpy(read_tokens)[:, None])
    row_position = torch.from_numpy(prompt_lengths[prompt_index])[:, None] + nth
    position = torch.cat([(real.cumsum(1) - 1)[real], row_position[read]])
    count = int(prompt_lengths.sum())
    outputs = np.concatenate([prompt_begin + prompt_lengths - 1, np.arange(count, len(position))])
    row_state = torch.from_numpy(len(prompt_lengths) + row_begin - count)[:, None] + nth - 1
    state = torch.where(nth == 0, torch.from_numpy(prompt_index)[:, None], row_state)[target_mask]
    sequences = torch.from_numpy(np.concatenate([prompt_sequences, row_sequences[read_tokens > 0]]))
    ids = torch.cat([prompts.ids[real], token[read]])
    return Tokens(ids, position, sequences, torch.from_numpy(outputs), state, token[target_mask], target_mask)


class _Activations(NamedTuple):
    """Activations of a layer that its backward pass reads."""

    x: Tensor  # its input
    scale: Tensor
    qkv: Tensor  # rotated
    out: Tensor  # of attention
    total: Tensor
    mlp_input: Tensor  # residual stream after attention
    mlp_scale: Tensor
    gate_up: Tensor


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Multiply x [n, in] by weights [out, in] in their number format, as `linear`."""
    return linear(x.to(weight.dtype), weight, bias)


class NativeForward(FusedForward):
    """Forward pass whose scores, and their gradient, are computed by `native/`."""

    def score(self, prompts: DistinctPrompts, token: Tensor, mask: Tensor, entropy: Entropy, norm: bool) -> TokenScores:
        """Score completions like `CausalLM.score`."""
        tokens = lay_out(prompts, token, mask)
        self.extend_positions(tokens.longest)
        weights = [self.weights[name] for name in sorted(self.weights)]
        columns = _NativeScores.apply(self, tokens, entropy == "gradient", norm, *weights)  # type: ignore[no-untyped-call]
        logp, entropies, square = (
            mask.new_zeros(mask.shape).masked_scatter(tokens.target_mask, column) for column in columns
        )
        return TokenScores(logp, None if entropy == "none" else entropies, square if norm else None)

    def states(
        self, tokens: Tokens, activations: list[_Activations] | None = None, caches: list[Tensor] | None = None
    ) -> Tensor:
        """Return the output of the last layer at `outputs`. Appends each layer's tensors for the backward pass to
        `activations`, and its queries, keys and values [n, ...] to `caches`."""
        x, branch, count = self.embedding.detach().index_select(0, tokens.ids), None, len(self.layers)
        for i, layer in enumerate(self.layers):
            x, y, scale = norm(x, branch, *layer.input_norm, self.dtype)
            qkv = product(y, *layer.qkv).float()
            self.rotate(qkv, tokens.position, layer, 1.0)
            out, total = x.new_empty((len(x), layer.heads[0] * layer.head)), x.new_empty((len(x), layer.heads[0]))
            kernels().attention_forward(at(qkv), *_attention(tokens, layer), at(out), at(total))
            if caches is not None:
                caches.append(qkv)
            residual, attention = x, out
            if i + 1 == count:
                residual, attention = (z.index_select(0, tokens.outputs) for z in (x, out))
            mlp_input, y, mlp_scale = norm(residual, product(attention, *layer.out), *layer.mlp_norm, self.dtype)
            gate_up = product(y, *layer.gate_up)
            if activations is not None:
                activations.append(_Activations(x, scale, qkv, out, total, mlp_input, mlp_scale, gate_up))
            x, branch = mlp_input, product(gate(gate_up), *layer.down)
        assert branch is not None
        return x.add_(branch) if activations is None else x + branch

    def rotate(self, qkv: Tensor, position: Tensor, layer: Any, sign: float) -> None:
        assert self.rotations is not None
        tables = (at(table) for table in self.rotations)
        kernels().rotate(at(qkv), qkv.shape[1], at(position), *tables, len(qkv), sum(layer.heads), layer.head, sign)


def _attention(tokens: Tokens, layer: Any) -> tuple[Any, ...]:
    return at(tokens.sequences), len(tokens.sequences), *layer.heads, layer.head, layer.scale


def chunks(count: int, vocabulary: int) -> Iterator[slice]:
    """Return slices of `count` tokens that have at most `CHUNK` logits together, and at least one token each."""
    size = max(1, CHUNK // vocabulary)
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


class _NativeScores(torch.autograd.Function):
    """Log-probabilities, entropies and Σ p² [m] of tokens."""

    @staticmethod
    def forward(
        ctx: Any, model: NativeForward, tokens: Tokens, entropy_grad: bool, square: bool, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        trains = any(ctx.needs_input_grad)
        activations: list[_Activations] | None = [] if trains else None
        x = model.states(tokens, activations)
        _, y, scale = norm(x, None, *model.final_norm, model.dtype)
        y = y.index_select(0, tokens.state)
        logp, entropy, squares, total = x.new_empty((4, len(y))).unbind()
        size, logits = len(model.logits[0]), y
        pieces = list(chunks(len(y), size))
        for rows in pieces:
            logits = product(y[rows], *model.logits)
            inputs = at(logits), at(tokens.target[rows]), len(logits), size
            to = at(logp[rows]), at(entropy[rows]), at(squares[rows]) if square else None, at(total[rows])
            kernels().scores_forward(*inputs, *to, is_bfloat16(logits))
        if trains:
            ctx.save_for_backward(*weights)  # raises if one of them was modified in place
            ctx.model, ctx.tokens, ctx.activations, ctx.pieces = model, tokens, activations, pieces
            ctx.entropy_grad = entropy_grad
            ctx.end = x, scale, y, total, entropy, logits if len(pieces) == 1 else None
        ctx.mark_non_differentiable(*((squares,) if entropy_grad else (entropy, squares)))
        return logp, entropy, squares

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logp_gradient: Tensor, entropy_gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        model, requires_grad = ctx.model, dict(zip(sorted(ctx.model.weights), ctx.needs_input_grad[4:], strict=True))
        grads = _Gradients(model, requires_grad)
        grad_entropy = entropy_gradient.contiguous() if ctx.entropy_grad else None
        x = _backward_scores(ctx, grads, logp_gradient.contiguous(), grad_entropy)
        for i in reversed(range(len(model.layers))):
            x = _backward_layer(model, ctx.tokens, i, ctx.activations.pop(), grads, x)
        grads.add_embedding(ctx.tokens.ids, x)
        return None, None, None, None, *(grads.of.get(name) for name in requires_grad)


class _Gradients:
    """Gradients by the names of weights, of those that require one."""

    def __init__(self, model: NativeForward, requires_grad: dict[str, bool]) -> None:
        self.model, self.requires_grad = model, requires_grad
        self.of: dict[str, Tensor] = {}

    def linear(self, name: str, x: Tensor, gradient: Tensor) -> Tensor:
        """Take in the gradient [n, out] of the output of a linear layer whose input is `x`; returns that of x."""
        weight = self.model.weights[name].detach()
        gradient = gradient.to(weight.dtype)
        self.add_linear(name, x, gradient)
        return matmul(gradient, weight)

    def add_linear(self, name: str, x: Tensor, gradient: Tensor) -> None:
        """Take in the gradient [n, out], in the weights' number format, of the output of a linear layer."""
        if self.requires_grad[name]:
            self.add(name, matmul(gradient.T, x.to(gradient.dtype)))
        if self.requires_grad.get(f"{name}.bias"):
            self.add(f"{name}.bias", gradient.sum(0))

    def norm(self, name: str, x: Tensor, weight: Tensor, scale: Tensor, gradient: Tensor, of_x: Tensor) -> None:
        """Take in the gradient of the output of `norm`, and add that of x [n, d] to `of_x`."""
        of_weight, inputs = torch.zeros_like(weight), (at(z) for z in (x, weight, scale, gradient))
        kernels().norm_backward(*inputs, *x.shape, at(of_x), at(of_weight), is_bfloat16(gradient))
        if self.requires_grad[name]:
            self.of[name] = of_weight

    def add(self, name: str, grad: Tensor) -> None:
        self.of[name] = self.of[name].float().add_(grad) if name in self.of else grad

    def add_embedding(self, ids: Tensor, gradient: Tensor) -> None:
        """Take in the gradient of the embeddings of `ids`; if logits share the weights, it is added to theirs."""
        if not self.requires_grad["embedding"]:
            return
        embedding, padding = self.model.embedding, self.model.inner.embed_tokens.padding_idx
        if padding is not None:
            ids, gradient = ids[ids != padding], gradient[ids != padding]
        name = "logits" if self.model.weights["logits"] is embedding and "logits" in self.of else "embedding"
        if name not in self.of:
            self.of[name] = torch.zeros_like(embedding)
        self.of[name].index_add_(0, ids, gradient)


def _backward_scores(ctx: Any, grads: _Gradients, logp_gradient: Tensor, entropy_gradient: Tensor | None) -> Tensor:
    """Return the gradient of the output of the last layer."""
    x, scale, y, total, entropy, logits = ctx.end
    model, target, of_y = ctx.model, ctx.tokens.target, y.new_empty(y.shape, dtype=x.dtype)
    for rows in ctx.pieces:
        logits_chunk = product(y[rows], *model.logits) if logits is None else logits
        inputs = (at(z[rows]) for z in (total, entropy, logp_gradient))
        grad_entropy = None if entropy_gradient is None else at(entropy_gradient[rows])
        size, bf16 = logits_chunk.shape, is_bfloat16(logits_chunk)
        kernels().scores_backward(at(logits_chunk), at(target[rows]), *size, *inputs, grad_entropy, bf16)
        of_y[rows] = grads.linear("logits", y[rows], logits_chunk)
    of_state = torch.zeros_like(x).index_add_(0, ctx.tokens.state, of_y)
    of_x = torch.zeros_like(x)
    grads.norm("final_norm", x, model.final_norm[0], scale, of_state, of_x)
    ctx.end = None
    return of_x


def _backward_layer(
    model: NativeForward, tokens: Tokens, i: int, activations: _Activations, grads: _Gradients, gradient: Tensor
) -> Tensor:
    """Return the gradient of a layer's input, given that of its output."""
    layer, is_last = model.layers[i], i + 1 == len(model.layers)
    down = model.weights[f"{i}.down"].detach()
    grad_down = gradient.to(down.dtype)
    grad_gate = matmul(grad_down, down)
    # now `grad_gate` is the input of `down`
    kernels().gate_backward(at(activations.gate_up), *grad_gate.shape, at(grad_gate), is_bfloat16(grad_gate))
    grads.add_linear(f"{i}.down", grad_gate, grad_down)
    _, y, _ = norm(activations.mlp_input, None, *layer.mlp_norm, model.dtype)
    grads.norm(
        f"{i}.mlp_norm",
        activations.mlp_input,
        layer.mlp_norm[0],
        activations.mlp_scale,
        grads.linear(f"{i}.gate_up", y, activations.gate_up),
        gradient,
    )
    out = activations.out.index_select(0, tokens.outputs) if is_last else activations.out
    of_out = grads.linear(f"{i}.out", out, gradient).float()
    if is_last:
        gradient, of_out = (
            z.new_zeros((len(activations.x), z.shape[1])).index_copy_(0, tokens.outputs, z) for z in (gradient, of_out)
        )
    of_qkv = torch.zeros_like(activations.qkv)
    inputs = at(activations.out), at(activations.total), at(of_out)
    kernels().attention_backward(at(activations.qkv), *_attention(tokens, layer), *inputs, at(of_qkv))
    model.rotate(of_qkv, tokens.position, layer, -1.0)
    _, y, _ = norm(activations.x, None, *layer.input_norm, model.dtype)
    of_norm = grads.linear(f"{i}.qkv", y, of_qkv)
    grads.norm(f"{i}.input_norm", activations.x, layer.input_norm[0], activations.scale, of_norm, gradient)
    return gradient
