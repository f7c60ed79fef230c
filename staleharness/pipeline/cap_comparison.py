"""Lag and speed of one pipeline under several caps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import UserError
from .event_simulation import simulate
from .pipeline_settings import Pipeline
from .pipeline_summary import summary


class CapResult(NamedTuple):
    """Lag and speed of a pipeline under one cap."""

    cap: float | None
    lag: float  # in versions, mean over the decisions that were trained on: "token lag"
    step_seconds: float
    binds: str
    explanation: str
    row_lag: float  # in versions, mean over rows, of their first decision: "lag"

    @property
    def name(self) -> str:
        return "none" if self.cap is None else f"{self.cap:g}"

    def to_json(self) -> dict[str, Any]:
        values = self._asdict()
        return {**values, "why": values.pop("explanation")}


def over_caps(pipeline: Pipeline, caps: Sequence[float | None]) -> list[CapResult]:
    """Simulate a pipeline under each cap. Raises `UserError` where one starves the trainer, naming the cap."""
    results = []
    for cap in caps:
        where = "CAP=none" if cap is None else f"CAP={cap:g}"
        try:
            result = summary(simulate(pipeline.with_settings({"cap": cap}, where)))
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        lag = result["lag"]
        values = lag["token_weighted_mean"], result["step_seconds"], result["binds"], result["why"], lag["start_mean"]
        results.append(CapResult(cap, *values))
    return results
