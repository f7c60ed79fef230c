"""The tiny model and what is made of it."""

from __future__ import annotations

from language_fixtures import few_problems, one_thread, policy, spec, tiny, tiny_parts  # noqa: F401
