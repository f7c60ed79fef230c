"""The machines of a Ray cluster: `$RAY_ADDRESS`, or else one that is started on this machine for the sweep.

A place is an actor, somewhere, with a local pool of one process: a run is carried out there by the code that carries it
out here, in a process of its own, under the sweep's environment. Ray finds machines, counts cores, GPUs and memory, and
tells of losses. It retries nothing: that is for the sweep, which asks the results folder.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.logger import LOGGER
from ...base.machine import package_version
from ...errors import UserError, missing_extra
from ..job import Job
from ..place import Place, Seen, environment, probe_file, see
from ..ray_cluster import Resources, address_from_environment, code_path, connect, resources
from ..runner import OUT_OF_MEMORY, Began, Demand, Ended, Event, Queued

RECOUNT = 5.0  # seconds between two looks at what the cluster has
ANSWER = 60.0  # seconds for a machine to answer
GRACE = 5.0  # seconds for a place to end its run by itself; then Ray ends the place


@dataclass
class _Held:
    """A place, the run that is carried out there, and the call by which it is heard."""

    actor: Any
    share: int
    job: Job | None = None
    hearing: Any = None
    there: bool = False  # Ray has found a machine for it; only then is it told of a run
    queued: bool = False  # and it was said that none is found yet
    killed: float | None = None  # since when it is to end


class RayPlaces:
    """Places for as many runs as there is room for, made when they are needed and kept for the runs that follow."""

    shared, queues = True, False

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.capacity = self.neighbours = 0
        self._held: list[_Held] = []
        self._counted = 0.0
        self._ours = False  # the connection to the cluster
        self._closing = contextlib.ExitStack()

    def open(self, modules: Sequence[str], root: Path) -> None:
        """Connect, and make sure that every machine has this program and sees the results."""
        self._ours = connect(self.demand)
        import ray

        self._ray = ray
        self._count()
        if not self.neighbours:
            raise UserError(
                f"RUNNER=ray: no machine of the cluster has room for a run, which takes {self._each} (MEMORY=)"
            )
        self._probe = self._closing.enter_context(probe_file(root))
        self._look(root)
        self._modules, self._environment = list(modules), environment()

    @property
    def _each(self) -> Resources:
        return resources(self.demand)

    def _count(self) -> None:
        """How many runs there is room for, now."""
        room = [self._each.fit(node["Resources"]) for node in self._ray.nodes() if node["Alive"]]
        self.capacity = min(self.demand.jobs or sum(room), max(1, sum(room)))
        self.neighbours = min(self.capacity, max(room, default=0))
        self._counted = time.monotonic()

    def _look(self, root: Path) -> None:
        """Raise `UserError` for a machine that cannot take part."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        function = self._ray.remote(see)
        for node in self._ray.nodes():
            if node["Alive"] and self._each.fit(node["Resources"]):
                name = f"machine {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                asked = function.options(num_cpus=0, max_retries=0, scheduling_strategy=there, runtime_env=code_path())
                try:
                    seen: Seen = self._ray.get(asked.remote(str(self._probe)), timeout=ANSWER)
                except self._ray.exceptions.RayError as error:
                    raise UserError(f"RUNNER=ray: {name} cannot run staleharness: {_last_line(error)}") from None
                if wrong := seen.wrong(root):
                    raise UserError(f"RUNNER=ray: {name} {wrong}")

    def start(self, job: Job) -> None:
        idle = [held for held in self._held if held.job is None]
        held = next((held for held in idle if held.share == job.share), None)
        if held is None:
            for other in idle:  # in the way of a wider one
                self._drop(other)
            held = self._new(job.share)
        self._give(held, job)

    def _give(self, held: _Held, job: Job) -> None:
        held.job, held.killed = job, None
        held.hearing = held.actor.start.remote(job) if held.there else held.actor.ready.remote()

    def _fill(self) -> None:
        """Give idle places to runs that wait for another to be found: what they keep may be what those wait for."""
        waiting = [held for held in self._held if held.job and not held.there and held.killed is None]
        for idle in [held for held in self._held if held.job is None]:
            same = next((held for held in waiting if held.share == idle.share), None)
            if same is not None and same.job is not None:
                waiting.remove(same)
                self._drop(same)
                self._give(idle, same.job)
            elif waiting:
                self._drop(idle)

    def _new(self, share: int) -> _Held:
        options = self._each.of(share, self._ray.nodes())
        cls = self._ray.remote(Place).options(max_restarts=0, max_task_retries=0, runtime_env=code_path(), **options)
        held = _Held(cls.remote(str(self._probe), self._modules, self._environment), share)
        self._held.append(held)
        return held

    def poll(self, timeout: float) -> Iterator[Event]:
        if time.monotonic() - self._counted > RECOUNT:
            self._count()
        self._fill()
        busy = {held.hearing: held for held in self._held if held.job is not None}
        if not busy:
            return
        yield from self._queued()
        self._ray.wait(list(busy), num_returns=1, timeout=timeout)
        ready, _ = self._ray.wait(list(busy), num_returns=len(busy), timeout=0)
        for call in ready:
            yield from self._heard(busy[call])
        for held in busy.values():
            if held.killed is not None and time.monotonic() - held.killed > GRACE:
                self._ray.kill(held.actor)

    def _queued(self) -> Iterator[Event]:
        """The runs that wait for a place: other users of the cluster may have it for hours."""
        for held in self._held:
            if held.job is not None and not held.there and not held.queued:
                held.queued = True
                yield Queued(held.job.run_id)

    def _heard(self, held: _Held) -> list[Event]:
        try:
            events: list[Event] = self._ray.get(held.hearing)
        except self._ray.exceptions.RayError as error:
            return [self._gone(held, error)]
        if not held.there:
            held.there = True
            assert held.job is not None
            self._give(held, held.job)
            return [Began(held.job.run_id)] if held.queued else []
        if any(isinstance(event, Ended) for event in events):
            held.job = held.hearing = None
        else:
            held.hearing = held.actor.hear.remote()
        return events

    def _gone(self, held: _Held, error: Exception) -> Ended:
        """The end of a run whose place is gone, or cannot be reached."""
        known = self._ray.exceptions
        assert held.job is not None
        run_id = held.job.run_id
        self._drop(held)
        if held.killed is not None:
            return Ended(run_id, None, "signal SIGKILL" if held.there else "lack of room", lost=not held.there)
        if isinstance(error, known.OutOfMemoryError):
            return Ended(run_id, None, f"{OUT_OF_MEMORY}: Ray ended it to save its machine")
        if isinstance(error, known.RayTaskError) or getattr(error, "_actor_init_failed", False):
            return Ended(run_id, None, f"an error where it was to run: {_last_line(error)}")
        LOGGER.info("Ray says of run %s: %s", run_id, " ".join(str(error).split()))
        return Ended(run_id, None, "loss of its machine", lost=True)

    def _drop(self, held: _Held) -> None:
        self._held.remove(held)
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(held.actor)

    def ask_to_stop(self, run_id: str) -> None:
        for held in self._of(run_id):
            if held.there:
                held.actor.ask_to_stop.remote(run_id)
            else:
                self.kill(run_id)

    def kill(self, run_id: str) -> None:
        for held in self._of(run_id):
            if held.killed is None:
                held.killed = time.monotonic()
                if held.there:
                    held.actor.kill.remote(run_id)
                else:
                    self._ray.kill(held.actor)

    def _of(self, run_id: str) -> list[_Held]:
        return [held for held in self._held if held.job is not None and held.job.run_id == run_id]

    def close(self) -> None:
        self._closing.close()
        if self._held:
            calls = [held.actor.close.remote() for held in self._held if held.job and held.there]
            if calls:
                self._ray.wait(calls, num_returns=len(calls), timeout=GRACE)
            for held in list(self._held):
                self._drop(held)
        if self._ours:
            self._ray.shutdown()


def make(demand: Demand) -> RayPlaces:
    """Raises `UserError` where Ray is not installed, or its address is none."""
    if package_version("ray") is None:  # a folder called `ray` where the user stands can be imported, too
        raise missing_extra("RUNNER=ray", "ray")
    address_from_environment()
    return RayPlaces(demand)


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip()
