"""Generation: slots in which rows grow, one decision after the other.

Rows are kept by when they will finish on a clock of their own, which stands still while generation does; so a pause
costs nothing, however many rows there are. The loop in `advance` is the one hot place of the simulation.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from math import inf

from ..errors import UserError
from ..schedule import MOST_ROWS
from .admission import Admission
from .log import Log
from .settings import Pipeline
from .work import Work


class Slots:
    """`deliver(group, slot, now)` takes a finished group and says whether its last slot is free again."""

    def __init__(
        self, pipeline: Pipeline, work: Work, admission: Admission, log: Log, deliver: Callable[[int, int, float], bool]
    ) -> None:
        self.work, self.admission, self.log, self.deliver = work, admission, log, deliver
        self.group, self.unit = pipeline.group, pipeline.unit_rows
        self.recompute = pipeline.recompute_seconds
        self.count = pipeline.slots
        slow = pipeline.slow_slots
        self.pace = [1.0] * (self.count - slow) + [pipeline.slow_factor] * slow  # of each slot
        self.version = 0  # of the weights here
        self.horizon = inf  # when something else happens
        self.offset = 0.0  # seconds that generation has stood still
        self.paused_at: float | None = None
        self.closed = False  # no new row may begin
        self.rows: list[tuple[float, int]] = []  # heap of (when it finishes on the own clock, slot)
        self.row = [0] * self.count  # in each slot
        self.left: list[int] = []  # rows of each group that are not finished
        self.quota = 0  # rows of the group that is beginning
        self.free = deque(range(self.count))
        self.again: deque[tuple[int, int]] = deque()  # rows that a failure stopped, and their decisions so far
        self.held: dict[int, list[int]] = {}  # unit -> slots that wait for its last row
        self.held_slots = 0  # of all units
        self.blocked: set[int] = set()  # slots whose group finds no room in the queue
        self.down: set[int] = set()
        self.lost = 0  # decisions that failures took
        self.stopped: dict[int, int] = {}  # row that was given up -> its decisions so far
        self.seconds: defaultdict[str, float] = defaultdict(float)  # state -> slots × seconds
        self.now = 0.0  # when a row finished last
        self._since = 0.0
        self._cut: dict[int, int] = {}  # row -> decisions when its weights last changed

    def next(self) -> float:
        """When the next row finishes."""
        return self.rows[0][0] + self.offset if self.rows and self.paused_at is None else inf

    def advance(self) -> None:
        """Let rows finish, and others begin in their place, for as long as nothing else happens."""
        rows, row_in, left, made = self.rows, self.row, self.left, self.log.made
        seconds, pace = self.work.seconds, self.pace
        single, group = self.unit == 1, self.group
        while self.paused_at is None and rows and rows[0][0] + self.offset < self.horizon:
            finish, slot = rows[0]
            now = finish + self.offset
            row = row_in[slot]
            made[row] = self.now = now
            g = row // group
            left[g] -= 1
            free = True
            if not left[g]:
                free = self.deliver(g, slot, now)
                if rows[0] != (finish, slot):  # rows that take no time have begun, and stand before this one
                    rows[rows.index((finish, slot))] = (-inf, slot)
                    heapify(rows)
            if single and free and not self.closed and not self.again and (self.quota or self._admit()):
                begun = len(self.log.slot)
                self.quota -= 1
                row_in[slot] = begun
                self.log.begin(slot, now, self.version)
                heapreplace(rows, (finish + seconds[begun] * pace[slot], slot))
                continue
            self.account(now)
            heappop(rows)
            if free:
                self._leave(slot)
            else:
                self.blocked.add(slot)
            self.fill(now)

    def fill(self, now: float) -> None:
        """Let rows begin in free slots, as far as they may."""
        if self.paused_at is not None:
            return
        self.account(now)
        while self.free:
            if self.again:
                self._continue(*self.again.popleft(), now)
                continue
            begun = len(self.log.slot)
            if self.closed or (begun % self.unit == 0 and len(self.free) < self.unit):
                return
            if not (self.quota or self._admit()):
                return
            self.quota -= 1
            slot = self.free.popleft()
            self.row[slot] = begun
            self.log.begin(slot, now, self.version)
            heappush(self.rows, (now - self.offset + self._takes(begun), slot))

    def pause(self, now: float) -> None:
        """Generation stands still."""
        self.account(now)
        self.paused_at = now

    def resume(self, now: float) -> None:
        self.account(now)
        if self.paused_at is not None:
            self.offset += now - self.paused_at
        self.paused_at = None

    def close(self, now: float) -> None:
        """No new row may begin until `open`; those that a failure stopped go on."""
        self.account(now)
        self.closed = True

    def open(self, now: float) -> None:
        self.account(now)
        self.closed = False

    def switch(self, now: float) -> None:
        """Rows under way go on with the present version, once their cache is rebuilt."""
        clock, rows, tokens = now - self.offset, [], self.work.tokens
        cut = {}
        for finish, slot in self.rows:
            row = self.row[slot]
            done = max(self._done(row, finish - clock), self._cut.get(row, 0))
            cut[row] = done
            self.log.changes.append((row, done, self.version))
            if self.recompute:
                left = (tokens[row] - done) * self._takes(row) / tokens[row]
                unfinished = max(0.0, finish - clock - left)  # of the cache that it was building already
                self.seconds["recompute"] += self.recompute * done - unfinished
                finish = clock + left + self.recompute * done
            rows.append((finish, slot))
        heapify(rows)
        self.rows[:], self._cut = rows, cut

    def fail(self, slots: range, keep: bool, now: float) -> None:
        """A worker is lost with the rows in its slots; with `keep` they go on later where they stopped."""
        self.account(now)
        clock = (now if self.paused_at is None else self.paused_at) - self.offset
        gone = [(finish, slot) for finish, slot in self.rows if slot in slots]
        self.rows[:] = [entry for entry in self.rows if entry[1] not in slots]
        heapify(self.rows)
        for finish, slot in sorted(gone):
            row = self.row[slot]
            done = max(self._done(row, finish - clock), self._cut.get(row, 0))
            self.lost += 0 if keep else done
            self.again.append((row, done if keep else 0))
        self.down.update(slots)
        self.free = deque(slot for slot in self.free if slot not in slots)

    def under_way_groups(self) -> list[int]:
        """Groups with rows under way, all of whose rows have begun, in the order in which they began."""
        rows = [self.row[slot] for _, slot in self.rows] + [row for row, _ in self.again]
        beginning = len(self.log.slot) // self.group
        return sorted({group for row in rows if (group := row // self.group) < beginning})

    def stop(self, group: int, now: float) -> None:
        """Give up the rows of a group that are under way; their slots are free."""
        self.account(now)
        clock = (now if self.paused_at is None else self.paused_at) - self.offset
        gone = [entry for entry in self.rows if self.row[entry[1]] // self.group == group]
        self.rows[:] = [entry for entry in self.rows if self.row[entry[1]] // self.group != group]
        heapify(self.rows)
        for finish, slot in sorted(gone):
            row = self.row[slot]
            self.stopped[row] = max(self._done(row, finish - clock), self._cut.pop(row, 0))
            self._leave(slot)
        self.stopped |= {row: done for row, done in self.again if row // self.group == group}
        self.again = deque(entry for entry in self.again if entry[0] // self.group != group)

    def restart(self, slots: range, now: float) -> None:
        """The worker is back."""
        self.account(now)
        self.down.difference_update(slots)
        self.free.extend(slot for slot in slots if slot not in self.blocked)
        self.fill(now)

    def unblock(self, slot: int, now: float) -> None:
        """The group that this slot waited for has found room."""
        self.account(now)
        self.blocked.remove(slot)
        self._leave(slot)

    def under_way(self, now: float) -> dict[int, int]:
        """Row -> decisions made so far, of each row that is under way or was given up."""
        clock = (now if self.paused_at is None else self.paused_at) - self.offset
        found = {
            self.row[s]: max(self._done(self.row[s], f - clock), self._cut.get(self.row[s], 0)) for f, s in self.rows
        }
        return found | dict(self.again) | self.stopped

    def _takes(self, row: int) -> float:
        """Seconds from its first decision to its last, in the slot that it is in."""
        return self.work.seconds[row] * self.pace[self.log.slot[row]]

    def _done(self, row: int, left: float) -> int:
        """Decisions of a row that are made when it will take `left` seconds more."""
        tokens, seconds = self.work.tokens[row], self._takes(row)
        return min(tokens, max(0, int(tokens * (1 - left / seconds)))) if seconds else 0

    def _admit(self) -> bool:
        if not self.admission.admits(self.version):
            return False
        if len(self.log.slot) > MOST_ROWS:
            raise UserError(
                f"{MOST_ROWS:,} rows have begun by t = {self.now:.1f} s, far more than are trained on; "
                "set a cap, or make rows longer"
            )
        self.work.more(self.version)
        self.log.new_group()
        self.left.append(self.group)
        self.quota = self.group
        return True

    def _continue(self, row: int, done: int, now: float) -> None:
        """A row that was stopped goes on in a free slot."""
        slot = self.free.popleft()
        self.row[slot] = row
        self.log.slot[row] = slot
        left = self._takes(row) * (1 - done / self.work.tokens[row])
        if done:
            self.log.changes.append((row, done, self.version))
            self._cut[row] = done
            left += self.recompute * done
        else:
            self.log.changes = [c for c in self.log.changes if c[0] != row]
            self._cut.pop(row, None)
            self.log.began[row], self.log.version[row] = now, self.version
        heappush(self.rows, (now - self.offset + left, slot))

    def _leave(self, slot: int) -> None:
        """The row in the slot is over; the slot is free once its whole unit is."""
        if self.unit == 1:
            leaving = [slot]
        else:
            unit = self.row[slot] // self.unit
            leaving = self.held.setdefault(unit, [])
            leaving.append(slot)
            self.held_slots += 1
            if len(leaving) < self.unit:
                return
            del self.held[unit]
            self.held_slots -= self.unit
        self.free.extend(each for each in sorted(leaving) if each not in self.down)

    def account(self, now: float) -> None:
        """Add what the slots did since the last time."""
        span, self._since = now - self._since, now
        if not span:
            return
        stands = self.paused_at is not None
        for state, slots in (
            ("sync" if stands else "working", len(self.rows)),
            ("sync" if stands or self.closed else "admission", len(self.free)),
            ("unit", self.held_slots),
            ("queue", len(self.blocked - self.down)),
            ("down", len(self.down)),
        ):
            if slots:
                self.seconds[state] += slots * span
