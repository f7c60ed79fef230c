"""A process that dies at its n-th dealing with the disk, for tests of what is left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

EVERY = [
    3,
    pytest.param(1, marks=pytest.mark.slow),
]  # `step`: some of the calls in the fast tests, all in the slow
CALLS = ("replace", "rename", "fsync", "unlink", "mkdir", "rmdir", "truncate", "open")


class Died(BaseException):
    """Like SIGKILL: not an Exception, so that nothing tidies up after it by catching `Exception`."""


def every_crash(
    action: Callable[[int], object],
    prepare: Callable[[int], object] = lambda n: None,
    at_most: int = 60,
    step: int = 1,
) -> Iterator[int]:
    """Call `prepare(n)` and then `action(n)` with its n-th call to the disk dying, for n = 1, 1 + step, ... until it
    survives.

    Yields n after each death; checks by the caller run on a disk that works again.
    """
    for n in range(1, at_most, step):
        prepare(n)
        with pytest.MonkeyPatch.context() as patch:
            counter = _Counter(n)
            for name in CALLS:
                patch.setattr(os, name, counter.around(getattr(os, name)))
            try:
                action(n)
            except Died:
                died = True
            else:
                died = counter.dead
        if not died:
            assert n > 1, "the action never touched the disk"
            return
        yield n
    raise AssertionError(f"still dying after {at_most} calls")


class _Counter:
    def __init__(self, fatal: int) -> None:
        self.fatal, self.seen, self.dead = fatal, 0, False

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.seen += 1
            if self.seen >= self.fatal:
                self.dead = True
                raise Died  # and so does every later call: what is dead tidies nothing up
            return call(*args, **kwargs)

        return counted
