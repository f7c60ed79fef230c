"""Log-probabilities of sampled tokens: those of the acting versions by teacher forcing, and the behaviour policy's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..rollout_schedule import Ints
from ..tokens.policy_interface import TokenScores
from ..tokens.token_minibatch import parts
from ..training.policy_buffer import PolicyBuffer
from .decoder_interface import Decoded, Decoder, Request, samples_mu


def behaviour_logp(decoder: Decoder, request: Request, decoded: Decoded, version_logp: Tensor) -> Tensor:
    """Return log μ [B, T] of each token, 0 at padding, as the run's `behaviour` says: the decoder's own number, or
    `version_logp`. Raises `UserError` where that is the decoder's, and it reports none."""
    spec = decoder.policy.spec
    if not (samples_mu(spec) or (spec.behaviour == "auto" and decoder.trusted(request))):
        return version_logp
    if decoded.logp is None:
        raise UserError(f"the decoder {decoder.name} reports no log-probabilities to take μ from")
    return decoded.logp


def teacher_force(decoder: Decoder, request: Request, decoded: Decoded, buffer: PolicyBuffer) -> TokenScores:
    """Return log-probabilities and entropies of the version that sampled each token, by the trainer's arithmetic."""
    policy = decoder.policy
    logp, entropy = torch.zeros_like(decoded.mask), torch.zeros_like(decoded.mask)
    width = request.prompt.shape[1]
    routers = policy.routers
    experts = None if routers is None else routers.unknown(len(logp), width + logp.shape[1], policy.device)
    replay = decoded.experts if policy.spec.routing_replay == "R3" else None
    versions: Ints = decoded.version.cpu().numpy()
    completions = request.prompt, request.prompt_mask, decoded.token, decoded.mask
    if policy.caches_score and _is_one_learner_batch(decoder, versions, buffer):
        scores = policy.cache_score(*completions)
        assert scores.entropy is not None
        return TokenScores(scores.logp.detach(), scores.entropy.detach(), None)
    with torch.no_grad():
        for group in reversed(policy.groups(versions)):  # first those that decoded last, whose weights are at hand
            version_of_token = versions[group[0]]  # and of each other row
            for part in parts(group, policy.micro_batch):
                index, position = torch.from_numpy(part).to(policy.device), np.zeros(len(part), np.int64)
                for first, last in _spans_of_versions(version_of_token):
                    with policy.acting([buffer[int(version_of_token[first])]], position) as forward:
                        prompt, prompt_mask, token, mask = (x[index] for x in completions)
                        experts_of_part = None if replay is None else replay[index]
                        scores = policy.score(prompt, prompt_mask, token, mask, forward, experts=experts_of_part)
                    assert scores.entropy is not None
                    logp[index, first:last] = scores.logp[:, first:last]
                    entropy[index, first:last] = scores.entropy[:, first:last]
                    if experts is not None and scores.experts is not None:
                        read = slice(width - 1 + first if first else 0, width - 1 + last)
                        experts[index, read] = scores.experts[:, read]
    return TokenScores(logp, entropy, None, experts)


def _is_one_learner_batch(decoder: Decoder, versions: Ints, buffer: PolicyBuffer) -> bool:
    """Return whether the learner as it is sampled every token, and all rows go through the model at once."""
    first, policy = int(versions.flat[0]), decoder.policy
    at_once = policy.micro_batch == 0 or len(versions) <= policy.micro_batch
    return at_once and bool((versions == first).all()) and policy.is_learner(buffer[first])


def _spans_of_versions(versions: Ints) -> list[tuple[int, int]]:
    """Return (first, end) of the runs of tokens of one version, given those of each token [T]."""
    changes = np.flatnonzero(versions[1:] != versions[:-1]) + 1
    return list(pairwise([0, *changes.tolist(), len(versions)]))
