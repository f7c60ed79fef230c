"""Lag replayed from a recorded trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from staleharness.base.files import digest
from staleharness.base.reference_results import portable_name, results_path
from staleharness.errors import UserError, shorten
from staleharness.lag import LAGS, LagModel
from staleharness.rollout_schedule import NEVER, Demand, Schedule
from staleharness.spec import later
from staleharness.trace import fit_rows, read_replay

if TYPE_CHECKING:
    import pandas as pd


@LAGS.register("trace")
@dataclass(frozen=True)
class Trace(LagModel):
    """Rows of a trace: their actors, their versions, and the phases that train on them.

    A run with real actors leaves a trace beside its record (`trace.parquet`), and its replay ends with the same
    weights, bit for bit; `staleharness pipeline` writes traces, too. Any method and any seed can run on a trace, in the
    same environment or another, for at most as many phases as it has. A run's id depends on the file's content. A
    published trace (`results/reference/<bundle>/traces/<run>.parquet`) is found wherever the harness is installed.

    A trace with rows longer than the run's is refused, as is a trace of real actors whose run had another row length,
    unless `lengths` says how to fit them: `cut` leaves out decisions beyond the run's length, `scale` gives each
    finished row the run's length, with its versions in the same proportions.
    """

    file: str
    lengths: Literal["same", "cut", "scale"] = later("same", before="same")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("file", bool(self.file) and not set(self.file) & set(" ,[]"), "a path without blanks, , [ or ]")
        object.__setattr__(self, "file", portable_name(self.file))  # a run has its own working directory

    @property
    def path(self) -> Path:
        return results_path(self.file)

    @property
    def identity(self) -> str:
        if not self.path.is_file():
            raise UserError(f"LAG={self.text}: there is no such file")
        if self.lengths != "same":
            return f"trace[file={digest(self.path)[:16]},lengths={self.lengths}]"
        return f"trace:{digest(self.path)[:16]}"

    def schedule(self, demand: Demand) -> Schedule:
        header, rows = read_replay(str(self.path))
        if self.lengths != "same":
            header, rows = fit_rows(header, rows, demand.length, self.lengths)
        self._check_shape(header.get("decisions"), demand, rows)
        rows = rows.sort_values(["group", "row"], kind="stable")
        rows = rows[[versions[0] < demand.phases for versions in rows["versions"]]]
        phase = rows["phase"].to_numpy(np.int64)
        trained = (phase >= 0) & (phase < demand.phases)
        version = np.concatenate(rows["versions"].to_numpy()).astype(np.int64)
        made = rows["ends"].map(max).to_numpy(np.int64)
        fates = rows["fate"].where(trained | (rows["fate"] != "trained"), "queued")  # this run ends before that phase
        ledger = {
            unit: {"generated": int(count.sum()), **{f: int(count[fates == f].sum()) for f in sorted(set(fates))}}
            for unit, count in (("rows", np.ones_like(made)), ("decisions", made))
        }
        finished, left = (rows[name].to_numpy(np.int64) for name in ("finished_in", "left_in"))
        return Schedule(
            group=rows["group"].to_numpy(np.int64),
            actor=rows["actor"].to_numpy(np.int64),
            nth=rows["nth"].to_numpy(np.int64),
            phase=np.where(trained, phase, NEVER),
            place=np.where(trained, rows["place"].to_numpy(np.int64), NEVER),
            first=np.cumsum([0, *map(len, rows["versions"])]),
            version=version,
            end=np.concatenate(rows["ends"].to_numpy()).astype(np.int64),
            kept=np.ones(len(version), np.bool_),
            ledger=ledger,
            apart=(header.get("fetch") or demand.length) if header["source"] == "actors" else 0,
            finished=finished,
            left=left,
        )

    def _check_shape(self, decisions: int | None, demand: Demand, rows: pd.DataFrame) -> None:
        phases, longest = int(rows["phase"].max()) + 1, max(map(max, rows["ends"]))
        title, asked = f"LAG={shorten(self.text)}", f"the run's have {demand.length}"
        if phases < demand.phases:
            raise UserError(f"{title} has {phases} phases; the run has {demand.phases}")
        if decisions is not None and decisions != demand.length:
            raise UserError(f"{title} is of rows of {decisions} decisions; {asked}")
        if longest > demand.length:
            raise UserError(f"{title} has a row of {longest} decisions; {asked}")
