"""Tools for plugin authors: small records to try an algorithm on, and the contract of each kind of plugin.

    @parametrize_with_checks([MyIdea])
    def test_my_idea_keeps_the_contract(algorithm, check):
        check(algorithm)

An environment plugin has a contract, too: `parametrize_with_task_checks([MyTask])`, tests of (family, env, check); a
language plugin is checked by `check_language_task(MyTask, "my-task")`, one of binary decisions by `check_chain_task`.
Lag and mismatch models have one as well: `parametrize_with_lag_checks([MyLag(), MyLag(slow=0.5)])` and
`parametrize_with_mismatch_checks([MyMismatch()])`, tests of (model, check); decoders `parametrize_with_decoder_checks`,
tests of (decoder, check). `parametrize_with_checks` takes any kind.

The contract does not know what a method should compute; add a truth table of a few lines worked out by hand:

    d = decisions(ratio=[[1.0, 1.5]], advantage=[[2.0, 2.0]])
    assert gradient_coefficients(ALGORITHMS["ppo_clip"](), d).tolist() == [[2.0, 0.0]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..algorithm import Algorithm
from ..base.options import Options
from ..control.task import ControlTask
from ..errors import UserError
from ..lag import LagModel
from ..language.decoder_interface import Decoder
from ..mismatch import Mismatch
from .algorithm_contract import CHECKS, Check, check_algorithm, parametrize_with_algorithm_checks
from .check_runner import variants
from .decoder_checks import DECODER_CHECKS, DecoderCheck, check_decoder, parametrize_with_decoder_checks
from .example_batches import decisions, example_decisions, example_trajectories, gradient_coefficients
from .lag_model_checks import LAG_CHECKS, LagCheck, check_lag_model, parametrize_with_lag_checks
from .mismatch_checks import MISMATCH_CHECKS, MismatchCheck, check_mismatch_model, parametrize_with_mismatch_checks
from .task_checks import (
    TASK_CHECKS,
    TaskCheck,
    check_chain_task,
    check_language_task,
    check_task,
    parametrize_with_task_checks,
)

__all__ = [
    "CHECKS",
    "DECODER_CHECKS",
    "LAG_CHECKS",
    "MISMATCH_CHECKS",
    "TASK_CHECKS",
    "Check",
    "DecoderCheck",
    "LagCheck",
    "MismatchCheck",
    "TaskCheck",
    "check_algorithm",
    "check_chain_task",
    "check_decoder",
    "check_lag_model",
    "check_language_task",
    "check_mismatch_model",
    "check_task",
    "decisions",
    "example_decisions",
    "example_trajectories",
    "gradient_coefficients",
    "parametrize_with_checks",
    "parametrize_with_decoder_checks",
    "parametrize_with_lag_checks",
    "parametrize_with_mismatch_checks",
    "parametrize_with_task_checks",
    "variants",
]

KINDS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (Algorithm, parametrize_with_algorithm_checks),
    (ControlTask, parametrize_with_task_checks),
    (LagModel, lambda plugins: parametrize_with_lag_checks(_models(plugins))),
    (Decoder, parametrize_with_decoder_checks),
    (Mismatch, lambda plugins: parametrize_with_mismatch_checks(_models(plugins))),
)


def parametrize_with_checks(plugins: Iterable[Any]) -> Any:
    """A pytest decorator: one test for each check on each plugin, of `(algorithm, check)` for classes of algorithms,
    `(family, env, check)` for those of environments, `(model, check)` for lag and mismatch models, `(decoder, check)`
    for decoders.

    The class of an algorithm or a model stands for its defaults and its variants. Raises `UserError` for plugins of
    several kinds.
    """
    items = list(plugins)
    classes = [item if isinstance(item, type) else type(item) for item in items]
    for base, decorator in KINDS:
        if all(issubclass(cls, base) for cls in classes):
            return decorator(items)
    names = ", ".join(cls.__name__ for cls in classes)
    raise UserError(
        "parametrize_with_checks takes algorithms, environments of control, lag models, mismatch models or decoders, "
        f"of one kind at a time, not {names}; language and chain tasks have check_language_task and check_chain_task"
    )


def _models(plugins: Iterable[Any]) -> list[Any]:
    """Return models, for each class its defaults and variants. Raises `UserError` for an option without a default."""
    models: list[Any] = []
    for item in plugins:
        if not isinstance(item, type):
            models.append(item)
            continue
        cls: type[Options] = item
        if missing := [key for key in cls.hyper_parameter_types() if key not in cls.hyper_parameters()]:
            raise UserError(f"{cls.__name__}: {missing[0]} has no default; give models, such as {cls.__name__}(...)")
        models += variants(cls)
    return models
