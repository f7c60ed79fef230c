"""Built-in decoders: the policy's own forward pass with a KV cache, stops, and weights that change inside a sequence.

The noise of a token is one uniform number that its row brings along, so a completion depends on its own numbers, its
prompt and its versions, never on the rows beside it. The three decoders differ on a CPU, and each has bits of its own;
a GPU decodes in place, where they are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..simulator.policy_buffer import PolicyBuffer
from .decoder import DECODERS, Decoded, Decoder, Request
from .decoding import GrowingBatch
from .model.fused_forward import FusedForward
from .static_decoding import StaticBatch


@DECODERS.register("transformers")
class TransformersDecoder(Decoder):
    """The policy's own model and forward pass, in the process of the run."""

    shares_prompts: ClassVar[bool] = False
    """One product over a prompt serves all its completions."""

    prepacks_weights: ClassVar[bool] = False
    """A version's weights are converted for oneDNN's kernels once, and not in each product."""

    def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        policy, rows = self.policy, len(request.prompt)
        shape = rows, request.length
        token = torch.full(shape, policy.pad, device=policy.device)
        mask = torch.zeros(shape, device=policy.device)
        logp = torch.zeros(shape, device=policy.device)
        ended = torch.zeros(rows, dtype=torch.bool, device=policy.device)
        for parts in batches(policy.groups(request.versions), policy.parallel_versions, policy.decode_batch):
            numbers, genuine = pad_parts(parts)
            size = len(numbers) // len(parts)
            index, real = (torch.from_numpy(x).to(policy.device) for x in (numbers, genuine))
            batch: StaticBatch | GrowingBatch
            if policy.decodes_in_place:
                batch = StaticBatch(policy, request, index, real, len(parts))
            else:
                batch = GrowingBatch(policy, request, index, real, len(parts), self.shares_prompts)
            for s, column in enumerate(request.versions[numbers].T):
                first, last = request.spans[s]
                if len(parts) > 1:  # each with weights of its own, perhaps the same
                    acting, position = column[::size], np.repeat(np.arange(len(parts)), size)
                else:
                    acting, position = np.unique(column, return_inverse=True)
                with policy.acting([buffer[v] for v in acting.tolist()], position) as forward:
                    if self.prepacks_weights and not policy.decodes_in_place and isinstance(forward, FusedForward):
                        forward = forward.prepack()
                    batch.advance(forward, first, last)
                if batch.done:
                    break
            output = index[real]
            token[output], mask[output], logp[output], ended[output] = (x[real] for x in batch.result())
        longest = max(1, int(mask.sum(1).max()))
        return Decoded(token[:, :longest], mask[:, :longest], ended, logp[:, :longest], request.version(longest))

    def trusted(self, request: Request) -> bool:
        """Return whether keys and values of earlier versions stay in the cache: then no version alone has the
        distribution that was sampled from."""
        return self.policy.spec.kv_cache == "keep" and request.versions.shape[1] > 1


@DECODERS.register("shared_prompts")
class SharedPromptsDecoder(TransformersDecoder):
    """Reads the keys and values of a prompt once for all its completions; on a CPU faster, in bfloat16 by far."""

    shares_prompts = True


@DECODERS.register("packed_weights")
class PackedWeightsDecoder(SharedPromptsDecoder):
    """Prepacks weights too: on a CPU the fastest in float32, where a product of 32 rows takes half as long."""

    prepacks_weights = True


def batches(groups: Sequence[NDArray[np.int64]], parallel: int, most: int) -> Iterator[list[NDArray[np.int64]]]:
    """Yield batches to decode at once, part by part: of at most `parallel` groups, and `most` rows in all; 0: any."""
    for first in range(0, len(groups), parallel):
        some = groups[first : first + parallel]
        longest = max(map(len, some))
        size = max(1, most // len(some)) if most else longest
        for begin in range(0, longest, size):
            yield [group[begin : begin + size] for group in some if len(group) > begin]


def pad_parts(parts: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rows of all parts, each as long as the longest by repeating its first row, and a mask of its own."""
    size = max(map(len, parts))
    rows = [np.r_[part, np.full(size - len(part), part[0])] for part in parts]
    return np.concatenate(rows), np.concatenate([np.arange(size) < len(part) for part in parts])
