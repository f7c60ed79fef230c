"""Base class of learners: epochs × minibatches, gradient steps, the method's state, and a phase's metrics. Each kind of
task defines how a minibatch is made and how its gradient is taken."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from ..algorithm import Algorithm, Stop, defines
from ..batch import BEGINNING, Decisions, PolicyLoss, Progress
from ..errors import Diverged, UserError
from ..objectives import masked_mean, step_factor
from ..spec import RunSpec
from .hook_checks import check_diagnostics, state_of, step_scale_of, stop_of
from .lag_stats import LearnerRows, MinibatchLags

if TYPE_CHECKING:
    from torch import Tensor

    from .optimiser import AdamW

Log = dict[str, "Tensor"]  # metrics of one gradient step: numbers [], or one of each decision [B, T]
Data = TypeVar("Data")  # data of a phase
Minibatch = TypeVar("Minibatch")  # a minibatch of it


class MinibatchLoss(NamedTuple):
    """A minibatch, its loss and its metrics, whose gradient has been added to the parameters' `grad`."""

    decisions: Decisions
    answer: PolicyLoss
    log: Log  # metrics of the step of this kind of task
    reaches_policy: bool = True  # whether the loss depends on the policy, not on the method's own state alone


class Learner(ABC, Generic[Data, Minibatch]):
    """Trains the target policy. Holds the optimiser, the method's state and, for `ewma`, the moving average.

    parameters: those that the optimiser updates; `gradient` leaves their gradients in them.
    policy_parameters: the policy's own among them, which the moving average (the shadow) of `ewma` follows.
    rows: the phase's data for the accounts of lag; a kind of task may set it in `begin`.
    first_lags, last_lags: lags of the phase's first and last minibatch.
    first_epoch_decisions: number of decisions trained on in the phase's first epoch.
    reports_step_scale: the factor on the step size is a metric; not on control, where it would change checksums.
    """

    spec: RunSpec
    reports_step_scale: ClassVar[bool] = True

    def __init__(
        self, spec: RunSpec, algorithm: Algorithm, parameters: Sequence[Tensor], policy_parameters: Sequence[Tensor]
    ) -> None:
        from .optimiser import StateParameters, SuccessiveGradients

        self.algorithm, self.parameters, self.policy_parameters = algorithm, list(parameters), list(policy_parameters)
        self.spec = spec
        self.optimizer = self.make_optimizer()
        self.gradient_steps = 0
        self.state = self._to_device(state_of(algorithm, "init_state", algorithm.init_state()))
        self.successive = SuccessiveGradients(algorithm) if defines(algorithm, "gradient") else None
        self.state_parameters = StateParameters(algorithm, self.state, spec.adam_epsilon)
        self.state |= self.state_parameters.tensors
        self.changes_each_step = defines(algorithm, "step_state")
        self.may_stop, self.progress = defines(algorithm, "stop"), BEGINNING
        self.stop: Stop = "no"
        self.shadow = [p.detach().clone() for p in self.policy_parameters] if algorithm.proximal == "ewma" else []
        self.shadow_weight = 1.0
        self.rows: LearnerRows | None = None
        self.first_lags: MinibatchLags | None = None
        self.last_lags: MinibatchLags | None = None
        self.first_epoch_decisions = 0

    def make_optimizer(self) -> AdamW:
        from .optimiser import AdamW

        spec = self.spec
        return AdamW(self.parameters, spec.learning_rate, spec.adam_epsilon, spec.weight_decay)

    def train(self, data: Data, phase: int) -> tuple[dict[str, Any], dict[str, float]]:
        """Run all epochs over one phase's data; returns (metrics, seconds by purpose).

        Raises `Diverged` when a loss, a gradient or a parameter is no longer finite.
        """
        rate = self.spec.learning_rate_in(phase)
        report = self.begin(data, phase)
        self.first_lags = None
        steps = self._steps(phase, rate)
        report |= self._summarise(steps, phase)
        report |= {"learning_rate": rate, "gradient_steps": self.gradient_steps}
        diagnostics = {key.removeprefix("algorithm/"): v for key, v in report.items() if key.startswith("algorithm/")}
        answer = self.algorithm.next_state(self.state, diagnostics)
        self.state = state_of(self.algorithm, "next_state", answer, self.state_parameters.tensors)
        if clash := sorted(self.state.keys() & diagnostics.keys()):
            raise UserError(f"{self.algorithm.name}: {clash[0]} names a diagnostic and a part of its state; rename one")
        report |= {f"algorithm/{key}": float(x) for key, x in self.state.items() if isinstance(x, float | int)}
        return report | self.end(), self.seconds()

    def _steps(self, phase: int, rate: float) -> list[tuple[Log, Tensor]]:
        """Take all gradient steps of a phase. A minibatch on which the method stops is measured, but not stepped on."""
        spec = self.spec
        minibatches: list[Minibatch] = []  # in the first epoch, where the method may stop before its last minibatch
        epochs = spec.epochs_in(phase)
        steps: list[tuple[Log, Tensor]] = []
        for epoch in range(epochs):
            self.progress = Progress(spec.budget_phase(phase), spec.budget_phases, epoch, epochs, 0, spec.minibatches)
            for minibatch in self.minibatches(epoch):
                steps.append(self.step(minibatch, rate))
                if self.stop != "no":
                    break
                if epoch == 0 and self.may_stop:
                    minibatches.append(minibatch)
                self.progress = self.progress._replace(step=self.progress.step + 1)
            if epoch == 0:
                taken_steps = steps if self.stop == "no" else steps[:-1]
                self.first_epoch_decisions = sum(int(mask.sum()) for _, mask in taken_steps)
                if self.stop != "no" and self.rows is not None:
                    self.rows = self.rows._replace(trained=self.trained_by(minibatches))
            if self.stop == "phase":
                break
        return steps

    @abstractmethod
    def begin(self, data: Data, phase: int) -> dict[str, Any]:
        """Take a phase's data and compute what stays fixed over it; returns metrics of the data."""

    @abstractmethod
    def minibatches(self, epoch: int) -> Iterator[Minibatch]:
        """The phase's minibatches in the order of this epoch, each made just before its gradient step."""

    def trained_by(self, minibatches: Sequence[Minibatch]) -> Tensor:
        """Return [B, T], above 0 where a decision of the phase's data is in one of `minibatches`, those of the
        first epoch before the method stopped. For kinds of task that set `rows`."""
        raise NotImplementedError(f"{type(self).__name__} must define trained_by(minibatches)")

    @abstractmethod
    def gradient(self, minibatch: Minibatch) -> MinibatchLoss:
        """Put ∂Loss/∂θ of one minibatch into the gradients of the parameters."""

    def end(self) -> dict[str, Any]:
        """Return metrics once all steps are taken."""
        return {}

    def seconds(self) -> dict[str, float]:
        """Return the seconds of the phase's learning by purpose, as far as the kind of task measures them."""
        return {}

    def optimise(self, rate: float) -> Tensor:
        """Clip the norm of the whole gradient, step, move the shadow; returns the norm before clipping."""
        if self.successive is not None:
            self.successive.change(self.policy_gradients())
        norm = self.optimizer.clip_and_step(self.spec.max_grad_norm, rate)
        self.gradient_steps += 1
        if self.shadow:
            decay = self.algorithm.ewma_decay
            from .optimiser import ewma_update

            self.shadow_weight = ewma_update(self.shadow, self.policy_parameters, self.shadow_weight, decay)
        return norm

    def policy_gradients(self) -> list[Tensor]:
        """Return the policy's gradient tensors themselves, without a critic's."""
        return [p.grad for p in self.policy_parameters if p.grad is not None]

    def step(self, minibatch: Minibatch, rate: float) -> tuple[Log, Tensor]:
        """Take a gradient step on a minibatch, unless the method stops; returns its metrics and the mask [B, T]."""
        result = self.gradient(minibatch)
        decisions = result.decisions
        if self.gradient_steps == 0 and not result.reaches_policy:
            raise UserError(
                f"{self.algorithm.name}: its loss does not depend on the policy, so nothing would be learnt; make it a "
                "function of decisions.target_logp, not detached"
            )
        self.last_lags = decisions.lag, decisions.gradient_lag, decisions.mask
        self.first_lags = self.first_lags or self.last_lags
        self.stop = stop_of(self.algorithm, decisions) if self.may_stop else "no"
        if self.stop == "no":
            scale = step_scale_of(self.algorithm, decisions) * step_factor(decisions, self.spec.step_size)
            norm = self.optimise(rate * scale)
            self.state_parameters.step(rate * scale)
        else:
            from .optimiser import clip_norm

            scale, norm = 0.0, clip_norm(self.parameters, math.inf)
        self.state_parameters.optimiser.zero_grad()
        diagnostics = result.answer.diagnostics
        log = {**result.log, "grad_norm": norm, **{f"algorithm/{key}": x.detach() for key, x in diagnostics.items()}}
        if self.successive is not None:
            cosine = self.successive.cosine
            log["algorithm/gradient_cosine"] = norm.new_zeros(()) if cosine is None else cosine
        if self.reports_step_scale:
            log["step_scale"] = norm.new_tensor(scale)
        if self.changes_each_step and self.stop == "no":
            means = {key: float(masked_mean(x.detach().float(), decisions.mask)) for key, x in diagnostics.items()}
            answer = self.algorithm.step_state(self.state, means)
            self.state = state_of(self.algorithm, "step_state", answer, self.state_parameters.tensors)
        return log, decisions.mask

    def _summarise(self, steps: Sequence[tuple[Log, Tensor]], phase: int) -> dict[str, float]:
        """Average each metric over the phase's steps (extremes: the extreme), with some first and last values. Raises
        `Diverged` where a metric or a parameter is not finite."""
        masks = [mask for _, mask in steps]
        check_diagnostics(self.algorithm, [log for log, _ in steps], phase)
        series = {key: _series([log[key] for log, _ in steps], masks).cpu() for key in steps[0][0]}
        bad = {key: int((~x.isfinite()).nonzero()[0]) for key, x in series.items() if not x.isfinite().all()}
        if bad:
            where = min(bad, key=bad.__getitem__)  # the first series with the earliest fault
            raise Diverged(f"{where} is not finite at gradient step {bad[where] + 1} of phase {phase}")
        if not all_finite(self.parameters):
            raise Diverged(f"a parameter is not finite after phase {phase}")
        out = {key: float(_reduce(key, x)) for key, x in series.items()}
        first = {f"{key}_data": float(series[key][0]) for key in OF_DATA if key in series}
        ends = {"clipped_first": float(series["clipped"][0]), "clipped_last": float(series["clipped"][-1])}
        return out | first | ends

    def state_dict(self) -> dict[str, Any]:
        return {
            "parameters": [p.detach() for p in self.parameters],
            "optimizer": self.optimizer.state_dict(),
            "gradient_steps": self.gradient_steps,
            "state": {key: x for key, x in self.state.items() if key not in self.state_parameters.tensors},
            "state_parameters": self.state_parameters.state_dict(),
            "shadow": list(self.shadow),
            "shadow_weight": self.shadow_weight,
            "gradient": None if self.successive is None else self.successive.previous,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        import torch

        with torch.no_grad():
            for p, content in zip(self.parameters, state["parameters"], strict=True):
                p.copy_(content)
            for mean, content in zip(self.shadow, state["shadow"], strict=True):
                mean.copy_(content)
        self.optimizer.load_state_dict(state["optimizer"])
        self.gradient_steps = state["gradient_steps"]
        self.state = self._to_device(state["state"])
        self.state_parameters.load_state_dict(state.get("state_parameters", {}))
        self.state |= self.state_parameters.tensors
        self.shadow_weight = state["shadow_weight"]
        if self.successive is not None and state["gradient"] is not None:
            self.successive.previous = state["gradient"].to(self.parameters[0].device)

    def _to_device(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a method's state with its tensors on the learner's device."""
        return {name: x.to(self.parameters[0].device) if hasattr(x, "to") else x for name, x in state.items()}


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Return whether all numbers are finite. A finite sum proves it in one pass; otherwise each number is checked."""
    import torch

    sums = torch.stack([x.detach().sum() for x in tensors])
    return bool(sums.isfinite().all()) or all(bool(x.isfinite().all()) for x in tensors)


# Of a step's measures, those that describe the data when taken at the first step, before anything has moved.
OF_DATA = ("tv", "ess", "kl_k1", "kl_k3", "mismatch/kl_k1_engine", "mismatch/kl_k1_lag")


def _series(values: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
    """Return one number per gradient step [S]: the value itself, or the mean of one value per decision.

    Computed at the end of the phase, and at once where minibatches are of one size: launching a mean costs more than
    computing it.
    """
    import torch

    if values[0].dim() == 0 or len({x.shape for x in values}) > 1:
        pairs = zip(values, masks, strict=True)
        return torch.stack([masked_mean(x.float(), mask) if x.dim() else x.float() for x, mask in pairs])
    mask = torch.stack(list(masks)).flatten(1)
    total = (torch.stack(list(values)).float().flatten(1) * mask).sum(1)
    return total / mask.sum(1).clamp(min=1.0)


def _reduce(key: str, series: Tensor) -> Tensor:
    if key.startswith("algorithm/") or not key.endswith(("_max", "_min")):
        return series.mean()
    return series.max() if key.endswith("_max") else series.min()


def normalise(advantage: Tensor, mask: Tensor, correction: float) -> Tensor:
    """Advantages [..., B, T] with zero mean and unit standard deviation over the decisions of a minibatch [B, T] where
    `mask`, of the same shape, is 1.

    correction: subtracted from the number of decisions in the variance's denominator. Control takes 1, like PPO's code
    (CleanRL, torch's `std`), and verl and TRL where they whiten under a mask; tokens take 0, as published runs do.
    """
    count = total(mask)
    deviation = (advantage - total(advantage * mask) / count.clamp(min=1.0)) * mask
    variance = total(deviation.square()) / (count - correction).clamp(min=1.0)
    return deviation / (variance.sqrt() + 1e-8)


def total(x: Tensor) -> Tensor:
    """Σ over a minibatch: [..., B, T] to [..., 1, 1]."""
    return x.sum((-2, -1), keepdim=True)
