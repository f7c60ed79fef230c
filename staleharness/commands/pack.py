"""`staleharness pack`: results as a bundle to publish."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from .shared.arguments import Help


@dataclass(frozen=True, kw_only=True)
class Command:
    """Pack results into a bundle of a few files to publish: every number of every run, without their folders."""

    source: Annotated[str, Help("OUT")]
    """Folder with results."""
    to: Annotated[str, Help("TO")]
    """Folder for the bundle; a bundle already there is replaced, unless runs or numbers would be lost."""
    spec: Annotated[str | None, Help("FILE.toml", "all runs")] = None
    """Study whose runs to pack."""
    code: Annotated[str | None, Help("DIGEST", "all runs")] = None
    """Digest of the file of a method, as in runs.csv: pack only the runs that were made with it."""


def handle(command: Command) -> int:
    from ..base.parsing import user_path
    from ..running.plan import with_stored_labels
    from ..statistics.benchmark.protocol import benchmark_command, digest_of
    from ..store.bundle_writer import pack
    from ..store.locks_and_leases import hold_bundle
    from ..study import read_study, study_file

    spec = None if command.spec is None else str(study_file(command.spec))
    study = None if spec is None else with_stored_labels(read_study(Path(spec)))
    with hold_bundle(user_path(command.to)):
        print(
            pack(
                command.source,
                command.to,
                spec,
                study=study,
                protocol_of=digest_of,
                command_of=benchmark_command,
                code=command.code,
            )
        )
    return 0
