"""One walk over many cases in one test: hundreds of tests of a millisecond cost seconds to collect and to report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def check_each(cases: Iterable[T], check: Callable[[T], None], name: Callable[[T], str] = repr) -> None:
    """Check every case, failures included; each error that is raised at the end names its case."""
    errors: list[BaseException] = []
    for case in cases:
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"case: {name(case)}")
            errors.append(error)
    if errors:
        raise BaseExceptionGroup("these cases fail", errors)
