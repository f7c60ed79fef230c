"""Runs that take milliseconds."""

from __future__ import annotations

from tabular_fixture import tabular  # noqa: F401
