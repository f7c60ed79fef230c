"""One torch thread, as in a worker: bits depend on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from schedules import given_schedule as given_schedule


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
