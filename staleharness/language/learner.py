"""Learning from one generation round: N minibatches of whole completions, the policy alone (no critic)."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..batch import Completions
from ..errors import Diverged
from ..ewma import ewma_update
from ..objectives import aggregation_weights, masked_mean, step_factor
from ..policies.scoring import Forward, TokenPolicy
from ..streams import stream
from .gradient import Gradient, gradient
from .minibatch import Minibatch, TokenSpec, pieces
from .row_gradients import gradient_by_rows
from .statistics import of_clipping, of_lag, of_proximal, of_round, of_weights
from .timer import Timer


class TokenLearner:
    """The target policy's training. Holds the optimiser, the method's state and, where asked for, the shadow."""

    def __init__(self, spec: TokenSpec, policy: TokenPolicy, algorithm: Algorithm) -> None:
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
        aligned = start  # the learner that targets are asked under
        for epoch in range(spec.epochs):
            if epoch > 0 and self.algorithm.realign_every == "epoch" and aligned is not None:
                begin = time.perf_counter()
                aligned = self._score(data)
                timer("proximal", begin)
            order = np.arange(groups)
            if epoch > 0:
                order = stream(spec.seed, "minibatch", phase, epoch).permutation(groups)
            for part in np.array_split(order, spec.minibatches):
                if epoch == 0 and len(part) == groups:  # all of it, in order: nothing to copy
                    batch = self._minibatch(data, taught, start, phase, timer)
                else:
                    rows = (part[:, None] * spec.completions + np.arange(spec.completions)).ravel()
                    index = torch.from_numpy(rows).to(self.policy.device)
                    anchor = None if start is None else start[index]
                    batch = self._minibatch(data.rows(index), taught[index], anchor, phase, timer)
                    if aligned is not None:
                        batch = replace(batch, aligned_logp=aligned[index])
                log.append(self._step(batch, rate, timer))
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

    def _minibatch(
        self, data: Completions, mask: Tensor, start: Tensor | None, phase: int, timer: Timer
    ) -> Minibatch:
        """`mask` [B, T] is 1 where a token teaches; `start` [B, T] is π_T where it was asked for."""
        begin = time.perf_counter()
        proximal_logp = self._proximal_logp(data, start)
        begin = timer("proximal", begin)
        reference_logp = None if self.reference is None else self._reference_logp(data)
        timer("loss", begin)
        return Minibatch(
            data=data,
            mask=mask,
            weights=aggregation_weights(mask, self.spec.aggregation, self.spec.completion_tokens),
            proximal_logp=proximal_logp,
            aligned_logp=start,
            reference_logp=reference_logp,
            lag=(phase - data.version).float(),
            gradient_lag=(self.gradient_steps - data.gradient_step).float(),
            state=self.state,
        )

    def _step(self, batch: Minibatch, rate: float, timer: Timer) -> dict[str, Tensor]:
        """One gradient step on one minibatch. Returns scalars."""
        spec, algorithm, mask = self.spec, self.algorithm, batch.mask
        self.optimizer.zero_grad(set_to_none=True)
        taken = self._gradient(batch, timer)
        begin = time.perf_counter()
        decisions, answer = taken.decisions, taken.answer
        scale = algorithm.step_scale(decisions) * step_factor(decisions, spec.step_size)
        norm = self._optimise(rate * scale)
        timer("train", begin)
        with torch.no_grad():
            own = {f"algorithm/{key}": masked_mean(x.float(), mask) for key, x in answer.diagnostics.items()}
            if taken.second_moment is not None:
                own["second_moment_ratio"] = taken.second_moment
            return {
                "policy_loss": (batch.weights * answer.loss).sum().detach(),
                "entropy": masked_mean(taken.entropy, mask),
                "grad_norm": norm,
                "step_scale": torch.tensor(scale, device=norm.device),
                **of_weights(decisions.target_logp.detach(), batch.data.behaviour_logp, mask),
                **of_proximal(decisions, answer, algorithm.proximal != "behaviour", mask),
                **of_clipping(taken.pull, decisions.advantage, mask),
                **own,
            }

    def _gradient(self, batch: Minibatch, timer: Timer) -> Gradient:
        way = gradient_by_rows if self.algorithm.optimal_baseline else gradient
        return way(self.spec, self.policy, self.algorithm, batch, timer)

    def _proximal_logp(self, data: Completions, start: Tensor | None) -> Tensor:
        """Log-probabilities [B, T] under the anchor that the method asks for."""
        if self.algorithm.proximal == "ewma":
            return self._shadow_logp(data)
        if self.algorithm.proximal == "recompute":
            assert start is not None
            return start
        return data.behaviour_logp

    def _reference_logp(self, data: Completions) -> Tensor:
        """Log-probabilities [B, T] under the policy that the run began with."""
        assert self.reference is not None
        with self.policy.acting([self.reference], np.zeros(len(data.token), dtype=np.int64)) as forward:
            return self._score(data, forward)

    def _shadow_logp(self, data: Completions) -> Tensor:
        """Log-probabilities [B, T] under the moving average of the parameters."""
        learner = [p.data for p in self.parameters]
        try:
            for p, mean in zip(self.parameters, self.shadow, strict=True):
                p.data = mean
            return self._score(data)
        finally:
            for p, kept in zip(self.parameters, learner, strict=True):
                p.data = kept

    def _score(self, data: Completions, forward: Forward | None = None) -> Tensor:
        """Log-probabilities [B, T] without gradient, of the learner as it stands unless another pass is given."""
        with torch.no_grad():
            found = [
                self.policy.score(p.prompt, p.prompt_mask, p.token, p.mask, forward, "none").logp
                for p in pieces(data, self.policy.micro_batch)
            ]
        return torch.cat(found)

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
