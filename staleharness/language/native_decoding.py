"""Decoding by C++ between packed products (`decoder=native`): rows of one version, whose prompts are stored once."""

from __future__ import annotations

import torch
from torch import Tensor

from ..tokens.policy_interface import Forward
from .batched_generation import GrowingBatch
from .model.kv_cache import DistinctPrompts, distinct_prompts
from .model.native_forward_backward import NativeForward, lay_out, product
from .model.native_kernels import WIDTH, at, is_bfloat16, kernels, norm


class NativeCache:
    """Keys (of prompts transposed) and values of prompts and of the tokens that continue them, layer by layer."""

    def __init__(self, columns: int) -> None:
        """columns: tokens beyond the prompts, at most."""
        self.columns, self.length = columns, 0
        self.prompt: list[tuple[Tensor, Tensor]] = []  # [U, groups, head, P], [U, groups, P, head]
        self.completion: list[tuple[Tensor, Tensor]] = []  # [B, groups, columns, head] both
        self.tokens = self.prompt_index = torch.empty(0, dtype=torch.long)  # of each prompt; the prompt of each row

    def begin(self, forward: NativeForward, prompts: DistinctPrompts, rows: int) -> Tensor:
        """Read all prompts; returns the logits [B, V] of the first token of each row."""
        layout = lay_out(prompts, prompts.ids.new_zeros((rows, 1)), torch.ones((rows, 1)))
        caches: list[Tensor] = []
        x = forward.states(layout, caches=caches)
        self.prompt_index = torch.arange(rows) if prompts.prompt_index is None else prompts.prompt_index
        self.tokens = prompts.mask.sum(1)
        width = int(self.tokens.max())
        width += -width % WIDTH
        for layer, qkv in zip(forward.layers, caches, strict=True):
            heads, groups = layer.heads
            shape = len(self.tokens), groups, layer.head, width
            keys, values = x.new_zeros(shape), x.new_zeros((*shape[:2], width, layer.head))
            sizes = shape[0], heads, groups, layer.head, width
            kernels().store(at(qkv), at(layout.sequences), *sizes, at(keys), at(values))
            self.prompt.append((keys, values))
            shape = rows, groups, self.columns, layer.head
            self.completion.append((x.new_empty(shape), x.new_empty(shape)))
        return _logits(forward, x).index_select(0, layout.state)

    def step(self, forward: NativeForward, ids: Tensor) -> Tensor:
        """Return the logits [B, V] after one more token [B] of each row."""
        call, count = kernels(), len(ids)
        position = self.tokens.index_select(0, self.prompt_index) + self.length
        x = forward.embedding.detach().index_select(0, ids)
        layer = forward.layers[0]
        (heads, groups), head = layer.heads, layer.head
        scale, out = x.new_empty(count), x.new_empty((count, heads * head))
        y = x.new_empty(x.shape, dtype=forward.dtype)
        act, bf16 = y.new_empty((count, len(layer.gate_up[0]) // 2)), is_bfloat16(y)
        # addresses once for all layers: with few rows, asking for them costs as much as the kernels
        at_x, at_y, at_scale, at_out, at_act = map(at, (x, y, scale, out, act))
        at_rows, at_tokens, at_position = map(at, (self.prompt_index, self.tokens, position))
        assert forward.rotations is not None
        cos, sin = map(at, forward.rotations)
        branch: Tensor | None = None
        for layer, prompt, completion in zip(forward.layers, self.prompt, self.completion, strict=True):
            weight, epsilon = layer.input_norm
            call.norm_forward(at_x, at(branch), at(weight), *x.shape, epsilon, at_x, at_y, at_scale, bf16)
            qkv = product(y, *layer.qkv).float()
            at_qkv = at(qkv)
            call.rotate(at_qkv, qkv.shape[1], at_position, cos, sin, count, heads + groups, head, 1.0)
            sizes = count, heads, groups, head, self.length, layer.scale
            prompt_arguments = prompt[0].data_ptr(), prompt[1].data_ptr(), at_tokens, prompt[0].shape[3]
            memory = completion[0].data_ptr(), completion[1].data_ptr(), self.columns
            call.decode(at_qkv, at_rows, *sizes, *prompt_arguments, *memory, at_out)
            branch = product(out, *layer.out)
            weight, epsilon = layer.mlp_norm
            call.norm_forward(at_x, at(branch), at(weight), *x.shape, epsilon, at_x, at_y, at_scale, bf16)
            gate_up = product(y, *layer.gate_up)
            call.gate_forward(at(gate_up), *act.shape, at_act, bf16)
            branch = product(act, *layer.down)
        self.length += 1
        assert branch is not None
        return _logits(forward, x.add_(branch))

    def select(self, rows: Tensor) -> None:
        """Continue with these rows alone."""
        self.prompt_index = self.prompt_index.index_select(0, rows)
        self.completion = [
            (keys.index_select(0, rows), values.index_select(0, rows)) for keys, values in self.completion
        ]


def _logits(forward: NativeForward, x: Tensor) -> Tensor:
    y = norm(x, None, *forward.final_norm, forward.dtype)[1]
    return product(y, *forward.logits)


class NativeBatch(GrowingBatch):
    """Rows of one version, decoded by the functions of `native/`."""

    def _logits(self, forward: Forward, t: int) -> Tensor:
        assert isinstance(forward, NativeForward)
        if self.cache is None:
            forward.extend_positions(self.width + self.length)
            cache = self.cache = NativeCache(self.length)
            return cache.begin(forward, distinct_prompts(True, self.prompt, self.prompt_mask), len(self.prompt))
        logits: Tensor = self.cache.step(forward, self.token[:, t - 1])
        return logits

    def _sample(self, logits: Tensor, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        if any(model.truncates for model in self.sampling):  # the library treats −∞ as a fault
            return super()._sample(logits, uniform)
        token, logp = torch.empty(len(logits), dtype=torch.long), torch.empty(len(logits))
        noise = None if uniform is None else uniform.contiguous()
        kernels().sample(at(logits.contiguous()), at(noise), *logits.shape, at(token), at(logp), is_bfloat16(logits))
        return token, logp
