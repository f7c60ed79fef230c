"""The gradient of one minibatch.

The loss is first taken as a function of the minibatch's log-probabilities; its gradient with respect to these
then goes through the model piece by piece. So every mean and every statistic that a method takes is that of the
whole minibatch, and micro-batching changes nothing.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..simulator.answers import loss_of
from ..simulator.learning import Gradient
from .minibatch import Minibatch, pieces
from .policy import Entropy, TokenPolicy
from .spec import TokenSpec
from .statistics import of_step
from .targets import group_relative_advantage
from .timer import Timer


def gradient(spec: TokenSpec, policy: TokenPolicy, algorithm: Algorithm, batch: Minibatch, timer: Timer) -> Gradient:
    """Add dLoss/dθ to the gradients of the policy's parameters."""
    begin = time.perf_counter()
    parts = pieces(batch.data, policy.micro_batch)
    whole = len(parts) == 1
    square = "logit_norm" in algorithm.needs
    bonus: Entropy = "gradient" if spec.entropy_coef > 0 else "value"
    with torch.set_grad_enabled(whole):
        scored = [policy.score(p.prompt, p.prompt_mask, p.token, p.mask, None, bonus, square) for p in parts]
    through = torch.cat([s.logp for s in scored])
    entropy = torch.cat([s.entropy for s in scored if s.entropy is not None])
    norms = torch.cat([s.norm for s in scored if s.norm is not None]) if square else None
    target_logp = through.detach().requires_grad_()
    begin = timer("train", begin)
    now = target_logp.detach()
    fixed = None if algorithm.realign_every == "step" else batch.aligned_logp
    advantage = group_relative_advantage(spec, algorithm, batch, now if fixed is None else fixed)
    decisions = batch.decisions(target_logp, advantage, norms)
    answer = loss_of(algorithm, decisions)
    loss = (batch.weights * answer.loss).sum()
    if loss.requires_grad:
        loss.backward()
    pull = target_logp.grad if target_logp.grad is not None else torch.zeros_like(now)
    begin = timer("loss", begin)
    entropy_pull = -spec.entropy_coef * batch.weights
    if whole:
        _backward(through, entropy, pull, entropy_pull)
    else:
        at = 0
        for p in parts:
            again = policy.score(
                p.prompt, p.prompt_mask, p.token, p.mask, None, "gradient" if bonus == "gradient" else "none"
            )
            piece = slice(at, at + len(p.token))
            _backward(again.logp, again.entropy, pull[piece], entropy_pull[piece])
            at += len(p.token)
    timer("train", begin)
    log = of_step(decisions, answer, pull, entropy.detach(), batch.weights, algorithm.proximal)
    return Gradient(decisions, answer, log)


def _backward(logp: Tensor, entropy: Tensor | None, pull: Tensor, entropy_pull: Tensor) -> None:
    """Carry dL/dlogp, and the entropy bonus's where there is one, into the parameters' gradients."""
    if entropy is not None and entropy.requires_grad:
        torch.autograd.backward([logp, entropy], [pull, entropy_pull])
    else:
        torch.autograd.backward([logp], [pull])
