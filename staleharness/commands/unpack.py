"""`staleharness unpack`: a bundle as a folder of results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .shared.arguments import Help


@dataclass(frozen=True, kw_only=True)
class Command:
    """Unpack a bundle into a results folder that a sweep can add to."""

    source: Annotated[str, Help("BUNDLE")]
    """A bundle, e.g. results/reference/vaco_control."""
    to: Annotated[str, Help("OUT")]
    """Folder for results; runs already in it stay as they are."""


def handle(command: Command) -> int:
    from ..base.reference_results import results_path
    from ..store.bundle_writer import unpack

    print(unpack(str(results_path(command.source)), command.to))
    return 0
