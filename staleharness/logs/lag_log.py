"""Lags of a real system's log, as a weighted histogram with what the system logs beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .framework_lag_metrics import System
from .log_statistics import Drift


class Statistic(NamedTuple):
    """A lag that a log gives beside the mean: the largest of all steps, or a percentile within a step, averaged."""

    column: str
    value: float


class OtherLag(NamedTuple):
    """Mean of another lag of the same rows."""

    column: str
    subject: str
    mean: float


UNKNOWN = System("", "", "versions", "rows", granularity="row", kind="")
"""Any column that the user names."""


@dataclass(frozen=True)
class LagLog:
    """Distinct lags [n] in ascending order, and their weights [n], of a log of `rows` rows."""

    file: str
    column: str
    unit: str  # "versions" or "gradient_steps"
    lags: NDArray[np.float64]
    weights: NDArray[np.float64]
    note: str  # source of the column's meaning
    rows: int
    over: str = "rows"  # of `framework_lag_metrics.OVER`: what `mean` is a mean over
    system: System = UNKNOWN
    statistics: dict[str, Statistic] = field(default_factory=dict)  # of the system's own columns
    others: tuple[OtherLag, ...] = ()
    drift: Drift | None = None
    runs: int = 1

    @property
    def mean(self) -> float:
        return float(np.average(self.lags, weights=self.weights))

    def quantile(self, share: float) -> float:
        """Least lag that `share` of the weight does not exceed."""
        cumulative = np.cumsum(self.weights)
        return float(self.lags[np.searchsorted(cumulative, share * cumulative[-1] * (1 - 1e-12))])

    def to_json(self) -> dict[str, Any]:
        """Return plain data. Median, p95 and max are of rows or decisions; null if a log of means lacks the column."""
        of_values = {"median": self.quantile(0.5), "p95": self.quantile(0.95), "max": float(self.lags.max())}
        keys = {"median": "p50", "p95": "p95", "max": "max"}
        of_columns = {name: s.value if (s := self.statistics.get(key)) else None for name, key in keys.items()}
        quantiles: Mapping[str, float | None] = of_columns if self.system.granularity == "step" else of_values
        return {
            **{name: getattr(self, name) for name in "file column unit over rows runs mean".split()},
            "system": self.system.name,
            "each": self.system.granularity,
            **quantiles,
            "step_means": of_values if self.system.granularity == "step" else None,
            "statistics": {name: s._asdict() for name, s in self.statistics.items()},
            "others": [{"column": o.column, "what": o.subject, "mean": o.mean} for o in self.others],
            "drift": None if self.drift is None else self.drift.to_json(),
            "note": self.note,
        }
