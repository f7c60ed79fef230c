"""Base class of algorithm plugins: a loss, and defaults for everything else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from . import objectives
from .base.options import Options, path_digests, values_before, without_retired
from .base.options import option as option
from .base.plugins import Registry
from .base.typed_values import build
from .batch import Decisions, PolicyLoss, Targets, Trajectories, Values
from .errors import UserError, nearest, one_line, shorten
from .spec import RunSpec

if TYPE_CHECKING:
    from torch import Tensor

Proximal = Literal["behaviour", "recompute", "ewma"]
Realign = Literal["phase", "epoch", "step"]
Stop = Literal["no", "epoch", "phase"]

SETTING_NAMES = ("env", "capacity", "seed", "seeds", "steps", "learning_rate", "lag", "mismatch", "device", "threads")
"""Names that no option of a method may have, because `ALGO='name[lag=oldest]'` sets the run's own setting."""

NEEDS: dict[str, str] = {
    "groups": "groups of completions of one prompt",  # Decisions.group and Decisions.outcome
    "logit_norm": "a probability for every possible action",  # Decisions.logit_norm
    "reference": "a reference policy",  # Decisions.reference_logp
    "closed_form": "a policy whose KL has a closed form",  # Decisions.analytic_kl
    "distribution": "observations, actions and the parameters of a distribution",  # Decisions.observation to the end
}
"""Fields of `Decisions` that only some tasks provide, and their names in error lines."""


@dataclass(frozen=True)
class Algorithm(Options):
    """Turns stale decisions into a loss.

    Subclass it as a frozen dataclass; its fields are the method's own hyper-parameters. γ, λ, critic, entropy bonus,
    optimiser, epochs and minibatches belong to the run and are the same for every method, so that a difference in the
    results is a difference between methods.

    Each property below has a default; a subclass overrides it, or declares a hyper-parameter of the same name
    (`realign_every: Realign = "step"`). Fields are `bool`, `int`, `float`, `str` or a `Literal`, each with a default.
    Making an instance checks them: `UserError` names the field and the values that it may have.
    """

    paper: ClassVar[str] = ""
    """Source: authors, year, identifier."""

    core: ClassVar[bool] = True
    """True where a sweep that names no algorithm runs the method; the others are run by ALGO=all, or by name."""

    policy_gradient: ClassVar[bool] = True
    """At w = 1 and lag 0, ∂L/∂log π of a decision is minus its advantage."""

    needs: ClassVar[frozenset[str]] = frozenset()
    """Keys of `NEEDS`: the method runs on tasks that provide them all."""

    @classmethod
    def check_class(cls, where: str) -> None:
        super().check_class(where)
        if cls.policy_loss is Algorithm.policy_loss:
            raise UserError(f"{where} does not define policy_loss(self, decisions), the loss that it trains with")
        if isinstance(cls.needs, str):
            raise UserError(f"{where}: needs is a string; write needs = frozenset({{{cls.needs!r}}})")
        if unknown := sorted(set(cls.needs) - set(NEEDS)):
            raise UserError(f"{where}: no task provides {unknown[0]!r}, which it needs; {nearest(unknown[0], NEEDS)}")
        if clash := [name for name in cls.hyper_parameter_types() if name in SETTING_NAMES]:
            raise UserError(f"{where}: its option {clash[0]} has the name of a setting of every run; rename it")
        try:
            cls()
        except UserError as error:
            raise UserError(f"{where}: its defaults do not go together: {error}") from error
        except Exception as error:
            raise UserError(f"{where} cannot be made with its defaults: {type(error).__name__}: {error}") from error

    @property
    def proximal(self) -> Proximal:
        """Anchor in `Decisions.proximal_logp`: `behaviour` (no extra pass), `recompute` (the learner at
        the start of the phase) or `ewma` (a shadow of the learner; give `ewma_decay`)."""
        return "behaviour"

    @property
    def ewma_decay(self) -> float:
        """Decay of the shadow per gradient step, used when `proximal` is `ewma` (Hilton et al. 2022)."""
        return 0.889

    @property
    def realign_every(self) -> Realign:
        """Frequency of calls of `targets`: once per phase, once per epoch, or at every gradient step (minibatches
        are then whole rows, in time order)."""
        return "phase"

    @property
    def normalise_advantage(self) -> bool:
        """True where the learner normalises advantages per minibatch (a run may switch this off for all methods)."""
        return True

    @property
    def optimal_baseline(self) -> bool:
        """True where the baseline of a group is `row_baseline` of the gradients of its rows, which the learner then
        computes row by row (tokens only)."""
        return False

    def row_baseline(self, decisions: Decisions, squared_norm: Tensor) -> Tensor:
        """Return the baseline [] of one group's rewards.

        squared_norm: ‖∇ Σ_t c_t log π_t‖² of each of its rows [G], where c is the coefficient that `policy_loss` gives
        a decision of advantage 1.
        """
        raise NotImplementedError(f"{type(self).__name__} must define row_baseline(decisions, squared_norm)")

    @property
    def time_order(self) -> bool:
        """True where minibatches of control are whole rows in time order, as completions always are;
        `Decisions.continues` is then 0 at the ends of episodes."""
        return False

    def init_state(self) -> Mapping[str, Any]:
        """Return the method's own state at phase 0: numbers, which are logged with a run's metrics (an adaptive
        coefficient, say), and tensors, which are not. A tensor that requires a gradient (a learned dual, a temperature)
        is trained: one Adam step on ∂(mean loss)/∂x at each gradient step, with rate `state_learning_rate`."""
        return {}

    @property
    def state_learning_rate(self) -> float | None:
        """Learning rate of the trained tensors of the state; None: the run's current one."""
        return None

    def step_state(self, state: Mapping[str, Any], diagnostics: Mapping[str, float]) -> Mapping[str, Any]:
        """Return the state after a gradient step; `diagnostics` are that minibatch's means."""
        return dict(state)

    def next_state(self, state: Mapping[str, Any], diagnostics: Mapping[str, float]) -> Mapping[str, Any]:
        """Return the state after a phase; `diagnostics` are phase means of those that `policy_loss` returned."""
        return dict(state)

    def targets(self, trajectories: Trajectories) -> Targets:
        """Compute advantages and value targets; GAE(γ, λ) under the learner's critic by default."""
        return objectives.gae(trajectories)

    def policy_loss(self, decisions: Decisions) -> PolicyLoss:
        """Compute the loss per decision, to be minimised."""
        raise NotImplementedError(f"{type(self).__name__} must define policy_loss(decisions)")

    def stop(self, decisions: Decisions) -> Stop:
        """Decide before each gradient step, from its minibatch, whether to skip it and end the epoch or the whole
        phase."""
        return "no"

    def value_loss(self, values: Values) -> Tensor:
        """Compute the critic's loss per decision [B, T], in place of the run's own (½ (V − target)², clipped by
        `value_clip`). It is multiplied by `value_coef`, and called only on control, where tasks have a critic."""
        raise NotImplementedError(f"{type(self).__name__} has no value loss of its own")

    def step_scale(self, decisions: Decisions) -> float:
        """Return the factor on the size of the next gradient step."""
        return 1.0

    def gradient(self, previous: Tensor, now: Tensor) -> Tensor:
        """Return the gradient [P] to step along in place of the policy's gradient `now`, from a run's second step on.

        previous: the gradient of the step before, as its loss gave it. Change neither in place. The norm is clipped
        afterwards; a critic's gradient is in neither.
        """
        return now

    def inactive(self, updates: int) -> str | None:
        """Return a line for log and report where a mechanism cannot act with `updates` gradient steps per phase.

        By default that is the case with one step per phase and the learner at the start of the phase as the anchor:
        π/π_prox is then 1 whenever the loss is computed, however stale the data are.
        """
        if self.proximal == "recompute" and updates == 1:
            return (
                f"{self.name}: its proximal policy is recomputed before the only gradient step of each phase, so "
                "π/π_prox is always 1, and no clip, mask or penalty around π_prox ever acts, whatever the lag"
            )
        return None


def make_algorithm(spec: RunSpec) -> Algorithm:
    """Make the plugin with the spec's hyper-parameters. Raises `UserError` for an unknown name, option or value."""
    cls, where = ALGORITHMS[spec.algorithm], f"ALGO={spec.algorithm}"
    return build(cls, without_retired(spec.hyper, cls.retired, where), where)


def identity(algorithm: Algorithm) -> dict[str, Any]:
    """Return the hyper-parameters that are part of a run's id, files by their content: those that were retired,
    and all others but those that were added `later` and still have their `before` value."""
    before = values_before(algorithm)
    files = path_digests(algorithm, f"ALGO={algorithm.name}")
    values = {f.name: files.get(f.name, getattr(algorithm, f.name)) for f in fields(algorithm)}
    return {**algorithm.retired, **{k: v for k, v in values.items() if k not in before or v != before[k]}}


def unmet(algorithm: Algorithm, provides: frozenset[str]) -> str | None:
    """Name the needs of a method that a task does not provide, as the start of a sentence; None where it provides all.

    "tba needs groups of completions of one prompt and a reference policy"
    """
    needs = set(algorithm.needs)
    for key, hint in type(algorithm).hyper_parameter_types().items():
        if hint == objectives.KLEstimator and getattr(algorithm, key) == "analytic":
            needs.add("closed_form")
    missing = [text for key, text in NEEDS.items() if key in needs - provides]
    return f"{algorithm.name} needs {' and '.join(missing)}" if missing else None


def check(algorithm: Algorithm, spec: RunSpec, provides: frozenset[str] = frozenset()) -> None:
    """Raise `UserError` where the method cannot work with the run's settings, or with what the task `provides`."""
    _check_properties(algorithm)
    if (missing := unmet(algorithm, provides)) is not None:
        raise UserError(f"{missing}, which {spec.env} does not have")
    if algorithm.optimal_baseline and not defines(algorithm, "row_baseline"):
        raise UserError(f"{algorithm.name}: with optimal_baseline, define row_baseline(self, decisions, squared_norm)")
    conflicts = {
        "entropy_coef": spec.entropy_coef > 0,
        "normalise_advantage": spec.normalise_advantage and algorithm.normalise_advantage,
        "discount": spec.discount != 1,
        "gae_lambda": spec.gae_lambda != 1,
    }
    if algorithm.optimal_baseline and (name := next((key for key, is_on in conflicts.items() if is_on), None)):
        raise UserError(
            f"{algorithm.name} has its own baseline and takes gradients per completion, which excludes "
            f"{name}={getattr(spec, name)}; leave it out"
        )
    reason = "realigns at every gradient step" if algorithm.realign_every == "step" else "keeps time order"
    if takes_rows(algorithm) and (too_few := spec.too_few_rows()) is not None:
        raise UserError(f"{algorithm.name} {reason}, so its minibatches are whole rows: {too_few}")


def _check_properties(algorithm: Algorithm) -> None:
    """Raise `UserError` for a property of another kind than the base class has, such as one that lacks `@property`."""

    def require(name: str, is_right: Callable[[Any], bool], words: str) -> None:
        value = getattr(algorithm, name)
        if callable(value):
            raise UserError(f"{algorithm.name}: {name} is a method; write @property above it")
        if not is_right(value):
            raise UserError(f"{algorithm.name}: {name}={shorten(one_line(repr(value)))} is not {words}")

    for name, choices in {"proximal": get_args(Proximal), "realign_every": get_args(Realign)}.items():
        require(name, choices.__contains__, f"one of {', '.join(choices)}")
    for name in ("normalise_advantage", "time_order", "optimal_baseline"):
        require(name, lambda value: isinstance(value, bool), "True or False")
    if algorithm.proximal == "ewma":
        require("ewma_decay", lambda value: _is_finite(value) and 0.0 <= value < 1.0, "a number from 0 to below 1")
    require("state_learning_rate", lambda value: value is None or _is_finite(value), "a finite number or None")


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def takes_rows(algorithm: Algorithm) -> bool:
    """Return whether the method's minibatches are whole rows."""
    return algorithm.realign_every == "step" or algorithm.time_order


def defines(algorithm: Algorithm, hook: str) -> bool:
    """Return whether the method overrides a hook of the base class, so that the learner can skip the defaults."""
    return getattr(type(algorithm), hook) is not getattr(Algorithm, hook)


ALGORITHMS: Registry[type[Algorithm]] = Registry("algorithms", Algorithm)
