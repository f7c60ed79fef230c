from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from command_line import cli as cli
from heap import freeze_heap
from skip_record import SkipRecord

# Before torch is loaded, and for every process that a test starts: tests share the cores, and tensors as small as
# theirs do nothing but wait for a second thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What terminals and CI services say of width and colour: rich believes it of a file, too.
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)

# Collection makes a million objects, all of which stay: looking for garbage among them takes a quarter of its time.
gc.disable()

# How long an example takes is no property of what is tested.
hypothesis.settings.register_profile(
    "under load", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("under load")

# What a shell script starts with `nohup ... &` is born deaf to these, and so would be every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Where tests write, in memory if there is room: whatever is published is synced, thousands of times, and a disk takes
# milliseconds for each.
MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4e9:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_configure(config: pytest.Config) -> None:
    cache = config.pluginmanager.has_plugin("cacheprovider")  # which `-p no:cacheprovider` leaves out
    if cache and not hasattr(config, "workerinput"):  # once, not in every worker of xdist
        config.pluginmanager.register(SkipRecord(config.cache.mkdir("skipped") / "for_want_of_an_extra"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For `make test-long`, leave out the files that have no long test: to read them takes seconds in each worker."""
    if not config.option.markexpr.startswith("long ") or not collection_path.name.startswith("test_"):
        return None
    return "mark.long" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    found = yield
    if fixturedef.scope != "function":
        freeze_heap()
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: tests of processes wait for them most of their time, and each worker takes six
    seconds to import and collect."""
    from staleharness.running.runner_interface import usable_cores

    return usable_cores() + 1


@pytest.fixture(autouse=True, scope="session")
def one_fork_server() -> Iterator[list[str]]:
    """All tests of this process share the fork server that the first of them starts. It loads what most of them want of
    it, whoever is the first: these modules. What language models want takes as long again, and their tests add it."""
    from staleharness.control.task import ControlTask
    from staleharness.running.runners.local import GRADIENT, WORKER

    preload, always = forkserver.set_forkserver_preload, [WORKER, GRADIENT, *ControlTask.preload]

    def and_more(modules: list[str]) -> None:
        preload(list(dict.fromkeys([*always, *modules])))

    # Who starts it without a word of what to load would leave it to each process to load torch.
    and_more([])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forkserver, "set_forkserver_preload", and_more)
        yield always


@pytest.fixture
def short_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports show one figure, drawn quickly: drawing them all takes several times as long as the sweeps of a test."""
    from quick_figures import draw_quickly

    from staleharness.figures import registry

    draw_quickly(monkeypatch)
    every = registry.sections
    monkeypatch.setattr(registry, "sections", lambda results: every(results)[:1])


@pytest.fixture
def witness() -> Iterator[object]:
    """The method `witness` is registered, and this is what it sees (`witness.MethodCalls`)."""
    from witness import MethodCalls, Witness

    from staleharness.algorithm import ALGORITHMS

    Witness.seen = MethodCalls()
    ALGORITHMS.register("witness")(Witness)
    yield Witness.seen
    del ALGORITHMS._classes["witness"]
