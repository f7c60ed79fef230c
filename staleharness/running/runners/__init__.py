"""Runners: each module here is one, chosen by its name."""

from __future__ import annotations

import importlib

from ...base.module_registry import module_names
from ...errors import UserError, nearest, shorten
from ..runner_interface import ResourceRequest, Runner


def runner_names() -> list[str]:
    """Return the names of all runners, sorted."""
    return module_names(__name__)


def make_runner(name: str, request: ResourceRequest | int) -> Runner:
    """Make the runner of that name, not opened yet; a number requests that many jobs at a time and nothing else.

    Raises `UserError` for an unknown name, and if a requirement of the runner is not installed.
    """
    if name not in runner_names():
        raise UserError(f"RUNNER={shorten(name)!r} is unknown; {nearest(name, runner_names())}")
    request = ResourceRequest(request) if isinstance(request, int) else request
    runner: Runner = importlib.import_module(f"{__name__}.{name}").make(request)
    return runner
