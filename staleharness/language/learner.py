"""Learning from one generation round: N minibatches of whole completions, the policy alone (no critic).

A minibatch's loss is first taken as a function of its log-probabilities; the gradient with respect to these then
goes through the model piece by piece. So every mean and every statistic a method takes is that of the whole
minibatch, and micro-batching changes nothing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..batch import Completions, Decisions, PolicyLoss, Targets, Trajectories
from ..chain.spec import ChainSpec
from ..errors import Diverged
from ..ewma import ewma_update
from ..objectives import aggregation_weights, group_baseline, masked_mean, step_factor
from ..policies.scoring import Entropy, Forward, TokenPolicy
from ..spec import LanguageSpec
from ..streams import stream
from .decoding import parts
from .row_gradients import RowGradients
from .statistics import of_clipping, of_lag, of_proximal, of_round, of_weights


@dataclass
class Timer:
    """Seconds by what they were spent on; waits for the GPU so that they are its own."""

    device: torch.device
    seconds: defaultdict[str, float]

    def __call__(self, name: str, begin: float) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[name] += now - begin
        return now


class _Taken(NamedTuple):
    """What a gradient step was made of; the gradient itself lies with the parameters."""

    decisions: Decisions
    answer: PolicyLoss
    pull: Tensor  # dL/dlogp [B, T]
    entropy: Tensor  # [B, T]
    second_moment: Tensor | None = None  # [] that of the rows' gradients, see `_row_gradients`


class TokenLearner:
    """The target policy's training. Holds the optimiser, the method's state and, where asked for, the shadow."""

    def __init__(self, spec: LanguageSpec | ChainSpec, policy: TokenPolicy, algorithm: Algorithm) -> None:
        self.spec, self.policy, self.algorithm = spec, policy, algorithm
        self.parameters = list(policy.parameters.values())
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=spec.learning_rate,
            eps=spec.adam_epsilon,
            weight_decay=spec.weight_decay,
            fused=True,
        )
        self.gradient_steps = 0
        self.state = algorithm.init_state()
        self.shadow = [p.detach().clone() for p in self.parameters] if algorithm.proximal == "ewma" else []
        self.shadow_weight = 1.0
        # the policy that the run began with, where the method pulls towards it; a resumed run begins with it again
        self.reference = policy.snapshot(0, 0) if "reference" in algorithm.needs else None

    def train(self, data: Completions, phase: int) -> tuple[dict[str, Any], dict[str, float]]:
        """All minibatches of the round, `epochs` times; returns (diagnostics, seconds).

        Raises `Diverged` when a loss, a gradient or a parameter is no longer finite.
        """
        spec = self.spec
        rate = spec.learning_rate * ((1.0 - phase / spec.phases) if spec.anneal_learning_rate else 1.0)
        timer = Timer(self.policy.device, defaultdict(float, proximal=0.0, loss=0.0, train=0.0))
        taught = data.mask * (1.0 - data.truncated.float()[:, None]) if spec.mask_truncated else data.mask
        begin = time.perf_counter()
        start = self._score(data) if self._asks_for_start() else None
        timer("proximal", begin)
        report: dict[str, Any] = of_round(data, spec.completions) | of_lag(data, phase, self.gradient_steps)
        log: list[dict[str, Tensor]] = []
        groups = len(data.token) // spec.completions
        for epoch in range(spec.epochs):
            order = np.arange(groups)
            if epoch > 0:
                order = stream(spec.seed, "minibatch", phase, epoch).permutation(groups)
            for part in np.array_split(order, spec.minibatches):
                if epoch == 0 and len(part) == groups:  # all of it, in order: nothing to copy
                    log.append(self._step(data, taught, start, phase, rate, timer))
                    continue
                rows = (part[:, None] * spec.completions + np.arange(spec.completions)).ravel()
                index = torch.from_numpy(rows).to(self.policy.device)
                anchor = None if start is None else start[index]
                log.append(self._step(data.rows(index), taught[index], anchor, phase, rate, timer))
        report |= self._summarise(log, phase)
        report |= {"learning_rate": rate, "gradient_steps": self.gradient_steps}
        own = {key.removeprefix("algorithm/"): v for key, v in report.items() if key.startswith("algorithm/")}
        self.state = self.algorithm.next_state(self.state, own)
        report |= {f"algorithm/{key}": value for key, value in self.state.items()}
        return report, dict(timer.seconds)

    def _asks_for_start(self) -> bool:
        """Whether π_T, the learner at the start of the phase, costs a pass of its own: a method anchors on it, or
        takes its targets under it and there is more than one gradient step before it is gone."""
        if self.algorithm.proximal == "recompute":
            return True
        own = type(self.algorithm).targets is not Algorithm.targets
        return own and self.algorithm.realign_every != "step" and self.spec.steps_per_phase > 1

    def _score(self, data: Completions, forward: Forward | None = None) -> Tensor:
        """Log-probabilities [B, T] without gradient, of the learner as it stands unless another pass is given."""
        with torch.no_grad():
            found = [
                self.policy.score(part.prompt, part.prompt_mask, part.token, part.mask, forward, "none").logp
                for part in self._pieces(data)
            ]
        return torch.cat(found)

    def _pieces(self, data: Completions) -> list[Completions]:
        rows = parts(np.arange(len(data.token)), self.policy.micro_batch)
        if len(rows) == 1:
            return [data]
        return [data.rows(torch.from_numpy(part).to(self.policy.device)) for part in rows]

    def _step(
        self,
        data: Completions,
        mask: Tensor,
        start: Tensor | None,
        phase: int,
        rate: float,
        timer: Timer,
    ) -> dict[str, Tensor]:
        """One gradient step on one minibatch; `mask` [B, T] is 1 where a token teaches. Returns scalars."""
        spec, algorithm = self.spec, self.algorithm
        weights = aggregation_weights(mask, spec.aggregation, spec.completion_tokens)
        begin = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        if algorithm.optimal_baseline:
            taken = self._row_gradients(data, mask, weights, start, phase)
            begin = timer("train", begin)
        else:
            taken = self._gradients(data, mask, weights, start, phase, timer)
            begin = time.perf_counter()
        decisions, answer = taken.decisions, taken.answer
        scale = algorithm.step_scale(decisions) * step_factor(decisions, spec.step_size)
        norm = self._optimise(rate * scale)
        timer("train", begin)
        now = decisions.target_logp.detach()
        with torch.no_grad():
            own = {f"algorithm/{key}": masked_mean(x.float(), mask) for key, x in answer.diagnostics.items()}
            if taken.second_moment is not None:
                own["second_moment_ratio"] = taken.second_moment
            return {
                "policy_loss": (weights * answer.loss).sum().detach(),
                "entropy": masked_mean(taken.entropy.detach(), mask),
                "grad_norm": norm,
                "step_scale": torch.tensor(scale, device=norm.device),
                **of_weights(now, data.behaviour_logp, mask),
                **of_proximal(decisions, answer, algorithm.proximal != "behaviour", mask),
                **of_clipping(taken.pull, decisions.advantage, mask),
                **own,
            }

    def _gradients(
        self, data: Completions, mask: Tensor, weights: Tensor, start: Tensor | None, phase: int, timer: Timer
    ) -> _Taken:
        """The minibatch's gradient, left with the parameters: dL/dlogp of all of it, then piece by piece."""
        spec, algorithm = self.spec, self.algorithm
        begin = time.perf_counter()
        pieces = self._pieces(data)
        whole = len(pieces) == 1
        square = "logit_norm" in algorithm.needs
        bonus: Entropy = "gradient" if spec.entropy_coef > 0 else "value"
        with torch.set_grad_enabled(whole):
            scored = [
                self.policy.score(p.prompt, p.prompt_mask, p.token, p.mask, None, bonus, square)
                for p in pieces
            ]
        through = torch.cat([piece.logp for piece in scored])
        entropy = torch.cat([piece.entropy for piece in scored if piece.entropy is not None])
        norms = torch.cat([s.norm for s in scored if s.norm is not None]) if square else None
        target_logp = through.detach().requires_grad_()
        begin = timer("train", begin)
        proximal_logp = self._proximal(data, start)
        begin = timer("proximal", begin)
        now = target_logp.detach()
        advantage = self._advantage(data, mask, now if start is None else start, now, phase)
        decisions = self._decisions(data, mask, target_logp, proximal_logp, advantage, phase, norms)
        answer = algorithm.policy_loss(decisions)
        loss = (weights * answer.loss).sum()
        if loss.requires_grad:
            loss.backward()
        pull = target_logp.grad if target_logp.grad is not None else torch.zeros_like(now)
        begin = timer("loss", begin)
        entropy_pull = -spec.entropy_coef * weights
        if whole:
            self._backward(through, entropy, pull, entropy_pull)
        else:
            at = 0
            needed: Entropy = "gradient" if bonus == "gradient" else "none"
            for p in pieces:
                again = self.policy.score(p.prompt, p.prompt_mask, p.token, p.mask, None, needed)
                piece = slice(at, at + len(p.token))
                self._backward(again.logp, again.entropy, pull[piece], entropy_pull[piece])
                at += len(p.token)
        timer("train", begin)
        return _Taken(decisions, answer, pull, entropy.detach())

    def _row_gradients(
        self, data: Completions, mask: Tensor, weights: Tensor, start: Tensor | None, phase: int
    ) -> _Taken:
        """The same with the method's own baseline b per group, from a single backward pass over each row.

        With u_i the gradient of row i at advantage 1 and m the run's own baseline, a group contributes
        Σ (R_i − m)/σ u_i − (b − m) Σ u_i/σ, and b is known when its last row has been through (Huang et al. 2026,
        arXiv:2602.17616, section 4.2, where m = 0: with equal rewards the two sums are then 1/σ = 1e6 times too large
        and their difference is rounding).

        Also Σ ‖u_i (R_i − b)/σ‖² / Σ ‖u_i (R_i − m)/σ‖², the share of the gradient's second moment that is left by
        b in place of m; 1 where no group has anything to say.
        """
        mean, sigma = group_baseline(data.outcome, data.group, self.spec.baseline)
        centred = (data.outcome - mean) / sigma
        proximal_logp = self._proximal(data, start)
        sums = RowGradients(self.parameters)
        logp, entropy, pull = torch.zeros_like(mask), torch.zeros_like(mask), torch.zeros_like(mask)
        baseline, squared = torch.zeros_like(sigma), torch.zeros_like(sigma)
        for group in data.group.unique():
            rows = (data.group == group).nonzero()[:, 0]
            norms = torch.zeros_like(sigma[rows])
            for i, row in enumerate(rows):
                at = row[None]
                one, width = data.rows(at), int(data.mask[row].sum())
                token, valid = one.token[:, :width], one.mask[:, :width]
                scored = self.policy.score(one.prompt, one.prompt_mask, token, valid)
                assert scored.entropy is not None
                leaf = torch.zeros_like(one.mask)
                leaf[:, :width] = scored.logp.detach()
                logp[row], entropy[row, :width] = leaf[0], scored.entropy[0].detach()
                leaf.requires_grad_()
                alone = self._decisions(one, mask[at], leaf, proximal_logp[at], mask[at], phase, None)
                ((weights[at] * self.algorithm.policy_loss(alone).loss).sum()).backward()
                assert leaf.grad is not None
                sums.next_row(float(centred[row]), float(1.0 / sigma[row]))
                with sums.taking():
                    torch.autograd.backward([scored.logp], [leaf.grad[:, :width]])
                pull[row] = leaf.grad[0]
                squared[row] = sums.squared_norm
                norms[i] = sums.squared_norm / weights[row].max().clamp(min=1e-30).square()
            together = data.rows(rows)
            seen = self._decisions(
                together, mask[rows], logp[rows], proximal_logp[rows], mask[rows], phase, None
            )
            baseline[rows] = self.algorithm.row_baseline(seen, norms)
            sums.end_group(float(mean[rows[0]] - baseline[rows[0]]))
        for p, gradient in zip(self.parameters, sums.total, strict=True):
            p.grad = gradient
        advantage = ((data.outcome - baseline) / sigma)[:, None] * mask
        decisions = self._decisions(data, mask, logp, proximal_logp, advantage, phase, None)
        of_mean = (squared * centred.square()).sum()
        of_own = (squared * ((data.outcome - baseline) / sigma).square()).sum()
        ratio = torch.where(of_mean > 0, of_own / of_mean.clamp(min=1e-30), 1.0)
        answer = self.algorithm.policy_loss(decisions)
        return _Taken(decisions, answer, pull * advantage, entropy, ratio)

    def _proximal(self, data: Completions, start: Tensor | None) -> Tensor:
        """Log-probabilities [B, T] of the anchor that the method asks for."""
        if self.algorithm.proximal == "ewma":
            return self._shadow_logp(data)
        if self.algorithm.proximal == "recompute":
            assert start is not None
            return start
        return data.behaviour_logp

    def _decisions(
        self,
        data: Completions,
        mask: Tensor,
        target_logp: Tensor,
        proximal_logp: Tensor,
        advantage: Tensor,
        phase: int,
        norms: Tensor | None,
    ) -> Decisions:
        return Decisions(
            target_logp=target_logp,
            behaviour_logp=data.behaviour_logp,
            proximal_logp=proximal_logp,
            advantage=advantage,
            lag=(phase - data.version).float(),
            gradient_lag=(self.gradient_steps - data.gradient_step).float(),
            mask=mask,
            state=self.state,
            group=data.group,
            outcome=data.outcome,
            logit_norm=norms,
            reference_logp=self._reference_logp(data) if self.reference is not None else None,
        )

    def _backward(self, logp: Tensor, entropy: Tensor | None, pull: Tensor, entropy_pull: Tensor) -> None:
        """Carry dL/dlogp (and the entropy bonus's) into the parameters' gradients."""
        if entropy is not None and entropy.requires_grad and self.spec.entropy_coef > 0:
            torch.autograd.backward([logp, entropy], [pull, entropy_pull])
        else:
            torch.autograd.backward([logp], [pull])

    def _advantage(self, data: Completions, mask: Tensor, start: Tensor, now: Tensor, phase: int) -> Tensor:
        """What the algorithm's own targets say of rewards that come at the last token and are relative to the group:
        the baseline is the critic's value everywhere, so GAE(1, 1) is the group-relative advantage."""
        spec, valid = self.spec, data.mask
        baseline, scale = group_baseline(data.outcome, data.group, spec.baseline)
        last = valid * (torch.cat([valid[:, 1:], torch.zeros_like(valid[:, :1])], 1) == 0)
        value = (baseline / scale)[:, None] * valid
        next_value = torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], 1)
        logp = now if self.algorithm.realign_every == "step" else start
        with torch.no_grad():
            targets: Targets = self.algorithm.targets(
                Trajectories(
                    reward=(data.outcome / scale)[:, None] * last,
                    discount=spec.discount * valid * (1.0 - last),
                    continues=valid * (1.0 - last),
                    value=value,
                    next_value=next_value,
                    behaviour_logp=data.behaviour_logp,
                    target_logp=logp,
                    lag=(phase - data.version).float(),
                    mask=valid,
                    gae_lambda=spec.gae_lambda,
                )
            )
        advantage = targets.advantage * mask
        if spec.normalise_advantage and self.algorithm.normalise_advantage:
            centred = (advantage - masked_mean(advantage, mask)) * mask
            advantage = centred / (masked_mean(centred.square(), mask).sqrt() + 1e-8)
        return advantage

    def _reference_logp(self, data: Completions) -> Tensor:
        assert self.reference is not None
        with self.policy.acting([self.reference], np.zeros(len(data.token), dtype=np.int64)) as forward:
            return self._score(data, forward)

    def _shadow_logp(self, data: Completions) -> Tensor:
        """Log-probabilities under the moving average of the parameters."""
        learner = [p.data for p in self.parameters]
        try:
            for p, mean in zip(self.parameters, self.shadow, strict=True):
                p.data = mean
            return self._score(data)
        finally:
            for p, kept in zip(self.parameters, learner, strict=True):
                p.data = kept

    def _optimise(self, rate: float) -> Tensor:
        """Clip the gradient's norm, step, update the shadow; returns the norm before clipping."""
        norm: Tensor = torch.nn.utils.clip_grad_norm_(self.parameters, self.spec.max_grad_norm)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        self.gradient_steps += 1
        if self.shadow:
            self.shadow_weight = ewma_update(
                self.shadow, self.parameters, self.shadow_weight, self.algorithm.ewma_decay
            )
        return norm

    def _summarise(self, log: list[dict[str, Tensor]], phase: int) -> dict[str, float]:
        """Means over the phase's gradient steps (extremes of extremes); raises `Diverged` naming what went first."""
        series = {key: torch.stack([entry[key].float() for entry in log]).cpu() for key in log[0]}
        bad = {
            key: int((~torch.isfinite(x)).nonzero()[0])
            for key, x in series.items()
            if not torch.isfinite(x).all()
        }
        if bad:
            where = min(bad, key=bad.__getitem__)
            raise Diverged(f"{where} is not finite at gradient step {bad[where] + 1} of phase {phase}")
        if not all(bool(torch.isfinite(p).all()) for p in self.parameters):
            raise Diverged(f"a parameter is not finite after phase {phase}")
        out = {}
        for key, x in series.items():
            out[key] = float(
                x.max() if key.endswith("_max") else x.min() if key.endswith("_min") else x.mean()
            )
        first = {key: float(series[key][0]) for key in ("tv", "ess", "kl_k1", "kl_k3", "clipped")}
        return out | {
            "tv_data": first["tv"],
            "ess_data": first["ess"],
            "kl_k1_data": first["kl_k1"],
            "kl_k3_data": first["kl_k3"],
            "clipped_first": first["clipped"],
            "clipped_last": float(series["clipped"][-1]),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "parameters": [p.detach() for p in self.parameters],
            "optimizer": self.optimizer.state_dict(),
            "gradient_steps": self.gradient_steps,
            "state": dict(self.state),
            "shadow": list(self.shadow),
            "shadow_weight": self.shadow_weight,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for p, kept in zip(self.parameters, state["parameters"], strict=True):
                p.copy_(kept)
            for mean, kept in zip(self.shadow, state["shadow"], strict=True):
                mean.copy_(kept)
        self.optimizer.load_state_dict(state["optimizer"])
        self.gradient_steps, self.state = state["gradient_steps"], state["state"]
        self.shadow_weight = state["shadow_weight"]
