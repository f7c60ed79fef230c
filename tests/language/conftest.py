"""The tiny model and what is made of it."""

from __future__ import annotations

from language_fixtures import few_problems, one_thread, policy, spec, tiny  # noqa: F401
from schedules import written as written
