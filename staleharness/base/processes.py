"""Starting processes that need nothing of the program which starts them."""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def nothing_of_main() -> Iterator[None]:
    """Keep multiprocessing from executing the caller's script again in every worker, which it does with the file of
    `__main__` unless that has a name: a worker needs nothing of it."""
    module = sys.modules["__main__"]
    before = getattr(module, "__spec__", None)
    module.__spec__ = importlib.machinery.ModuleSpec("__main__", None)
    try:
        yield
    finally:
        module.__spec__ = before
