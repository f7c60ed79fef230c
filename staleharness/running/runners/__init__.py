"""Runners: each module here is one, chosen by its name."""

from __future__ import annotations

import importlib

from ...base.module_registry import module_names
from ...errors import UserError, nearest, shorten
from ..runner_interface import ResourceRequest, Runner


def make_runner(name: str, request: ResourceRequest) -> Runner:
    """Make the runner of that name, not opened yet.

    Raises `UserError` for an unknown name, and if a requirement of the runner is not installed.
    """
    if name not in (names := module_names(__name__)):
        raise UserError(f"RUNNER={shorten(name)!r} is unknown; {nearest(name, names)}")
    runner: Runner = importlib.import_module(f"{__name__}.{name}").make(request)
    return runner
