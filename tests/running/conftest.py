"""Runs that take milliseconds, and clusters."""

from __future__ import annotations

from known_plugins import tabular  # noqa: F401
from slurm_fixtures import cluster, real_slurm, stand_in  # noqa: F401
