"""Runner for a Ray cluster: `$RAY_ADDRESS`, or else a cluster started on this machine for the sweep.

Each run is executed by an actor with a local pool of one process: by the same code as on one machine, in a process of
its own, with the sweep's environment. Ray finds machines, counts cores, GPUs and memory, and reports losses. It retries
nothing: the sweep does, after checking the results folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...base.console_log import LOGGER
from ...base.process_launch import without_main_module
from ...base.system_info import package_version
from ...errors import UserError, missing_extra, one_line
from ..ray_connection import (
    address_from_environment,
    check_machine,
    connect,
    is_visible,
    machine_problem,
    probe_file,
    resources,
    run_environment,
    runtime_environment,
)
from ..runner_interface import OUT_OF_MEMORY, Event, Job, ResourceRequest, RunEnd, RunStart, RunWait
from .local import LocalPool

RECOUNT = 5.0  # seconds between two counts of the cluster's resources
ANSWER = 60.0  # seconds for a machine to answer
GRACE = 5.0  # seconds for an actor to end its run by itself; then Ray kills the actor
POLL_SECONDS = 0.5  # for which an actor waits for events of its worker


class RemoteWorker:
    """Ray actor that runs one job at a time in a local pool of one process; its answers are plain data."""

    def __init__(self, probe: str, modules: Sequence[str], variables: Mapping[str, str]) -> None:
        if not is_visible(Path(probe)):
            raise UserError(f"the machine does not see {Path(probe).parent}")
        for name in run_environment():
            del os.environ[name]  # Ray, for one, sets thread counts of its own
        os.environ.update(variables)
        self._pool = LocalPool(1)
        self._pool.open(modules, Path(probe).parent)

    def ready(self) -> list[Event]:
        """Return once the actor exists."""
        return []

    def start(self, job: Job) -> list[Event]:
        with without_main_module():
            self._pool.start(job)
        return []

    def poll(self) -> list[Event]:
        """Return the events since the last call; wait a little for one."""
        return list(self._pool.poll(POLL_SECONDS))

    def ask_to_stop(self, run_id: str) -> None:
        with contextlib.suppress(KeyError):  # the actor has ended
            self._pool.ask_to_stop(run_id)

    def kill(self, run_id: str) -> None:
        with contextlib.suppress(KeyError):
            self._pool.kill(run_id)

    def close(self) -> None:
        self._pool.close()


@dataclass
class _ActorCall:
    """A `RemoteWorker` with its job and the pending call to it."""

    handle: Any
    share: int
    job: Job | None = None
    call: Any = None
    is_placed: bool = False  # Ray has found a machine for it; only then does it get the job
    is_queued: bool = False  # the sweep has been told that Ray has no machine yet
    kill_time: float | None = None  # since when it has to end


class RayRunner:
    """Keeps actors for as many runs as there is room for, created when needed and reused for later runs."""

    multi_machine, has_queue = True, False

    def __init__(self, request: ResourceRequest) -> None:
        self.request, self._resources = request, resources(request)
        self.capacity = self.per_machine = 0
        self._actors: list[_ActorCall] = []
        self._count_time = 0.0
        self._is_connected = False  # by this sweep
        self._closing = contextlib.ExitStack()

    def open(self, modules: Sequence[str], root: Path) -> None:
        """Connect, and check that every machine has this program and sees the results."""
        self._is_connected = connect(self.request)
        import ray

        self._ray = ray
        self._count()
        if not self.per_machine:
            raise UserError(
                f"RUNNER=ray: no machine of the cluster has room for a run, which takes {self._resources} (MEMORY=)"
            )
        self._probe = self._closing.enter_context(probe_file(root))
        self._check_machines(root)
        self._modules, self._environment = list(modules), run_environment()

    def _count(self) -> None:
        """Count the runs that there is room for now."""
        room = [self._resources.fit(node["Resources"]) for node in self._ray.nodes() if node["Alive"]]
        self.capacity = min(self.request.jobs or sum(room), max(1, sum(room)))
        self.per_machine = min(self.capacity, max(room, default=0))
        self._count_time = time.monotonic()

    def _check_machines(self, root: Path) -> None:
        """Raise `UserError` for a machine that cannot take part."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        function = self._ray.remote(check_machine)
        for node in self._ray.nodes():
            if node["Alive"] and self._resources.fit(node["Resources"]):
                name = f"machine {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                node_only = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": node_only}
                call = function.options(**options, runtime_env=runtime_environment()).remote(str(self._probe))
                try:
                    sees_probe, code = self._ray.get(call, timeout=ANSWER)
                except self._ray.exceptions.RayError as error:
                    raise UserError(f"RUNNER=ray: {name} cannot run staleharness: {_last_line(error)}") from None
                if problem := machine_problem(sees_probe, code, root):
                    raise UserError(f"RUNNER=ray: {name} {problem}")

    def start(self, job: Job) -> None:
        if self._resources.gpu:
            job = replace(job, runs_per_gpu=max(1, round(1.0 / self._resources.gpu) // job.share))
        idle = [actor for actor in self._actors if actor.job is None]
        actor = next((actor for actor in idle if actor.share == job.share), None)
        if actor is None:
            for other in idle:  # an idle actor may occupy the place of a larger one
                self._drop(other)
            actor = self._new(job.share)
        self._give(actor, job)

    def _give(self, actor: _ActorCall, job: Job) -> None:
        actor.job, actor.kill_time = job, None
        actor.call = actor.handle.start.remote(job) if actor.is_placed else actor.handle.ready.remote()

    def _fill(self) -> None:
        """Give idle actors to runs whose own actor is not placed yet: it may wait for the resources of the idle one."""
        waiting = [actor for actor in self._actors if actor.job and not actor.is_placed and actor.kill_time is None]
        for idle in [actor for actor in self._actors if actor.job is None]:
            match = next((actor for actor in waiting if actor.share == idle.share), None)
            if match is not None and match.job is not None:
                waiting.remove(match)
                self._drop(match)
                self._give(idle, match.job)
            elif waiting:
                self._drop(idle)

    def _new(self, share: int) -> _ActorCall:
        options = self._resources.actor_options(share, self._ray.nodes())
        options |= {"max_restarts": 0, "max_task_retries": 0}
        cls = self._ray.remote(RemoteWorker).options(runtime_env=runtime_environment(), **options)
        actor = _ActorCall(cls.remote(str(self._probe), self._modules, self._environment), share)
        self._actors.append(actor)
        return actor

    def poll(self, timeout: float) -> Iterator[Event]:
        if time.monotonic() - self._count_time > RECOUNT:
            self._count()
        self._fill()
        busy = {actor.call: actor for actor in self._actors if actor.job is not None}
        if not busy:
            return
        yield from self._report_queued()
        self._ray.wait(list(busy), num_returns=1, timeout=timeout)
        ready, _ = self._ray.wait(list(busy), num_returns=len(busy), timeout=0)
        for call in ready:
            yield from self._answer(busy[call])
        for actor in busy.values():
            if actor.kill_time is not None and time.monotonic() - actor.kill_time > GRACE:
                self._ray.kill(actor.handle)

    def _report_queued(self) -> Iterator[Event]:
        """Report runs whose actor is not placed: other users may occupy the cluster for hours."""
        for actor in self._actors:
            if actor.job is not None and not actor.is_placed and not actor.is_queued:
                actor.is_queued = True
                yield RunWait(actor.job.run_id)

    def _answer(self, actor: _ActorCall) -> list[Event]:
        try:
            events: list[Event] = self._ray.get(actor.call)
        except self._ray.exceptions.RayError as error:
            return [self._loss(actor, error)]
        if not actor.is_placed:
            actor.is_placed = True
            assert actor.job is not None
            self._give(actor, actor.job)
            return [RunStart(actor.job.run_id)] if actor.is_queued else []
        if any(isinstance(event, RunEnd) for event in events):
            actor.job = actor.call = None
        else:
            actor.call = actor.handle.poll.remote()
        return events

    def _loss(self, actor: _ActorCall, error: Exception) -> RunEnd:
        """Return the end of a run whose actor is gone, or cannot be reached."""
        errors = self._ray.exceptions
        assert actor.job is not None
        run_id = actor.job.run_id
        self._drop(actor)
        if actor.kill_time is not None:
            cause = "signal SIGKILL" if actor.is_placed else "lack of room"
            return RunEnd(run_id, None, cause, lost=not actor.is_placed)
        if isinstance(error, errors.OutOfMemoryError):
            return RunEnd(run_id, None, f"{OUT_OF_MEMORY}: Ray ended it to save its machine")
        if isinstance(error, errors.RayTaskError) or getattr(error, "_actor_init_failed", False):
            return RunEnd(run_id, None, f"an error on the machine where it was to run: {_last_line(error)}")
        LOGGER.info("Ray says of run %s: %s", run_id, one_line(error))
        return RunEnd(run_id, None, "loss of its machine", lost=True)

    def _drop(self, actor: _ActorCall) -> None:
        self._actors.remove(actor)
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor.handle)

    def ask_to_stop(self, run_id: str) -> None:
        for actor in self._of(run_id):
            if actor.is_placed:
                actor.handle.ask_to_stop.remote(run_id)
            else:
                self.kill(run_id)

    def kill(self, run_id: str) -> None:
        for actor in self._of(run_id):
            if actor.kill_time is None:
                actor.kill_time = time.monotonic()
                if actor.is_placed:
                    actor.handle.kill.remote(run_id)
                else:
                    self._ray.kill(actor.handle)

    def _of(self, run_id: str) -> list[_ActorCall]:
        return [actor for actor in self._actors if actor.job is not None and actor.job.run_id == run_id]

    def leave_jobs(self) -> None:
        """Do nothing: no actor outlives its sweep."""

    def close(self) -> None:
        self._closing.close()
        if self._actors:
            calls = [actor.handle.close.remote() for actor in self._actors if actor.job and actor.is_placed]
            if calls:
                self._ray.wait(calls, num_returns=len(calls), timeout=GRACE)
            for actor in list(self._actors):
                self._drop(actor)
        if self._is_connected:
            self._ray.shutdown()


def make(request: ResourceRequest) -> RayRunner:
    """Make the runner. Raises `UserError` if Ray is not installed, or its address is invalid."""
    if package_version("ray") is None:
        raise missing_extra("RUNNER=ray", "ray")
    address_from_environment()
    return RayRunner(request)


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
