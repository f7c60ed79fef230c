"""The parts meet in time: whoever is due next acts, until the trainer has made its steps."""

from __future__ import annotations

from math import inf, isnan

from ..errors import UserError
from .admission import Admission
from .faults import Faults
from .finished import Fate, Finished
from .log import FATES, Log, Record, record_of
from .settings import Pipeline
from .slots import Slots
from .sync import Sync
from .trainer import Trainer
from .work import Lengths, Work

MOST_FAILURES = 10_000  # in a row
WARM_UP = 0.2  # share of the steps that are left out of what is measured


class Starved(UserError):
    """The trainer will never have another batch."""


def simulate(pipeline: Pipeline, seed: int = 0, lengths: Lengths | None = None) -> Record:
    """Run a pipeline for its steps: a pure function of settings and seed, and of what `lengths` answers in place of the
    settings' lengths.

    Raises `UserError` where its rules starve the trainer, with the time at which they did.
    """
    return _Simulation(pipeline, seed, lengths).run()


class _Simulation:
    def __init__(self, pipeline: Pipeline, seed: int, lengths: Lengths | None) -> None:
        self.pipeline, self.seed = pipeline, seed
        self.log = Log(pipeline.group)
        self.work = Work(pipeline, seed, lengths)
        self.admission = Admission(pipeline)
        self.slots = Slots(pipeline, self.work, self.admission, self.log, self.deliver)
        self.finished = Finished(pipeline, self.version_of, self.lag_of, self.discard)
        self.trainer = Trainer(pipeline, seed)
        self.sync = Sync(pipeline, self.slots)
        self.faults = Faults(pipeline, seed, self.slots)
        self.outside: list[tuple[int, int]] = []  # groups that find no room in the queue, and their slots
        self.taken = self.dropped = 0  # groups
        self.dropped_in_a_row = self.failures = 0
        self.warm = int(WARM_UP * pipeline.steps)
        self.since, self.before = 0.0, dict[str, float]()

    def run(self) -> Record:
        slots, trainer, sync, faults = self.slots, self.trainer, self.sync, self.faults
        now, steps = 0.0, self.pipeline.steps
        slots.fill(now)
        while trainer.version < steps:
            self.look_ahead()
            row_at = slots.next()
            if sync.draining and not slots.rows and not slots.again:
                sync.drained(now)
                self.go_on(now)
            elif row_at < slots.horizon:
                slots.advance()
                now, self.failures = max(now, slots.now), 0
            elif row_at == trainer.until == sync.until == inf and not slots.down:
                raise Starved(self.why(now))
            elif slots.horizon == sync.until:
                now = sync.until
                sync.arrive(now)
                self.go_on(now)
            elif slots.horizon == trainer.until:
                now = trainer.until
                self.train_on(now)
            else:
                now = faults.next
                faults.happen()
                self.in_vain("worker_mtbf", now)
        return self.record(now)

    def look_ahead(self) -> None:
        self.slots.horizon = min(self.trainer.until, self.sync.until, self.faults.next)

    def deliver(self, group: int, slot: int, now: float) -> bool:
        """A group is finished: into the queue, and to a trainer that waits. False: there is no room for it."""
        self.admission.finished += 1
        if not self.finished.put(group):
            self.outside.append((group, slot))
            return False
        self.queue(group, now)
        if self.trainer.state == "waiting":
            self.go_on(now)
        return True

    def queue(self, group: int, now: float) -> None:
        self.log.queued[group] = now
        if self.log.fate[group] == FATES.index("in_flight"):  # it may have been dropped at once
            self.log.fate[group] = FATES.index("queued")

    def go_on(self, now: float) -> None:
        """Let the trainer begin a step, if it can."""
        if self.trainer.state == "syncing" and not self.sync.under_way:
            self.trainer.enter("waiting", now)
        if self.trainer.state != "waiting" or self.trainer.version == self.pipeline.steps:
            return
        batch = self.finished.take()
        while self.let_in(now) and not batch:  # stale groups went, and others took their room
            batch = self.finished.take()
        if batch:
            version, log, first = self.trainer.version, self.log, self.pipeline.group
            for group in batch:
                log.step[group] = log.left[group] = version
                log.fate[group] = FATES.index("trained")
            log.step_began.append(now)
            self.taken += len(batch)
            self.dropped_in_a_row = 0
            tokens = 0
            if self.pipeline.train_token_seconds:
                tokens = sum(sum(self.work.tokens[g * first : (g + 1) * first]) for g in batch)
            self.trainer.train(tokens, now)
            self.look_ahead()
        self.slots.fill(now)

    def let_in(self, now: float) -> bool:
        """Groups that waited for room in the queue; whether there were any."""
        waited = len(self.outside)
        while self.outside and self.finished.put(self.outside[0][0]):
            group, slot = self.outside.pop(0)
            self.queue(group, now)
            self.slots.unblock(slot, now)
        return len(self.outside) < waited

    def train_on(self, now: float) -> None:
        """A step is over, or was interrupted."""
        what = self.trainer.finish(now)
        if what == "failed":
            self.in_vain("trainer_mtbf", now)
        if what == "restarted" and self.pipeline.counters == "forget":
            self.admission.forget(self.taken)
            self.slots.fill(now)
        if what != "step":
            return
        self.log.step_ended.append(now)
        self.admission.trained = self.trainer.version
        if self.pipeline.stop:
            self.stop_stale(now)
        if self.trainer.version == self.warm:
            self.slots.account(now)
            self.since, self.before = now, dict(self.slots.seconds)
        started = len(self.log.slot)
        self.log.under_way.append(started - (self.taken + self.dropped) * self.pipeline.group)
        self.sync.publish(self.trainer.version, now)
        if self.sync.under_way and self.pipeline.blocking:
            self.trainer.enter("syncing", now)
        else:
            self.go_on(now)

    def stop_stale(self, now: float) -> None:
        """Give up what is under way and could not be trained on any more."""
        for group in filter(self.finished.too_old, self.slots.under_way_groups()):
            self.slots.stop(group, now)
            self.finished.forgo(group)
            self.log.stopped[group] = now
            self.discard(group, "dropped_stale")

    def in_vain(self, name: str, now: float) -> None:
        """Count a failure. Raises `Starved` where there are only failures."""
        self.failures += 1
        if self.failures > MOST_FAILURES:
            raise Starved(
                f"the trainer starves at t = {now:.1f} s, before step {self.trainer.version}: the last "
                f"{MOST_FAILURES:,} failures let nothing be finished; "
                f"{name}={getattr(self.pipeline, name):g} is too short"
            )

    def version_of(self, group: int) -> int | None:
        return self.log.oldest(group) if group * self.pipeline.group < len(self.log.version) else None

    def lag_of(self, group: int) -> int:
        return self.trainer.version - self.log.oldest(group)

    def discard(self, group: int, fate: Fate) -> None:
        """A group is dropped. Raises `Starved` where nothing but this happens any more."""
        self.log.fate[group] = FATES.index(fate)
        self.log.left[group] = len(self.log.step_began)
        self.admission.give_back(finished=isnan(self.log.stopped[group]))
        self.dropped += 1
        if fate == "dropped_full":
            return
        if self.pipeline.stale == "recycle":
            self.work.recycle(group)
        if self.log.queued[group] >= self.trainer.since:  # not of those that had waited too long for it
            self.dropped_in_a_row += 1
        if self.dropped_in_a_row > 100 * (self.pipeline.groups + self.pipeline.slots):
            raise Starved(
                f"the trainer starves at t = {self.slots.now:.1f} s, before step {self.trainer.version}: the last "
                f"{self.dropped_in_a_row:,} groups were all dropped; max_lag={self.pipeline.max_lag} is too strict"
            )

    def why(self, now: float) -> str:
        """A deadlock, in one line."""
        p = self.pipeline
        text = (
            f"deadlock at t = {now:.1f} s: the trainer waits for step {self.trainer.version} with "
            f"{len(self.finished)} of {p.groups} groups in the queue, and "
        )
        if self.outside:
            return (
                f"{text}{len(self.outside)} finished groups find no room in it; raise capacity={p.capacity:g}"
                if p.capacity is not None
                else text
            )
        if self.slots.free:
            return (
                f"{text}cap={p.cap:g} admits no row before a version after {self.slots.version} reaches the slots "
                f"(sync_every={p.sync_every}); raise cap"
            )
        return f"{text}no row is under way"

    def record(self, now: float) -> Record:
        self.slots.account(now)
        self.trainer.enter("waiting", now)
        slot_seconds = {state: n - self.before.get(state, 0.0) for state, n in self.slots.seconds.items()}
        return record_of(
            self.log,
            self.pipeline,
            self.seed,
            seconds=now,
            warm=self.warm,
            tokens=self.work.tokens,
            partial=self.slots.under_way(now),
            spans=self.trainer.spans,
            slot_seconds=slot_seconds,
            since=self.since,
            lost=self.slots.lost,
        )
