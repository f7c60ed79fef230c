"""Runs that take milliseconds."""

from __future__ import annotations

from known_plugins import tabular  # noqa: F401
