"""The tiny model and what is made of it."""

from __future__ import annotations

from language_fixtures import (  # noqa: F401
    few_problems,
    grades_by_length,
    model,
    one_thread,
    own_cache,
    policy,
    spec,
    tiny,
)
from schedules import given_schedule as given_schedule
