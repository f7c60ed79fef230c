"""A process that dies at its n-th disk operation, or has it refused, for tests of what is left behind."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# `step`: some of the calls in the fast tests, all of them in `make test-faults`
EVERY = [3, pytest.param(1, marks=pytest.mark.faults)]
CALLS = ("replace", "rename", "fsync", "unlink", "mkdir", "rmdir", "truncate", "open")
Refusal = int | type[MemoryError] | None


class ProcessDeath(BaseException):
    """Like SIGKILL: not an Exception, so that nothing tidies up after it by catching `Exception`."""


def every_crash(
    action: Callable[[int], object],
    prepare: Callable[[int], object] = lambda n: None,
    at_most: int = 60,
    step: int = 1,
    refusal: Refusal = None,
) -> Iterator[int]:
    """Call `prepare(n)` and then `action(n)` with its n-th disk operation dying, for n = 1, 1 + step, ... until it
    survives. Calls are those of `CALLS`, and writing to a file.

    refusal: an errno. Then that one call is refused with it, and those behind it work; the action may raise. The same
    with `MemoryError`, and then calls that open a file to read it count as well.
    Yields n after each; checks by the caller run on a disk that works again.
    """
    for n in range(1, at_most, step):
        prepare(n)
        with pytest.MonkeyPatch.context() as patch:
            counter = _Counter(n, refusal)
            for name in CALLS:
                patch.setattr(os, name, counter.around(getattr(os, name)))
            patch.setattr(os, "fdopen", counter.count_writes(os.fdopen))
            reads = counter.around if refusal is MemoryError else lambda call: call
            patch.setattr(builtins, "open", counter.count_writes(reads(builtins.open)))
            patch.setattr(io, "open", reads(io.open))  # which `Path` uses
            try:
                action(n)
            except (ProcessDeath, OSError, RuntimeError, MemoryError):
                if not counter.hit:
                    raise
        if not counter.hit:
            assert n > 1, "the action never touched the disk"
            return
        yield n
    raise AssertionError(f"still dying after {at_most} calls")


class _Counter:
    def __init__(self, fatal: int, refusal: Refusal) -> None:
        self.fatal, self.refusal, self.seen, self.hit = fatal, refusal, 0, False

    def count(self) -> None:
        self.seen += 1
        if self.refusal is not None and self.seen == self.fatal:
            self.hit = True
            raise OSError(self.refusal, os.strerror(self.refusal)) if isinstance(self.refusal, int) else self.refusal
        if self.refusal is None and self.seen >= self.fatal:
            self.hit = True
            raise ProcessDeath  # as does every later call: a dead process cleans nothing up

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            self.count()
            return call(*args, **kwargs)

        return count

    def count_writes(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that opens files: writes to them are counted."""

        def open_counted(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            stream = call(file, mode, *args, **kwargs)
            return _Stream(stream, self.count) if set(mode) & set("wax+") else stream

        return open_counted


class _Stream:
    """A file, which counts what is written to it."""

    def __init__(self, stream: Any, count: Callable[[], None]) -> None:
        self._stream, self._count = stream, count

    def write(self, data: Any) -> Any:
        self._count()
        return self._stream.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *what: object) -> None:
        self._stream.close()
