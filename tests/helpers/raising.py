"""Functions that fail, for tests that put them in the place of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


def raising(error: BaseException | type[BaseException]) -> Callable[..., NoReturn]:
    """Return a function that raises this, whatever it is called with."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail
