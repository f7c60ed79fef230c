"""Checks of what a method returns from its hooks.

A tensor of another shape would be broadcast silently, and an unknown word from `stop` would end every phase.
"""

from __future__ import annotations

import contextlib
import math
import numbers
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ..algorithm import Algorithm, Stop
from ..base.plugins import source_file
from ..batch import Decisions, PolicyLoss, Targets, Trajectories, Values
from ..errors import Diverged, UserError, one_line, shorten

if TYPE_CHECKING:
    import torch

LONGEST_NAME = 200  # letters of the name of a diagnostic or of a state's entry

# Fields of `Decisions` that may be None, and the entry of `needs` that provides each.
DECLARED_BY = {
    "group": "groups",
    "outcome": "groups",
    "logit_norm": "logit_norm",
    "reference_logp": "reference",
    "analytic_kl": "closed_form",
    **dict.fromkeys(
        ("observation", "action", "value", "mean", "std", "behaviour_mean", "behaviour_std"), "distribution"
    ),
}


def loss_of(algorithm: Algorithm, decisions: Decisions) -> PolicyLoss:
    """Return the loss of each decision [B, T], and diagnostics of that shape or []. Raises `UserError`."""
    try:
        with _inputs_unchanged(algorithm, "policy_loss", decisions):
            answer, shape = algorithm.policy_loss(decisions), decisions.mask.shape
    except (TypeError, AttributeError) as error:
        if "NoneType" in str(error) and (need_error := _undeclared_need(algorithm, decisions, error)) is not None:
            raise need_error from error
        raise
    _check_type(algorithm, "policy_loss", answer, PolicyLoss)
    _check_real(algorithm, "policy_loss", "loss", answer.loss, shape)
    if not isinstance(answer.diagnostics, Mapping):
        kind = type(answer.diagnostics).__name__
        raise UserError(f"{algorithm.name}: the diagnostics of policy_loss are a {kind}; give a dict, {{name: tensor}}")
    for name, x in answer.diagnostics.items():
        _check_name(algorithm, "policy_loss", name)
        _check_shape(algorithm, "policy_loss", name, x, shape, shape[:0])
    return answer


def targets_of(algorithm: Algorithm, trajectories: Trajectories) -> Targets:
    """Return the advantage and value target of each decision [B, T]. Raises `UserError`."""
    with _inputs_unchanged(algorithm, "targets", trajectories):
        answer, mask = algorithm.targets(trajectories), trajectories.mask
    _check_type(algorithm, "targets", answer, Targets)
    for name, x in (("advantage", answer.advantage), ("value_target", answer.value_target)):
        _check_real(algorithm, "targets", name, x, mask.shape, mask.dtype)
    return answer


def value_loss_of(algorithm: Algorithm, values: Values) -> torch.Tensor:
    """Return the critic's loss of each decision [B, T]. Raises `UserError`."""
    with _inputs_unchanged(algorithm, "value_loss", values):
        answer = algorithm.value_loss(values)
    _check_real(algorithm, "value_loss", "tensor", answer, values.mask.shape, values.mask.dtype)
    return answer


def value_gradient_of(algorithm: Algorithm, values: Values) -> torch.Tensor:
    """Return the gradient [B, T] of the critic's loss with respect to V. Raises `UserError`."""
    if values.value.grad is None:
        raise UserError(f"{algorithm.name}: value_loss does not depend on values.value, so no critic would be learnt")
    return values.value.grad


def stop_of(algorithm: Algorithm, decisions: Decisions) -> Stop:
    """Return the method's answer to whether training stops. Raises `UserError`."""
    with _inputs_unchanged(algorithm, "stop", decisions):
        answer = algorithm.stop(decisions)
    if answer not in get_args(Stop):
        words = ", ".join(map(repr, get_args(Stop)))
        raise UserError(f"{algorithm.name}: stop returns {_in_words(answer)}; give one of {words}")
    return answer


def step_scale_of(algorithm: Algorithm, decisions: Decisions) -> float:
    """Return the factor on the step size, at least 0. Raises `UserError`, and `Diverged` where it is not finite."""
    if getattr(type(algorithm), "step_scale", None) is Algorithm.step_scale:  # nothing to check
        return 1.0
    with _inputs_unchanged(algorithm, "step_scale", decisions):
        answer = algorithm.step_scale(decisions)
    try:
        scale = float(answer)
    except (TypeError, ValueError) as error:
        raise UserError(f"{algorithm.name}: step_scale returns {_in_words(answer)}; give a number") from error
    if not math.isfinite(scale):
        raise Diverged(f"step_scale is not finite in phase {decisions.progress.phase}")
    if scale < 0.0:
        raise UserError(f"{algorithm.name}: step_scale returns {scale}; give a number that is not below 0")
    return scale


def gradient_of(algorithm: Algorithm, previous: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
    """Return the gradient [P] to step along. Raises `UserError`."""
    with _no_writes(algorithm, "gradient", {"previous": previous, "now": now}):
        answer = algorithm.gradient(previous, now)
    _check_real(algorithm, "gradient", "vector", answer, now.shape)
    return answer


def state_of(
    algorithm: Algorithm, hook: str, answer: Mapping[str, Any], trained: Mapping[str, torch.Tensor] | None = None
) -> dict[str, Any]:
    """Return the state that `hook` returned, numbers of any type as plain ones, and tensors.

    trained: tensors that the learner trains, which replace what the method returns for them; None for `init_state`,
    which may declare some. Raises `UserError` for anything else, which a checkpoint could not restore.
    """
    from torch import Tensor

    _check_type(algorithm, hook, answer, Mapping)
    state: dict[str, Any] = {}
    for name, x in answer.items():
        _check_name(algorithm, hook, name)
        if trained and name in trained:
            continue
        if isinstance(x, numbers.Real):
            state[name] = int(x) if isinstance(x, numbers.Integral) else float(x)
        elif isinstance(x, Tensor) and x.requires_grad and not (trained is None and x.is_leaf):
            raise UserError(
                f"{algorithm.name}: the {name} that {hook} returns requires a gradient; only a tensor that init_state "
                "makes with requires_grad=True is trained: return x.detach()"
            )
        elif isinstance(x, Tensor):
            state[name] = x
        else:
            raise UserError(
                f"{algorithm.name}: the {name} that {hook} returns is a {type(x).__name__}; a state has numbers and "
                "tensors"
            )
    return state | dict(trained or {})


def check_diagnostics(algorithm: Algorithm, logs: Sequence[Mapping[str, Any]], phase: int) -> None:
    """Raise `UserError` where the steps of a phase have different diagnostics, so that their mean is not the phase's.

    logs: metrics of each gradient step."""
    for log in logs[1:]:
        if changes := [name for name in sorted(log.keys() ^ logs[0].keys()) if name.startswith("algorithm/")]:
            raise UserError(
                f"{algorithm.name}: policy_loss returns the diagnostic {changes[0].removeprefix('algorithm/')} at some "
                f"gradient steps of phase {phase} and not at others; return it at every step"
            )


def _inputs_unchanged(algorithm: Algorithm, hook: str, inputs: Any) -> contextlib.AbstractContextManager[None]:
    """Raise `UserError` if a hook writes into a tensor that it was given, from which metrics are computed, too."""
    from torch import Tensor

    tensors = {f.name: x for f in fields(inputs) if isinstance(x := getattr(inputs, f.name), Tensor)}
    return _no_writes(algorithm, hook, tensors)


@contextlib.contextmanager
def _no_writes(algorithm: Algorithm, hook: str, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    before = {name: x._version for name, x in tensors.items() if not x.is_inference()}
    yield
    for name, version in before.items():
        if tensors[name]._version != version:
            raise UserError(f"{algorithm.name}: {hook} changes {name} in place; make a new tensor, as torch.where does")


def _in_words(answer: Any) -> str:
    return shorten(one_line(repr(answer)))


def _check_type(algorithm: Algorithm, hook: str, answer: Any, kind: type) -> None:
    if not isinstance(answer, kind):
        raise UserError(f"{algorithm.name}: {hook} returns a {type(answer).__name__}, not a {kind.__name__}")


def _check_name(algorithm: Algorithm, hook: str, name: object) -> None:
    """Raise `UserError` for the name of a number that could not be stored when the run is finished."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
        raise UserError(
            f"{algorithm.name}: {hook} names a number {_in_words(name)}; give a string of 1 to {LONGEST_NAME} "
            "printable characters"
        )


def _check_shape(algorithm: Algorithm, hook: str, name: str, x: Any, *shapes: tuple[int, ...]) -> None:
    from torch import Tensor

    if not isinstance(x, Tensor) or x.shape not in shapes:
        form = f"of shape {list(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise UserError(
            f"{algorithm.name}: the {name} that {hook} returns is {form}; give a tensor with a number of each "
            f"{'parameter' if len(shapes[0]) == 1 else 'decision'}, here {list(shapes[0])}"
        )


def _check_real(
    algorithm: Algorithm, hook: str, name: str, x: Any, shape: tuple[int, ...], dtype: torch.dtype | None = None
) -> None:
    """Raise `UserError` for another shape, and for a numeric type that truncates or has no gradient, or that is not
    `dtype`."""
    _check_shape(algorithm, hook, name, x, shape)
    if not x.is_floating_point() or x.dtype != (dtype or x.dtype):
        kind, right = (str(number_type).removeprefix("torch.") for number_type in (x.dtype, dtype or "float32"))
        raise UserError(f"{algorithm.name}: the {name} that {hook} returns is of {kind}; give real numbers, as {right}")


def _undeclared_need(algorithm: Algorithm, decisions: Decisions, error: Exception) -> UserError | None:
    """Return the error for the first field that the method's file names and that is None here; None without one."""
    text = Path(source_file(type(algorithm))).read_text(encoding="utf-8")
    reads = set(re.findall(r"\.(analytic_kl|\w+\b(?!\())", text))  # `x.mean()` is no field
    absent = [field for field in DECLARED_BY if getattr(decisions, field) is None and field in reads]
    if not absent:
        return None
    return UserError(
        f"{algorithm.name}: policy_loss uses decisions.{absent[0]}, which is None here ({type(error).__name__}: "
        f"{error}); declare needs = frozenset({{{DECLARED_BY[absent[0]]!r}}}), or do without where it is None"
    )
