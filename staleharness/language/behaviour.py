"""The behaviour log-probability of each token, written once: the decoder's own, or teacher-forced afterwards."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..simulator.policy_buffer import PolicyBuffer
from ..tokens.token_minibatch import parts
from .decoder import Decoded, Decoder, Request


def behaviour_logp(decoder: Decoder, request: Request, decoded: Decoded, buffer: PolicyBuffer) -> Tensor:
    """[B, T], 0 at padding: of each token under the version that sampled it."""
    return decoded.logp if decoder.trusted(request) else teacher_forced(decoder, request, decoded, buffer)


def teacher_forced(decoder: Decoder, request: Request, decoded: Decoded, buffer: PolicyBuffer) -> Tensor:
    """The log-probability [B, T] of each token by the trainer's arithmetic, under the version that sampled it."""
    policy = decoder.policy
    logp = torch.zeros_like(decoded.mask)
    versions: NDArray[np.int64] = decoded.version.cpu().numpy()
    if policy.scores_ahead and _by_learner(decoder, versions, buffer):
        given = request.prompt, request.prompt_mask, decoded.token, decoded.mask
        return policy.score_ahead(*given).logp.detach()
    with torch.no_grad():
        for group in policy.groups(versions):
            for part in parts(group, policy.micro_batch):
                index = torch.from_numpy(part).to(policy.device)
                for first, last in _stretches(versions[part]):
                    used, position = np.unique(versions[part, first], return_inverse=True)
                    with policy.acting([buffer[v] for v in used.tolist()], position) as forward:
                        scored = policy.score(
                            request.prompt[index],
                            request.prompt_mask[index],
                            decoded.token[index],
                            decoded.mask[index],
                            forward,
                            entropy="none",
                        )
                    logp[index, first:last] = scored.logp[:, first:last]
    return logp


def _by_learner(decoder: Decoder, versions: NDArray[np.int64], buffer: PolicyBuffer) -> bool:
    """Whether every token was sampled by the learner as it stands, and all rows go through the model at once."""
    first, policy = int(versions.flat[0]), decoder.policy
    whole = policy.micro_batch == 0 or len(versions) <= policy.micro_batch
    return whole and bool((versions == first).all()) and policy.is_learner(buffer[first])


def _stretches(versions: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(first, behind the last) of the runs of columns of [B, T] in which no row changes its version."""
    changes = np.flatnonzero((versions[:, 1:] != versions[:, :-1]).any(0)) + 1
    return list(pairwise([0, *changes.tolist(), versions.shape[1]]))
