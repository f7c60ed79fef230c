from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from multiprocessing import forkserver

import pytest

# Before torch is loaded, and for every process that a test starts: tests share the cores, and tensors as small as
# theirs do nothing but wait for a second thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What a shell script starts with `nohup ... &` is born deaf to these, and so would be every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores: tests of processes wait for them most of their time."""
    from staleharness.running.devices import usable_cores

    return usable_cores() + 1


def pytest_collection_finish(session: pytest.Session) -> None:
    """Whoever needs a fork server first starts it, and all tests of this process share it: it loads what any of them
    wants of it, or each worker of the others would load that for itself."""
    rooms = {item.path.parent.name for item in session.items}
    preload = forkserver.set_forkserver_preload

    def with_all(modules: list[str]) -> None:
        from staleharness.chain.task import ChainTask
        from staleharness.control.task import ControlTask
        from staleharness.language.task import LanguageTask
        from staleharness.running.runners.local import GRADIENT, WORKER

        kinds = [ChainTask, ControlTask, *([LanguageTask] if "language" in rooms else [])]
        preload(
            list(dict.fromkeys([WORKER, GRADIENT, *(n for kind in kinds for n in kind.preload), *modules]))
        )

    forkserver.set_forkserver_preload = with_all


@pytest.fixture
def witness() -> Iterator[object]:
    """The method `witness` is registered, and this is what it sees (`witness.Seen`)."""
    from witness import Seen, Witness

    from staleharness.algorithm import ALGORITHMS

    Witness.seen = Seen()
    ALGORITHMS.register("witness")(Witness)
    yield Witness.seen
    del ALGORITHMS._classes["witness"]
