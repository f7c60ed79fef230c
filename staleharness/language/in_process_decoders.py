"""Built-in decoders: the policy's own forward pass with a KV cache, stops, and weights that change inside a sequence.

The noise of a token is one uniform number that comes with its row, so a completion depends on its own numbers, its
prompt and its versions, never on the rows beside it. The decoders round differently on a CPU; on a GPU all of them
decode in place, with the same bits.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..base.system_info import memory
from ..training.policy_buffer import PolicyBuffer, Version
from .batched_generation import GrowingBatch
from .decoder_interface import DECODERS, Decoded, Decoder, Request, check_decoder_name
from .model.causal_lm_policy import CausalLM
from .model.fused_forward import FusedForward, prepack
from .model.native_forward_backward import NativeForward, supports_native_forward
from .model.routing import mask_unread_tokens
from .native_decoding import NativeBatch
from .static_decoding import StaticBatch
from .version_groups import NO_VERSION, batches, first_numbers_of, join_segments, regroup

FORWARDS_SHARE = 0.2  # of the machine's memory for the weights of versions that act in turn


@DECODERS.register("transformers")
class TransformersDecoder(Decoder):
    """The policy's own model and forward pass, in the process of the run."""

    reads_sampling: ClassVar[bool] = True
    reports_experts: ClassVar[bool] = True

    shares_prompts: ClassVar[bool] = False
    """One product over a prompt serves all its completions."""

    prepacks_weights: ClassVar[bool] = False
    """A version's weights are converted for oneDNN's kernels once, and not in each product."""

    growing_batch: ClassVar[type[GrowingBatch]] = GrowingBatch
    forward_type: ClassVar[type[FusedForward]] = FusedForward

    def _prepack(self, forward: FusedForward) -> FusedForward:
        """Return the same pass without gradient, its matrices converted once for all calls where that is wanted."""
        if not self.prepacks_weights:
            return forward
        return self.forward_type(forward.model, forward.dtype, weights=prepack(forward.weights))

    def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        policy, rows = self.policy, len(request.prompt)
        if request.versions.shape[1] > 1 and policy.fuses and not policy.decodes_in_place:
            return self._decode_by_segment(request, buffer)
        shape = rows, request.length
        token = torch.full(shape, policy.pad, device=policy.device)
        mask = torch.zeros(shape, device=policy.device)
        logp = torch.zeros(shape, device=policy.device)
        ended = torch.zeros(rows, dtype=torch.bool, device=policy.device)
        width, routers = request.prompt.shape[1], policy.routers
        experts = None if routers is None else routers.unknown(rows, width + request.length, policy.device)
        groups = policy.groups(request.versions)
        for numbers in batches(groups, request.versions, policy.parallel_versions, policy.decode_batch):
            index = torch.from_numpy(numbers).to(policy.device)
            batch: StaticBatch | GrowingBatch
            if policy.decodes_in_place:
                batch = StaticBatch(policy, request, index)
            else:
                batch = self.growing_batch(policy, request, index, self.shares_prompts)
            before: list[Version] = []
            for first, last, column in join_segments(request.spans, request.versions[numbers]):
                acting, position = np.unique(column[batch.index.cpu().numpy()], return_inverse=True)
                versions = [buffer[v] for v in acting.tolist()]
                # actors number versions by segment: one that did not change keeps its cache
                keeps_version = len(versions) == len(before) == 1 and versions[0] is before[0]
                if isinstance(batch, GrowingBatch) and policy.spec.kv_cache == "recompute" and not keeps_version:
                    batch.cache = None
                before = versions
                with policy.acting(versions, position) as forward:
                    if isinstance(forward, FusedForward) and not policy.decodes_in_place:
                        forward = self._prepack(forward)
                    if isinstance(batch, StaticBatch):
                        batch.position = position
                    batch.advance(forward, first, last)
                if batch.done:
                    break
            token[index], mask[index], logp[index], ended[index] = batch.result()
            if experts is not None and isinstance(batch, GrowingBatch) and batch.routing is not None:
                experts[index] = batch.routing.out
        return _decoded(request, token, mask, logp, ended, experts)

    def _decode_by_segment(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        """Decode rows whose weights change: rows of one version together, whatever their versions before."""
        policy, rows = self.policy, len(request.prompt)
        size = sum(p.nbytes for p in policy.base_model.parameters())
        remember = lru_cache(max(1, int(FORWARDS_SHARE * memory() / size)))
        forwards = remember(lambda number: self._prepack(policy.version_forward(buffer[number])))
        outputs = []
        first_numbers: dict[int, tuple[Version, int]] = {}
        for numbers in np.array_split(np.arange(rows), math.ceil(rows / (policy.decode_batch or rows))):
            index = torch.from_numpy(numbers)
            start = GrowingBatch(policy, request, index, self.shares_prompts)
            batches: dict[int, GrowingBatch] = {NO_VERSION: start}
            for first, last, column in join_segments(request.spans, request.versions[numbers]):
                if not batches:
                    break
                column = first_numbers_of(column, buffer, first_numbers)
                batches, arrivals = regroup(batches, column)
                for number in sorted({*batches, *arrivals}):
                    pair = batches.get(number), arrivals.get(number)
                    batches[number] = self._advance(forwards(number), *pair, first, last)
                batches = {number: batch for number, batch in batches.items() if not batch.done}
            for batch in batches.values():
                batch.result()
            outputs.append(start.out)
        token, mask, logp, ended = (torch.cat(parts) for parts in zip(*outputs, strict=True))
        return _decoded(request, token, mask, logp * mask, ended)

    def _advance(
        self, forward: FusedForward, batch: GrowingBatch | None, arrivals: GrowingBatch | None, first: int, last: int
    ) -> GrowingBatch:
        """Sample tokens `first` … `last` − 1 of a version's rows and of those that move to it; returns both as one."""
        if batch is None or arrivals is None:
            only = batch or arrivals
            assert only is not None
            only.advance(forward, first, last)
        else:
            if arrivals.cache is None:  # its first token reads all tokens before it
                for growing in (batch, arrivals):
                    growing.advance(forward, first, first + 1)
                first += 1
            done = [growing for growing in (batch, arrivals) if growing.done]
            only = arrivals if batch.done else batch
            for growing in done:
                growing.result()
            if not done:
                batch.join(arrivals)
            if not only.done and first < last:
                only.advance(forward, first, last)
        if only.done:
            only.result()
        return only

    def trusted(self, request: Request) -> bool:
        """Return whether keys and values of earlier versions stay in the cache: then no version alone has the
        distribution that was sampled from."""
        return self.policy.spec.kv_cache == "keep" and request.versions.shape[1] > 1


@DECODERS.register("shared_prompts")
class SharedPromptsDecoder(TransformersDecoder):
    """Reads the keys and values of a prompt once for all its completions; faster on a CPU, in bfloat16 by far."""

    shares_prompts = True


@DECODERS.register("packed_weights")
class PackedWeightsDecoder(SharedPromptsDecoder):
    """Prepacks weights too: on a CPU the fastest in float32, where a product of 32 rows takes half as long."""

    prepacks_weights = True


@DECODERS.register("native")
class NativeDecoder(PackedWeightsDecoder):
    """Computes in C++ what lies between the packed products, on a CPU, for Qwen2 and Llama.

    Rows whose weights change, and other models, are decoded as by `packed_weights`.
    """

    growing_batch, forward_type = NativeBatch, NativeForward

    def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        policy = self.policy
        # bfloat16 with learner=torch keeps the bits that it had before native bfloat16 arithmetic existed
        is_native = policy.precision == torch.float32 or policy.spec.learner == "native"
        serves = policy.fuses and not policy.decodes_in_place and is_native
        if serves and request.versions.shape[1] == 1 and supports_native_forward(policy.base_model):
            return super().decode(request, buffer)
        return PackedWeightsDecoder(policy).decode(request, buffer)


def make_decoder(name: str, policy: CausalLM) -> Decoder:
    """Return the decoder called `name`, for this policy. Raises `UserError` for an unknown name."""
    check_decoder_name(name)
    return DECODERS[name](policy)


def _decoded(
    request: Request, token: Tensor, mask: Tensor, logp: Tensor, ended: Tensor, experts: Tensor | None = None
) -> Decoded:
    """Return completions [B, length] cut to the longest."""
    longest = max(1, int(mask.sum(1).max()))
    if experts is not None:
        experts = mask_unread_tokens(experts, request.prompt_mask, mask)[:, : request.prompt.shape[1] + longest]
    return Decoded(token[:, :longest], mask[:, :longest], ended, logp[:, :longest], request.version(longest), experts)
