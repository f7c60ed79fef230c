"""Discrete-event simulation of a pipeline: the part with the next event acts, until the trainer has done its steps."""

from __future__ import annotations

from math import inf, isnan

from ..errors import UserError
from .admission_and_queue import Admission, BatchQueue, Fate, GroupQueue
from .pipeline_event_log import FATES, EventLog, PipelineRecord, record_of
from .pipeline_settings import Pipeline
from .rollout_slots import RolloutSlots
from .trainer_and_sync import Trainer, WeightSync
from .worker_failures import WorkerFailures
from .workload_sampler import Lengths, Workload

MAX_FAILURES = 10_000
"""Consecutive failures, with no row finished in between, after which the simulation gives up."""

WARM_UP = 0.2
"""Share of the steps that are left out of summaries."""


class StarvationError(UserError):
    """Error for a trainer that will never get another batch."""


def simulate(pipeline: Pipeline, seed: int = 0, lengths: Lengths | None = None) -> PipelineRecord:
    """Simulate a pipeline for its steps; the result is a function of settings, seed and `lengths`.

    `lengths` returns the lengths of each group as it begins, in place of the settings' distribution. Raises `UserError`
    where the rules starve the trainer, with the time.
    """
    return _EventLoop(pipeline, seed, lengths).run()


class _EventLoop:
    def __init__(self, pipeline: Pipeline, seed: int, lengths: Lengths | None) -> None:
        self.pipeline, self.seed = pipeline, seed
        self.log = EventLog(pipeline.group)
        self.work = Workload(pipeline, seed, lengths)
        self.admission = Admission(pipeline, lambda: self.group_queue.n_taken)
        self.slots = RolloutSlots(pipeline, self.work, self.admission, self.log, self.deliver)
        if pipeline.holds == "batches":
            self.group_queue: GroupQueue = BatchQueue(pipeline, seed, self.version_of, self.discard)
        else:
            self.group_queue = GroupQueue(pipeline, self.version_of, self.discard)
        self.trainer = Trainer(pipeline, seed)
        self.sync = WeightSync(pipeline, self.slots)
        self.workers = WorkerFailures(pipeline, seed, self.slots)
        self.outside: list[tuple[int, int]] = []  # groups that find no room in the queue, with their slots
        self.trained_groups = self.dropped = 0  # groups
        self.dropped_in_a_row = self.failures = 0
        self.warm = int(WARM_UP * pipeline.steps)
        self.warm_up_end, self.warm_up_slot_seconds = 0.0, dict[str, float]()

    def run(self) -> PipelineRecord:
        slots, trainer, sync, workers = self.slots, self.trainer, self.sync, self.workers
        now, steps = 0.0, self.pipeline.steps
        slots.fill(now)
        while trainer.version < steps:
            self.look_ahead()
            row_at = slots.next()
            if sync.draining and not slots.rows and not slots.interrupted:
                sync.end_draining(now)
                self.go_on(now)
            elif row_at < slots.horizon:
                slots.advance()
                now, self.failures = max(now, slots.now), 0
            elif row_at == trainer.until == sync.until == inf and not slots.down:
                raise StarvationError(self.deadlock(now))
            elif slots.horizon == sync.until:
                now = sync.until
                sync.arrive(now)
                self.go_on(now)
            elif slots.horizon == trainer.until:
                now = trainer.until
                self.handle_trainer_event(now)
            else:
                now = workers.next
                if workers.happen() or trainer.state == "waiting":  # else an idle worker failed, which costs nothing
                    self.count_failure("worker_mtbf", now)
        return self.record(now)

    def look_ahead(self) -> None:
        self.slots.horizon = min(self.trainer.until, self.sync.until, self.workers.next)

    def deliver(self, group: int, slot: int, now: float) -> bool:
        """Put a finished group into the queue, from which a waiting trainer takes it. Returns False if it is full."""
        self.admission.n_finished += 1
        if not self.group_queue.put(group):
            self.outside.append((group, slot))
            return False
        self.group_queue.make_ahead()
        self.queue(group, now)
        if self.trainer.state == "waiting":
            self.begin_step(now)
        self.pause_if_full(now)
        return True

    def queue(self, group: int, now: float) -> None:
        self.log.queue_time[group] = now
        if self.log.fate[group] == FATES.index("in_flight"):  # unless it was dropped at once
            self.log.fate[group] = FATES.index("queued")

    def begin_step(self, now: float) -> None:
        """Let the trainer begin a step, if it can."""
        if self.trainer.state == "syncing" and not self.sync.under_way:
            self.trainer.end_sync(now)
        if self.trainer.state != "waiting" or self.trainer.version == self.pipeline.steps:
            return
        batch = self.group_queue.take()
        while self.let_in(now) and not batch:  # stale groups were dropped, and others took their room
            batch = self.group_queue.take()
        if batch:
            version, log, size = self.trainer.version, self.log, self.pipeline.group
            is_reused = log.fate[batch[0]] == FATES.index("trained")
            for group in batch:
                if is_reused:
                    log.reused.append((group, version))
                    continue
                log.step[group] = log.exit_step[group] = version
                log.fate[group] = FATES.index("trained")
            log.step_start.append(now)
            if self.pipeline.sync_at == "start":
                self.sync.publish(version, now)
            self.group_queue.make_ahead()
            self.let_in(now)
            self.trained_groups += 0 if is_reused else len(batch)
            self.dropped_in_a_row = 0
            tokens = 0
            if self.pipeline.train_token_seconds:
                tokens = sum(sum(self.work.tokens[g * size : (g + 1) * size]) for g in batch)
            self.trainer.take(tokens)
            if self.sync.under_way and self.pipeline.blocking:
                self.trainer.enter("syncing", now)
            else:
                self.trainer.train(now)
            self.look_ahead()
        self.slots.fill(now)

    def go_on(self, now: float) -> None:
        """Let the trainer go on once weights have been sent or have arrived."""
        self.begin_step(now)
        self.pause_if_full(now)

    def let_in(self, now: float) -> bool:
        """Move groups that wait outside into the queue; return whether there was room for any."""
        n_outside = len(self.outside)
        while self.outside and self.group_queue.put(self.outside[0][0]):
            group, slot = self.outside.pop(0)
            self.queue(group, now)
            if self.slots.unblock(slot, now) or not self.group_queue.has_room:
                self.group_queue.make_ahead()
        return len(self.outside) < n_outside

    def handle_trainer_event(self, now: float) -> None:
        """End a step, or handle a failure or restart of the trainer."""
        event = self.trainer.finish(now)
        if event == "failed":
            self.count_failure("trainer_mtbf", now)
        if event == "restarted" and self.pipeline.counters == "forget":
            self.admission.forget(self.trained_groups)
            self.slots.fill(now)
        if event != "step":
            return
        self.log.step_end.append(now)
        self.admission.trained = self.trainer.version
        if self.pipeline.stop:
            self.abort_stale(now)
        if self.trainer.version == self.warm:
            self.warm_up_end, self.warm_up_slot_seconds = now, self.slots.totals(now)
        self.log.under_way.append(len(self.log.slot) - (self.trained_groups + self.dropped) * self.pipeline.group)
        if self.pipeline.full == "pause":
            self.slots.resume(now, "queue")
            self.slots.fill(now)
        if self.pipeline.sync_at == "end":
            self.sync.publish(self.trainer.version, now)
        if self.sync.under_way and self.pipeline.blocking:
            self.trainer.enter("syncing", now)
        else:
            self.begin_step(now)
        self.pause_if_full(now)

    def pause_if_full(self, now: float) -> None:
        """Pause generation while `capacity` batches wait or train, and end the pause once stale groups were dropped."""
        if self.pipeline.full != "pause" or self.pipeline.capacity is None:
            return
        batches = len(self.group_queue) // self.pipeline.groups + self.trainer.has_batch
        if batches >= self.pipeline.capacity:
            self.slots.pause(now, "queue")
        elif "queue" in self.slots.clock.pauses:
            self.slots.resume(now, "queue")
            self.slots.fill(now)

    def abort_stale(self, now: float) -> None:
        """Abort groups under way that are too old to be trained on."""
        for group in filter(self.group_queue.too_old, self.slots.under_way_groups()):
            self.slots.abort(group, now)
            self.group_queue.skip(group)
            self.log.abort_time[group] = now
            self.discard(group, "dropped_stale")

    def count_failure(self, name: str, now: float) -> None:
        """Count a failure. Raises `StarvationError` after too many in a row."""
        self.failures += 1
        if self.failures > MAX_FAILURES:
            raise StarvationError(
                f"the trainer starves at t = {now:.1f} s, before step {self.trainer.version}: the last "
                f"{MAX_FAILURES:,} failures came before anything was finished; "
                f"{name}={getattr(self.pipeline, name):g} is too short"
            )

    def version_of(self, group: int) -> int | None:
        return self.log.oldest(group) if group * self.pipeline.group < len(self.log.version) else None

    def discard(self, group: int, fate: Fate) -> None:
        """Drop a group. Raises `StarvationError` after too many drops in a row."""
        self.log.fate[group] = FATES.index(fate)
        self.log.exit_step[group] = len(self.log.step_start)
        self.admission.release(is_finished=isnan(self.log.abort_time[group]))
        self.dropped += 1
        if fate == "dropped_full":
            return
        if self.pipeline.stale == "recycle":
            self.work.recycle(group)
        is_old = self.log.queue_time[group] < self.trainer.since  # waited for a busy trainer; NaN: never queued
        self.dropped_in_a_row += self.trainer.state == "waiting" and not is_old
        if self.dropped_in_a_row > 100 * (self.pipeline.groups + self.pipeline.slots):
            raise StarvationError(
                f"the trainer starves at t = {self.slots.now:.1f} s, before step {self.trainer.version}: the last "
                f"{self.dropped_in_a_row:,} groups were all dropped; max_lag={self.pipeline.max_lag} is too strict"
            )

    def deadlock(self, now: float) -> str:
        """Describe a deadlock in one line."""
        p = self.pipeline
        text = (
            f"deadlock at t = {now:.1f} s: the trainer waits for step {self.trainer.version} with "
            f"{len(self.group_queue)} of {p.groups} groups in the queue, and "
        )
        if self.outside:
            assert p.capacity is not None, "only a full queue leaves groups outside"
            return f"{text}{len(self.outside)} finished groups find no room in it; raise capacity={p.capacity:g}"
        if self.slots.clock.paused_at is not None:
            return f"{text}generation stands still while capacity={p.capacity:g} batches wait; raise capacity"
        if self.slots.free and p.cap is not None:
            return (
                f"{text}cap={p.cap:g} admits no row before a version after {self.slots.version} reaches the slots "
                f"(sync_every={p.sync_every}); raise cap"
            )
        return f"{text}no row is under way"

    def record(self, now: float) -> PipelineRecord:
        self.trainer.enter("waiting", now)
        return record_of(
            self.log,
            self.pipeline,
            tokens=self.work.tokens,
            partial=self.slots.under_way(now),
            seed=self.seed,
            seconds=now,
            warm=self.warm,
            trainer=tuple(self.trainer.spans),
            slot_seconds={
                state: n - self.warm_up_slot_seconds.get(state, 0.0) for state, n in self.slots.totals(now).items()
            },
            warm_up_end=self.warm_up_end,
            lost=self.slots.lost,
        )
