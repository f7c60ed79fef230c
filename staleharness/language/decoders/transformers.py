"""The policy's own forward pass as decoder: KV cache, left padding, stops, weights that change inside a sequence.

The noise of a token is one uniform number that its row brings along, so a completion depends on its own
numbers, its prompt and its versions, never on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ...simulator.policy_buffer import PolicyBuffer
from ..decoder import DECODERS, Decoded, Decoder, Request
from ..growing_rows import GrowingRows
from ..static_rows import StaticRows


@DECODERS.register("transformers")
class TransformersDecoder(Decoder):
    """The policy's own model and forward pass, in the process of the run."""

    grows: ClassVar[type[GrowingRows]] = GrowingRows  # where a token is not decoded in place

    def decode(self, request: Request, buffer: PolicyBuffer) -> Decoded:
        policy, rows = self.policy, len(request.prompt)
        shape = rows, request.length
        token = torch.full(shape, policy.pad, device=policy.device)
        mask = torch.zeros(shape, device=policy.device)
        logp = torch.zeros(shape, device=policy.device)
        ended = torch.zeros(rows, dtype=torch.bool, device=policy.device)
        kind = StaticRows if policy.decodes_in_place else self.grows
        for parts in batches(policy.groups(request.versions), policy.together, policy.decode_batch):
            numbers, genuine = filled_up(parts)
            size = len(numbers) // len(parts)
            index, real = (torch.from_numpy(x).to(policy.device) for x in (numbers, genuine))
            state = kind(policy, request, index, real, len(parts))
            for s, column in enumerate(request.versions[numbers].T):
                first, last = request.spans[s]
                if len(parts) > 1:  # each with weights of its own, perhaps the same
                    used, position = column[::size], np.repeat(np.arange(len(parts)), size)
                else:
                    used, position = np.unique(column, return_inverse=True)
                with policy.acting([buffer[v] for v in used.tolist()], position) as forward:
                    state.go_on(forward, first, last)
                if state.over:
                    break
            kept = index[real]
            token[kept], mask[kept], logp[kept], ended[kept] = (x[real] for x in state.finished())
        longest = max(1, int(mask.sum(1).max()))
        return Decoded(token[:, :longest], mask[:, :longest], ended, logp[:, :longest], request.version(longest))

    def trusted(self, request: Request) -> bool:
        """Where keys and values of earlier versions stay in the cache, no version alone says what was sampled from."""
        return self.policy.spec.kv_cache == "keep" and request.versions.shape[1] > 1


def batches(groups: Sequence[NDArray[np.int64]], together: int, most: int) -> Iterator[list[NDArray[np.int64]]]:
    """What is decoded at once, part by part: of at most `together` groups, and at most `most` rows in all; 0: any."""
    for first in range(0, len(groups), together):
        some = groups[first : first + together]
        longest = max(map(len, some))
        size = max(1, most // len(some)) if most else longest
        for begin in range(0, longest, size):
            yield [group[begin : begin + size] for group in some if len(group) > begin]


def filled_up(parts: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The rows of all parts, each made as long as the longest by its first row; and which of them are not that."""
    size = max(map(len, parts))
    rows = [np.r_[part, np.full(size - len(part), part[0])] for part in parts]
    return np.concatenate(rows), np.concatenate([np.arange(size) < len(part) for part in parts])
