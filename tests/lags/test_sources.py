"""Lag models against simulations of the systems' own code, row by row: versions, order, and what is dropped.

Each simulation is written from the source at the commit it names, and from nothing else.
"""

from __future__ import annotations

import math
from collections import Counter

import pytest
from source_clock import Group, Process, System, assert_same_rows

from staleharness.lag import read_lag
from staleharness.schedule import NEVER, Demand

SMALL = Demand(phases=40, groups=6, rows=2, length=50, seed=7)
LOADS = ["slots=4.0", "slots=4.0,cv=2.0", "slots=5.0,row_time=0.2", "slots=5.0,row_time=3.0,cv=1.0"]


class Roll(System):
    """ROLL: alibaba/ROLL at 8eb27cc, roll/distributed/scheduler/generate_scheduler.py.

    A prompt is bound to the step in which it is sent (`begin`, line 263), while fewer than B(n + 1) + ⌈B·ratio⌉ have
    been (`advance_step`, 221; `_check_send_new_request`, 245). `get_batch` (342) goes from the oldest step on, and
    waits for each: at most that share of the batch comes from the oldest where the ratio has a fraction (370). `gc`
    (398) asserts that no prompt is left that would be too old (430). Weights are sent while sampling is suspended and
    the trainer waits (roll/pipeline/rlvr/rlvr_pipeline.py, 512 to 547).
    """

    ratio = 0.0
    limit = sent = 0

    def generation(self) -> Process:
        self.finished: dict[int, list[Group]] = {}  # step of beginning -> as they finish
        self.unfinished: Counter[int] = Counter()
        while True:
            yield lambda: self.sent < self.limit and self.free
            self.sent += 1
            self.clock.start(self.prompt(self.generate()))

    def prompt(self, group: Group) -> Process:
        begin = self.step
        self.unfinished[begin] += 1
        yield from self.finish(group)
        self.unfinished[begin] -= 1
        self.finished[begin].append(group)

    def training(self) -> Process:
        batch, rows, oldest = self.demand.groups, self.demand.rows, math.ceil(self.ratio)
        while True:
            for begin in [begin for begin in self.finished if begin <= self.step - 1 - oldest]:
                assert not self.finished.pop(begin) and not self.unfinished[begin], "the assertion of ROLL's gc"
            if self.step:
                yield from self.stand_still()
            self.send_weights(self.step)
            self.finished[self.step] = []
            self.limit += batch + (0 if self.limit else math.ceil(batch * self.ratio))
            taken: list[Group] = []
            for begin in list(self.finished)[:-1]:
                if len(taken) < batch:
                    share = self.ratio % 1 if begin == self.step - oldest else 0
                    most = math.ceil(int(batch * rows * share) / rows) if share else batch - len(taken)
                    yield from self.get(begin, most, taken)
            while len(taken) < batch:
                yield lambda: bool(self.finished[self.step])
                yield from self.get(self.step, batch - len(taken), taken)
            yield from self.train(taken)

    def get(self, begin: int, most: int, taken: list[Group]) -> Process:
        yield lambda: len(self.finished[begin]) >= most or not self.unfinished[begin]
        taken.extend(self.finished[begin][:most])
        del self.finished[begin][:most]


@pytest.mark.parametrize("load", [*LOADS, "slots=4.0,sync_time=0.3"])
@pytest.mark.parametrize("ratio", [0, 0.5, 1, 1.5, 2, 3], ids=str)
def test_roll_flash_is_what_roll_does(ratio: float, load: str) -> None:
    """Its batches stand in the order of their steps of beginning: the lag is the ratio, and nothing is dropped."""
    text = f"roll_flash[async_generation_ratio={ratio},{load}]"
    roll = Roll(text, SMALL)
    roll.ratio = ratio
    assert_same_rows(text, SMALL, roll.run(), in_any_order=True)
    plan = read_lag(text).schedule(SMALL)
    assert plan.ledger["rows"]["dropped_stale"] == plan.ledger["rows"]["dropped_full"] == 0
    late = plan.phase > 4
    assert (plan.phase - plan.oldest)[late & (plan.phase != NEVER)].mean() == ratio
