"""Contract of every algorithm: one check per promise, run on the defaults and on each option."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor

from ..algorithm import ALGORITHMS, Algorithm, Proximal, Realign, defines
from ..base.plugins import summary
from ..batch import Trajectories, Values
from ..errors import UserError
from ..training.hook_checks import loss_of, step_scale_of, stop_of, targets_of
from .check_runner import global_generators, parametrize, refusals_fail, run_checks, variants
from .example_batches import (
    copy_of,
    example_decisions,
    example_trajectories,
    examples_for,
    gradient_coefficients,
    perturb,
    ready_for,
    rows_of,
    tensors_of,
    with_gradient,
)

Check = Callable[[Algorithm], None]
NO_POLICY_GRADIENT = (
    "a ratio of a whole row spreads each advantage over the row, unless written as in algorithms/gspo.py; set "
    "policy_gradient = False where the method is deliberately no policy gradient on fresh data"
)


def is_named_and_explained(algorithm: Algorithm) -> None:
    """The class is registered under its name, with a docstring and a paper for `staleharness list`."""
    cls = type(algorithm)
    assert cls.name, "register it with @ALGORITHMS.register('name')"
    assert cls.name in ALGORITHMS and ALGORITHMS[cls.name] is cls, "register the class itself"
    assert summary(cls) and cls.__doc__ != Algorithm.__doc__, "the first docstring line is what `list` shows"
    assert cls.paper, "say where the method comes from: paper = 'authors, year, identifier'"


def has_checked_hyper_parameters(algorithm: Algorithm) -> None:
    """The class is a frozen dataclass whose fields have defaults, survive JSON and refuse what is not a number."""
    cls = type(algorithm)
    assert is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    defaults, hints = cls.hyper_parameters(), cls.hyper_parameter_types()
    assert set(defaults) == {f.name for f in fields(cls)} == set(hints), "every hyper-parameter needs a default"
    assert cls(**json.loads(json.dumps(defaults))) == cls()
    for key, hint in hints.items():
        assert hint in (bool, int, float, str) or get_origin(hint) is Literal, (
            f"{key} is of type {hint}; give a bool, int, float, str or Literal"
        )
        if hint is float:
            _refuses(cls, {key: math.nan})


def answers_the_learner(algorithm: Algorithm) -> None:
    """`proximal`, `ewma_decay`, `realign_every`, `normalise_advantage`, `time_order` and `stop` return valid values."""
    for name, kind in (("proximal", Proximal), ("realign_every", Realign)):
        word, words = getattr(algorithm, name), get_args(kind)
        assert word in words, f"{name} is {word!r}; give one of {', '.join(map(repr, words))}"
    decay = algorithm.ewma_decay
    assert 0.0 <= decay < 1.0, f"ewma_decay is {decay!r}; give a number of at least 0 and below 1"
    for name in ("normalise_advantage", "time_order"):
        flag = getattr(algorithm, name)
        assert isinstance(flag, bool), f"{name} is {flag!r}; give True or False"
    with refusals_fail():
        stop_of(algorithm, examples_for(algorithm))
        step_scale_of(algorithm, examples_for(algorithm))


def has_a_loss_per_decision(algorithm: Algorithm) -> None:
    """Loss and diagnostics are finite [B, T] of the inputs' type, for whole rows and shuffled minibatches."""
    for dtype in (torch.float32, torch.float64):
        for rows, steps in ((4, 6), (7, 1), (1, 1)):
            d = examples_for(algorithm, rows, steps, dtype=dtype)
            with refusals_fail():
                answer = loss_of(algorithm, d)
            for name, x in {"loss": answer.loss, **answer.diagnostics}.items():
                title = f"the {name} that policy_loss returns is"
                form = f"{title} {list(x.shape)} of {x.dtype}; give {[rows, steps]} of {dtype}, the type of the inputs"
                assert x.shape == (rows, steps) and x.dtype == dtype, form
                assert x.isfinite().all(), f"{title} not finite"
            for name in {"clipped", "truncated", "masked", "vetoed"} & set(answer.diagnostics):
                x = answer.diagnostics[name]
                assert ((x == 0) | (x == 1)).all(), f"`{name}` is 0 or 1"


def answers_for_tokens(algorithm: Algorithm) -> None:
    """Without a closed form of the policy (`analytic_kl` is None) the method works, declares that it needs one, or
    raises a `UserError`."""
    if "closed_form" in algorithm.needs:
        return
    d = with_gradient(examples_for(algorithm), closed_form=False)
    try:
        answer = algorithm.policy_loss(d)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert answer.loss.isfinite().all()


def pulls_on_the_policy(algorithm: Algorithm) -> None:
    """The gradient reaches `target_logp` and is finite; on stale or on fresh data it is not zero everywhere."""
    examples = [examples_for(algorithm, on_policy=fresh) for fresh in (False, True)]
    coefficients = [gradient_coefficients(algorithm, d) for d in examples]
    assert all(x.isfinite().all() for x in coefficients) and (torch.cat(coefficients) != 0).any()


def is_a_policy_gradient_on_policy(algorithm: Algorithm) -> None:
    """At w = 1, lag 0 the coefficient of ∇log π is the advantage, unless the class says `policy_gradient = False`."""
    if algorithm.policy_gradient:
        d = examples_for(algorithm, on_policy=True)
        coefficients, expected = gradient_coefficients(algorithm, d), d.advantage * d.mask
        torch.testing.assert_close(coefficients, expected, msg=lambda text: f"{text}\n{NO_POLICY_GRADIENT}")


def survives_extreme_ratios(algorithm: Algorithm) -> None:
    """Log-ratios of ±60 give a finite loss and a finite gradient."""
    d = examples_for(algorithm)
    for shift in (-60.0, 60.0):
        far = with_gradient(replace(d, behaviour_logp=d.behaviour_logp + shift))
        assert algorithm.policy_loss(ready_for(algorithm, far)).loss.isfinite().all()
        assert gradient_coefficients(algorithm, far).isfinite().all()


def ignores_padding(algorithm: Algorithm) -> None:
    """Values in padding change nothing elsewhere."""
    d, t = examples_for(algorithm), example_trajectories()
    spoiled_d, spoiled_t = perturb(d, d.mask == 0), perturb(t, t.mask == 0)
    losses = [algorithm.policy_loss(ready_for(algorithm, x)).loss * d.mask for x in (d, spoiled_d)]
    torch.testing.assert_close(*losses, rtol=0.0, atol=0.0)
    coefficients = [gradient_coefficients(algorithm, x) * d.mask for x in (d, spoiled_d)]
    torch.testing.assert_close(*coefficients, rtol=0.0, atol=0.0)
    for before, after in zip(_targets(algorithm, t), _targets(algorithm, spoiled_t), strict=True):
        torch.testing.assert_close(before * t.mask, after * t.mask, rtol=0.0, atol=0.0)


def leaves_its_inputs_alone(algorithm: Algorithm) -> None:
    """No input is modified."""
    d, t = examples_for(algorithm), example_trajectories()
    before_d, before_t = copy_of(d), copy_of(t)
    algorithm.policy_loss(d)
    algorithm.step_scale(d)
    algorithm.stop(d)
    algorithm.targets(t)
    for before, after in ((before_d, d), (before_t, t)):
        for key, x in tensors_of(before).items():
            assert torch.equal(x, getattr(after, key)), f"{key} was modified"


def is_deterministic_and_draws_nothing(algorithm: Algorithm) -> None:
    """Two calls return the same bits, and no global random generator moves."""
    before = global_generators()
    d, t = examples_for(algorithm), example_trajectories()
    assert torch.equal(algorithm.policy_loss(d).loss, algorithm.policy_loss(d).loss)
    for first, second in zip(_targets(algorithm, t), _targets(algorithm, t), strict=True):
        assert torch.equal(first, second)
    assert before == global_generators(), "a global random generator moved; a loss is a function of what it is given"


def does_not_see_the_order_of_rows(algorithm: Algorithm) -> None:
    """Rows in another order give the same answers in that order."""
    order = torch.tensor([2, 0, 3, 1])
    d, t = example_decisions(), example_trajectories()
    original, reordered_d = (ready_for(algorithm, x) for x in (d, rows_of(d, order)))
    torch.testing.assert_close(algorithm.policy_loss(original).loss[order], algorithm.policy_loss(reordered_d).loss)
    for targets, reordered_targets in zip(_targets(algorithm, t), _targets(algorithm, rows_of(t, order)), strict=True):
        torch.testing.assert_close(targets[order], reordered_targets)


def has_targets_per_decision(algorithm: Algorithm) -> None:
    """Advantages and value targets are finite [B, T] without gradient, also for rows of one decision."""
    for dtype in (torch.float32, torch.float64):
        for rows, steps in ((4, 8), (1, 1)):
            for x in _targets(algorithm, example_trajectories(rows, steps, dtype=dtype)):
                assert x.shape == (rows, steps) and x.dtype == dtype and x.isfinite().all()
                assert not x.requires_grad


def does_not_look_across_an_end(algorithm: Algorithm) -> None:
    """Values after a termination or truncation change nothing before it."""
    t = example_trajectories()
    after_end = (1.0 - t.continues).cumsum(dim=1) - (1.0 - t.continues) > 0
    before_end = (~after_end) * t.mask
    for a, b in zip(_targets(algorithm, t), _targets(algorithm, perturb(t, after_end)), strict=True):
        torch.testing.assert_close(a * before_end, b * before_end, rtol=0.0, atol=0.0)


def has_a_value_loss_per_decision(algorithm: Algorithm) -> None:
    """A value loss of its own is finite [B, T] with a finite gradient through V; padding changes nothing elsewhere."""
    if not defines(algorithm, "value_loss"):
        return
    d = examples_for(algorithm)
    start, target = d.target_logp.detach() * 0.7, d.advantage
    value = (start + 0.1 * target).requires_grad_()
    fixed = (start, target, d.behaviour_logp, d.target_logp.detach(), d.lag, d.mask, d.state)
    loss = algorithm.value_loss(Values(value, *fixed))
    assert loss.shape == value.shape and loss.dtype == value.dtype and loss.isfinite().all()
    (gradient,) = torch.autograd.grad((loss * d.mask).sum(), value)
    assert gradient.isfinite().all() and (gradient != 0).any()
    other = algorithm.value_loss(Values(torch.where(d.mask > 0, value.detach(), 1e3), *fixed))
    torch.testing.assert_close(other * d.mask, loss.detach() * d.mask, rtol=0.0, atol=0.0)


def has_a_gradient_of_the_same_kind(algorithm: Algorithm) -> None:
    """A `gradient` of its own is finite, of its inputs' shape and type, deterministic, and writes and draws nothing."""
    if not defines(algorithm, "gradient"):
        return
    generators = global_generators()
    for dtype, sign in ((torch.float32, 1.0), (torch.float64, -1.0)):  # along the previous gradient, and against it
        previous = torch.linspace(-1.0, 2.0, 7, dtype=dtype)
        now = sign * previous + 0.5 * previous.flip(0)
        copies = previous.clone(), now.clone()
        first, second = (algorithm.gradient(previous, now) for _ in range(2))
        assert torch.equal(previous, copies[0]) and torch.equal(now, copies[1]), "an input was modified"
        assert first.shape == now.shape and first.dtype == dtype, f"it is {tuple(first.shape)} {first.dtype}"
        assert first.isfinite().all() and torch.equal(first, second)
    assert generators == global_generators(), "a global random generator moved"


def keeps_its_state_in_floats(algorithm: Algorithm) -> None:
    """`init_state`, `next_state` and `step_state` give finite numbers, or tensors, under the same keys, and leave
    their input unchanged."""
    state = algorithm.init_state()
    answer = algorithm.policy_loss(examples_for(algorithm))
    means = {name: float(x.detach().mean()) for name, x in answer.diagnostics.items()}
    before = {key: x.detach().clone() for key, x in state.items() if isinstance(x, Tensor)}
    after_phase = algorithm.next_state(MappingProxyType(state), means)
    after_step = algorithm.step_state(MappingProxyType(state), means)
    for key, x in before.items():
        assert torch.equal(x, state[key]), f"{key} was modified in place; return a new tensor"
    assert set(state) == set(after_phase) == set(after_step)
    for x in (*state.values(), *after_phase.values(), *after_step.values()):
        assert bool(x.isfinite().all()) if isinstance(x, Tensor) else isinstance(x, int | float) and math.isfinite(x)
    numbers = {key: x for key, x in after_phase.items() if not isinstance(x, Tensor)}
    assert json.loads(json.dumps(numbers)) == numbers


CHECKS: tuple[Check, ...] = (
    is_named_and_explained,
    has_checked_hyper_parameters,
    answers_the_learner,
    has_a_loss_per_decision,
    answers_for_tokens,
    pulls_on_the_policy,
    is_a_policy_gradient_on_policy,
    survives_extreme_ratios,
    ignores_padding,
    leaves_its_inputs_alone,
    is_deterministic_and_draws_nothing,
    does_not_see_the_order_of_rows,
    has_targets_per_decision,
    does_not_look_across_an_end,
    has_a_value_loss_per_decision,
    has_a_gradient_of_the_same_kind,
    keeps_its_state_in_floats,
)


def check_algorithm(cls: type[Algorithm]) -> None:
    """Run every check on the defaults and on each variant. Raises `AssertionError` that names both."""
    for algorithm in variants(cls):
        run_checks(CHECKS, str(algorithm), algorithm)


def parametrize_with_algorithm_checks(classes: Iterable[type[Algorithm]]) -> Any:
    """A pytest decorator: one test `(algorithm, check)` for each check on each variant of each class."""
    cases = [(_label(algorithm), algorithm) for cls in classes for algorithm in variants(cls)]
    return parametrize("algorithm", cases, CHECKS)


def _label(algorithm: Algorithm) -> str:
    values = ((key, getattr(algorithm, key), default) for key, default in algorithm.hyper_parameters().items())
    changes = [f"{key}={value}" for key, value, default in values if value != default]
    return "-".join([algorithm.name or type(algorithm).__name__, *changes])


def _targets(algorithm: Algorithm, t: Trajectories) -> tuple[Tensor, Tensor]:
    with refusals_fail():
        targets = targets_of(algorithm, t)
    return targets.advantage, targets.value_target


def _refuses(cls: type[Algorithm], options: dict[str, Any]) -> None:
    try:
        cls(**options)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        raise AssertionError(f"{options} was accepted; call super().__post_init__() in your __post_init__")
