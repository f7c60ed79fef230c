"""Rollout slots, in which rows are generated.

Rows are ordered by their finish time on the slots' own clock. The loop in `advance` is the hot loop of the simulation.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from math import inf, isnan

from ..errors import UserError
from ..rollout_schedule import IDLE_ROWS, MAX_ROWS
from .admission_and_queue import Admission
from .pipeline_event_log import EventLog
from .pipeline_settings import Pipeline
from .row_progress import RowProgress, SlotClock
from .workload_sampler import Workload


class RolloutSlots:
    """Slots of all workers. `deliver(group, slot, now)` takes a finished group; on False, the group keeps its slot."""

    def __init__(
        self,
        pipeline: Pipeline,
        work: Workload,
        admission: Admission,
        log: EventLog,
        deliver: Callable[[int, int, float], bool],
    ) -> None:
        self.work, self.admission, self.log, self.deliver = work, admission, log, deliver
        self.group, self.unit, self.return_unit = pipeline.group, pipeline.unit_rows, pipeline.return_rows
        self.backfills, self.progress = pipeline.unit == "backfill", RowProgress(pipeline, work, log)
        self.version = 0  # of the weights in the slots
        self.horizon = inf  # time of the next event elsewhere
        self.clock = SlotClock()
        self.closed = False  # no new row may begin
        self.rows: list[tuple[float, int]] = []  # heap of (time at which the row finishes on the slots' clock, slot)
        self.row = [0] * pipeline.slots  # in each slot
        self.left: list[int] = []  # rows of each group that are not finished
        self.quota = 0  # rows of the current group that have yet to begin
        self.free = deque(range(pipeline.slots))
        self.interrupted: deque[tuple[int, int]] = deque()  # rows that a failure stopped, and their decisions so far
        self.waiting: dict[int, list[int]] = {}  # unit -> slots that wait for its last row
        self.n_waiting = 0  # waiting slots of all units
        self.queue_waits: set[int] = set()  # slots whose group finds no room in the queue
        self.put_waits = self.put_later = 0  # with backfill: groups that find no room, and those that finished later
        self.down: set[int] = set()
        self.lost = 0  # decisions lost in failures
        self.aborted_rows: dict[int, int] = {}  # aborted row -> its decisions so far
        self.seconds: defaultdict[str, float] = defaultdict(float)  # state -> slots × seconds
        self.rebuilt = 0.0  # slots × seconds of rebuilding caches; of rows under way, in advance
        self.now = self._since = 0.0  # when a row last finished, and when `account` was last called
        self._most_rows = IDLE_ROWS * (pipeline.slots + pipeline.batch)  # rows that may begin under one version
        self._first_rows = {0: 0}  # version -> the first row that began under it

    def next(self) -> float:
        """Return the time at which the next row finishes."""
        return self.rows[0][0] + self.clock.offset if self.rows and self.clock.paused_at is None else inf

    def advance(self) -> None:
        """Finish rows and begin others in their place, up to the next event elsewhere (`horizon`)."""
        rows, row_in, left, finish_time = self.rows, self.row, self.left, self.log.finish_time
        seconds, pace = self.work.seconds, self.progress.pace
        single, group, clock = self.unit == 1, self.group, self.clock
        while clock.paused_at is None and rows and rows[0][0] + clock.offset < self.horizon:
            finish, slot = rows[0]
            now = finish + clock.offset
            row = row_in[slot]
            finish_time[row] = self.now = now
            g = row // group
            left[g] -= 1
            if self.backfills:
                self._backfill(g, slot, now)
                continue
            free = True
            if not left[g]:
                free = self.deliver(g, slot, now)
                if rows[0] != (finish, slot):  # rows that take no time have begun, and come before this one
                    rows[rows.index((finish, slot))] = (-inf, slot)
                    heapify(rows)
            may_begin = free and not self.closed and clock.paused_at is None and not self.interrupted
            if single and may_begin and (self.quota or self._admit()):
                new = len(self.log.slot)
                self.quota -= 1
                row_in[slot] = new
                self.log.begin(slot, now, self.version)
                heapreplace(rows, (finish + seconds[new] * pace[slot], slot))
                continue
            self.account(now)
            heappop(rows)
            if free:
                self._leave(slot)
            else:
                self.queue_waits.add(slot)
            self.fill(now)

    def _backfill(self, group: int, slot: int, now: float) -> None:
        """Free a row's slot for another group, and deliver its own group if that is finished. While groups wait for the
        queue, none begins, and groups that finish wait together (miles, submission_scheduler.py, `_worker_loop`)."""
        self.account(now)
        heappop(self.rows)
        self._leave(slot)
        self.fill(now)
        if not self.left[group] and not self.deliver(group, slot, now):
            self.put_later += self.put_waits > 0
            self.put_waits = self.put_waits or 1

    def fill(self, now: float) -> None:
        """Begin rows in free slots, as far as they are admitted."""
        if self.clock.paused_at is not None or self.put_waits:
            return
        self.account(now)
        while self.free:
            if self.interrupted:
                self._continue(*self.interrupted.popleft(), now)
                continue
            new = len(self.log.slot)
            is_short = new % self.unit == 0 and len(self.free) < self.unit
            if self.closed or is_short or not (self.quota or self._admit()):
                return
            self.quota -= 1
            slot = self.free.popleft()
            self.row[slot] = new
            self.log.begin(slot, now, self.version)
            heappush(self.rows, (self.clock.read(now) + self.progress.duration(new), slot))

    def pause(self, now: float, state: str) -> None:
        """Stop generation until `resume(state)`; the time counts as that of the state that began last."""
        self.account(now)
        self.clock.pause(now, state)

    def resume(self, now: float, state: str) -> None:
        self.account(now)
        self.clock.resume(now, state)

    def close(self, now: float) -> None:
        """Let no new row begin until `open`; rows that a failure stopped continue."""
        self.account(now)
        self.closed = True

    def open(self, now: float) -> None:
        self.account(now)
        self.closed = False

    def switch(self, now: float) -> None:
        """Continue rows under way with the current version, after their cache is rebuilt."""
        clock, rows, cut, progress = self.clock.read(now), [], {}, self.progress
        for finish, slot in self.rows:
            row = self.row[slot]
            if not isnan(self.log.finish_time[row]):  # the last row of a group that is being delivered
                rows.append((finish, slot))
                continue
            done = cut[row] = progress.decisions(row, finish - clock)
            self.log.weight_changes.append((row, done, self.version))
            if progress.recompute:
                remaining, rebuild = progress.remaining(row, done), progress.recompute * done
                self.rebuilt += rebuild - max(0.0, finish - clock - remaining)  # less what is left of the one before
                finish = clock + remaining + rebuild
            rows.append((finish, slot))
        heapify(rows)
        self.rows[:], progress.cut = rows, cut

    def fail(self, slots: range, keep: bool, now: float) -> bool:
        """Take a worker down, with the rows in its slots; with `keep` they later continue where they stopped. Returns
        whether there were any."""
        self.account(now)
        lost = [(finish, slot) for finish, slot in self.rows if slot in slots]
        self.rows[:] = [entry for entry in self.rows if entry[1] not in slots]
        heapify(self.rows)
        for finish, slot in sorted(lost):
            row, done = self.row[slot], self._stop(finish, slot, now)
            self.lost += 0 if keep else done
            self.interrupted.append((row, done if keep else 0))
        self.down.update(slots)
        self.free = deque(slot for slot in self.free if slot not in slots)
        return bool(lost)

    def under_way_groups(self) -> list[int]:
        """Return the groups with rows under way, all of whose rows have begun, in the order in which they began."""
        rows = [self.row[slot] for _, slot in self.rows] + [row for row, _ in self.interrupted]
        beginning = len(self.log.slot) // self.group
        return sorted({group for row in rows if (group := row // self.group) < beginning})

    def abort(self, group: int, now: float) -> None:
        """Stop the rows of a group that are under way, permanently, and free their slots."""
        self.account(now)
        rows = [entry for entry in self.rows if self.row[entry[1]] // self.group == group]
        self.rows[:] = [entry for entry in self.rows if self.row[entry[1]] // self.group != group]
        heapify(self.rows)
        for finish, slot in sorted(rows):
            self.aborted_rows[self.row[slot]] = self._stop(finish, slot, now)
            self._leave(slot)
        self.aborted_rows |= {row: done for row, done in self.interrupted if row // self.group == group}
        self.interrupted = deque(entry for entry in self.interrupted if entry[0] // self.group != group)

    def restart(self, slots: range, now: float) -> None:
        """Bring a worker back."""
        self.account(now)
        self.down.difference_update(slots)
        self.free.extend(slot for slot in slots if slot not in self.queue_waits)
        self.fill(now)

    def unblock(self, slot: int, now: float) -> bool:
        """Free a slot whose group has entered the queue. Returns whether groups may be taken before others enter."""
        self.account(now)
        if not self.backfills:
            self.queue_waits.remove(slot)
            self._leave(slot)
            return True
        self.put_waits -= 1
        if self.put_waits == 0:
            self.fill(now)
            self.put_waits, self.put_later = self.put_later, 0
            return True
        return False

    def under_way(self, now: float) -> dict[int, int]:
        """Return {row: decisions so far} of each row that is under way or was aborted."""
        clock, row = self.clock.read(now), self.row
        rows = {row[slot]: self.progress.decisions(row[slot], finish - clock) for finish, slot in self.rows}
        return rows | dict(self.interrupted) | self.aborted_rows

    def totals(self, now: float) -> dict[str, float]:
        """Return state -> slots × seconds so far; time in which caches are rebuilt counts as `recompute` alone."""
        self.account(now)
        totals, clock = dict(self.seconds), self.clock.read(now)
        if self.rebuilt:
            ahead = sum(self.progress.rebuilding(self.row[slot], finish - clock) for finish, slot in self.rows)
            totals["recompute"] = self.rebuilt - ahead
            totals["working"] = totals.get("working", 0.0) - totals["recompute"]
        return totals

    def _stop(self, finish: float, slot: int, now: float) -> int:
        """Return the decisions of a row that is stopped now, and take back what is left of rebuilding its cache."""
        row, left = self.row[slot], finish - self.clock.read(now)
        self.rebuilt -= self.progress.rebuilding(row, left)
        return self.progress.decisions(row, left)

    def _admit(self) -> bool:
        if not self.admission.admits(self.version):
            return False
        rows = len(self.log.slot)
        if rows > min(MAX_ROWS, self._first_rows.setdefault(self.version, rows) + self._most_rows):
            count = f"{rows:,} rows have begun by t = {self.now:.1f} s"
            raise UserError(f"{count}, far more than are trained on; set a cap, or make rows longer")
        self.work.next_group(self.version)
        self.log.new_group()
        self.left.append(self.group)
        self.quota = self.group
        return True

    def _continue(self, row: int, done: int, now: float) -> None:
        """Continue an interrupted row in a free slot."""
        slot = self.free.popleft()
        self.row[slot], self.log.slot[row] = row, slot
        rebuilding = self.progress.recompute * done
        self.rebuilt += rebuilding
        left = self.progress.remaining(row, done) + rebuilding
        if done:
            self.log.weight_changes.append((row, done, self.version))
            self.progress.cut[row] = done
        else:
            self.log.weight_changes = [c for c in self.log.weight_changes if c[0] != row]
            self.progress.cut.pop(row, None)
            self.log.start_time[row], self.log.version[row] = now, self.version
        heappush(self.rows, (self.clock.read(now) + left, slot))

    def _leave(self, slot: int) -> None:
        """Free the slot of a row that has ended, once its whole unit has."""
        leaving = [slot]
        if self.return_unit > 1:
            unit = self.row[slot] // self.unit
            leaving = self.waiting.setdefault(unit, [])
            leaving.append(slot)
            self.n_waiting += 1
            if len(leaving) < self.unit:
                return
            del self.waiting[unit]
            self.n_waiting -= self.unit
        self.free.extend(s for s in sorted(leaving) if s not in self.down)

    def account(self, now: float) -> None:
        """Add the time since the last call to the states of the slots."""
        span, self._since = now - self._since, now
        if not span:
            return
        pause = next(reversed(self.clock.pauses), "")
        for state, slots in (
            (pause or "working", len(self.rows)),
            (pause or ("sync" if self.closed else "admission"), len(self.free)),
            ("unit", self.n_waiting),
            ("queue", len(self.queue_waits - self.down)),
            ("down", len(self.down)),
        ):
            if slots:
                self.seconds[state] += slots * span
