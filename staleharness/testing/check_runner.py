"""Runners for the checks of a contract, in one call or as pytest tests, and what several contracts look at."""

from __future__ import annotations

import contextlib
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, get_args, get_origin

import numpy as np
import torch

from ..base.options import Choice
from ..errors import Diverged, UserError, one_line, type_and_message


def run_checks(checks: Iterable[Callable[..., None]], label: str, *arguments: Any) -> None:
    """Call checks with the same arguments. Raises `AssertionError`, one line that names the plugin (`label`) and the
    check."""
    for check in checks:
        try:
            check(*arguments)
        except Exception as error:
            text = error if isinstance(error, AssertionError | UserError) else type_and_message(error)
            raise AssertionError(one_line(f"{label}: {check.__name__}: {check.__doc__} {text}")) from error


@contextlib.contextmanager
def refusals_fail() -> Iterator[None]:
    """Raise `AssertionError` with the line of the `UserError` or `Diverged` that would end a run with a plugin."""
    try:
        yield
    except (Diverged, UserError) as error:
        raise AssertionError(str(error)) from error


def parametrize(names: str, cases: Sequence[tuple[Any, ...]], checks: Sequence[Callable[..., None]]) -> Any:
    """A pytest decorator: one test for each check on each case. names: arguments of a check; cases: (label,
    *arguments)."""
    import pytest

    values = [(*arguments, check) for _, *arguments in cases for check in checks]
    ids = [f"{label}-{check.__name__}" for label, *_ in cases for check in checks]
    return pytest.mark.parametrize((*names.split(), "check"), values, ids=ids)


def variants(cls: type[Choice]) -> list[Choice]:
    """The defaults, and every instance that differs from them in one `Literal` or `bool` option."""
    instances, defaults = [cls()], cls.hyper_parameters()
    for key, hint in cls.hyper_parameter_types().items():
        options = get_args(hint) if get_origin(hint) is Literal else (True, False) if hint is bool else ()
        instances += [cls(**{key: option}) for option in options if option != defaults[key]]
    return instances


def global_generators() -> tuple[bytes, bytes, bytes]:
    """States of the global generators of torch, NumPy and Python."""
    numpy_state = np.random.get_state()  # noqa: NPY002 (looked at, not used)
    return torch.get_rng_state().numpy().tobytes(), pickle.dumps(numpy_state), pickle.dumps(random.getstate())
