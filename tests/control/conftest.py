"""One torch thread, as in a worker: bits depend on it."""

from __future__ import annotations

from schedules import given_schedule as given_schedule
from whole_runs import one_thread as one_thread
