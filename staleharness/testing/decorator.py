"""One pytest decorator for the contracts of all kinds of plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..algorithm import Algorithm
from ..base.options import Options
from ..control.task import ControlTask
from ..errors import UserError
from ..lag import LagModel
from ..mismatch import Mismatch
from .algorithm_contract import parametrize_with_algorithm_checks, variants
from .lag_model_checks import parametrize_with_lag_checks
from .mismatch_checks import parametrize_with_mismatch_checks
from .task_checks import parametrize_with_task_checks

KINDS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (Algorithm, parametrize_with_algorithm_checks),
    (ControlTask, parametrize_with_task_checks),
    (LagModel, lambda plugins: parametrize_with_lag_checks(_instances(plugins))),
    (Mismatch, lambda plugins: parametrize_with_mismatch_checks(_instances(plugins))),
)


def parametrize_with_checks(plugins: Iterable[Any]) -> Any:
    """A pytest decorator: one test for each check on each plugin, of `(algorithm, check)` for classes of algorithms,
    `(family, env, check)` for those of environments, `(model, check)` for lag and mismatch models.

    The class of an algorithm or a model stands for its defaults and its variants. Raises `UserError` for plugins of
    several kinds.
    """
    items = list(plugins)
    for base, decorator in KINDS:
        if all(issubclass(_class_of(item), base) for item in items):
            return decorator(items)
    names = ", ".join(_class_of(item).__name__ for item in items)
    raise UserError(
        f"parametrize_with_checks takes algorithms, environments of control, lag models or mismatch models, of one "
        f"kind at a time, not {names}; language and chain tasks have check_language_task and check_chain_task"
    )


def _class_of(item: Any) -> type:
    return item if isinstance(item, type) else type(item)


def _instances(plugins: Iterable[Any]) -> list[Any]:
    return [x for item in plugins for x in (_defaults_and_variants(item) if isinstance(item, type) else [item])]


def _defaults_and_variants(cls: type[Options]) -> list[Options]:
    if missing := [key for key in cls.hyper_parameter_types() if key not in cls.hyper_parameters()]:
        raise UserError(f"{cls.__name__}: {missing[0]} has no default; give models, such as {cls.__name__}(...)")
    return variants(cls)
