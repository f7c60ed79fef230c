"""The tiny model and what is made of it."""

from __future__ import annotations

from multiprocessing import forkserver

import pytest
from language_fixtures import (  # noqa: F401
    few_problems,
    grades_by_length,
    mixture,
    model,
    one_thread,
    own_cache,
    policy,
    spec,
    tiny,
    tiny_mixture,
    tiny_parts,
)
from schedules import given_schedule as given_schedule

from staleharness.language.task import LanguageTask


@pytest.fixture(autouse=True, scope="session")
def server_of_language(one_fork_server: list[str]) -> None:
    """The next fork server also loads what language models want, or each worker and actor would load it anew."""
    one_fork_server.extend(LanguageTask.preload)
    forkserver.set_forkserver_preload([])
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
