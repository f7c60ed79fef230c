"""Commit and versions, asked by the fork server when it loads this module, for all runs that it forks."""

from __future__ import annotations

from .hardware import software

software()
