"""What a user adds to the submission: `SLURM='--partition=gpu --time=4:00:00 --mem=8G'`."""

from __future__ import annotations

import re
import shlex

from ...errors import UserError, shorten

OPTION = re.compile(r"--(?P<name>[a-z][a-z0-9-]*)(=[\w.,:=+/@%*\[\]&|()-]+)?", re.ASCII)
OURS = (
    "array chdir error export export-file input job-name nodes no-requeue ntasks open-mode output parsable requeue "
    "test-only wait wrap"
).split()  # what the runner itself says to sbatch, or what would take the array from its hands
WARNING = re.compile(r"--signal=B:USR1@\d{1,5}")


def parse(text: str) -> list[str]:
    """Words for `sbatch`, each an option with its value. Raises `UserError`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"SLURM={shorten(text)!r} cannot be read: {error}") from None
    for word in words:
        match = OPTION.fullmatch(word)
        if match is None:
            raise UserError(f"SLURM: {shorten(word)!r} is not of the form --name=value, as in --time=4:00:00")
        if match["name"] in OURS:
            raise UserError(f"SLURM: --{match['name']} is set by the runner; leave it out")
        if match["name"] == "signal" and not WARNING.fullmatch(word):
            raise UserError(f"SLURM: {shorten(word)!r} must be of the form --signal=B:USR1@SECONDS")
    return words
