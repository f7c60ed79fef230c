"""Runners for the checks of a contract, in one call or as pytest tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import UserError, one_line, type_and_message


def run_checks(checks: Iterable[Callable[..., None]], label: str, *arguments: Any) -> None:
    """Call checks with the same arguments. Raises `AssertionError`, one line that names the plugin (`label`) and the
    check."""
    for check in checks:
        try:
            check(*arguments)
        except Exception as error:
            text = error if isinstance(error, AssertionError | UserError) else type_and_message(error)
            raise AssertionError(one_line(f"{label}: {check.__name__}: {check.__doc__} {text}")) from error


def parametrize(names: str, cases: Sequence[tuple[Any, ...]], checks: Sequence[Callable[..., None]]) -> Any:
    """A pytest decorator: one test for each check on each case. names: arguments of a check; cases: (label,
    *arguments)."""
    import pytest

    values = [(*arguments, check) for _, *arguments in cases for check in checks]
    ids = [f"{label}-{check.__name__}" for label, *_ in cases for check in checks]
    return pytest.mark.parametrize((*names.split(), "check"), values, ids=ids)
