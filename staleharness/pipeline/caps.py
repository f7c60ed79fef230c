"""One pipeline under several caps: what lag each cap makes, how long a step takes, and what binds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import UserError
from .settings import Pipeline
from .simulation import simulate
from .summary import summary


class Cap(NamedTuple):
    """A pipeline at work under a cap."""

    cap: float | None
    lag: float  # mean over the decisions that were trained on, in versions
    step_seconds: float
    binds: str
    why: str

    @property
    def name(self) -> str:
        return "none" if self.cap is None else f"{self.cap:g}"

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def over_caps(pipeline: Pipeline, caps: Sequence[float | None], seed: int = 0) -> list[Cap]:
    """The pipeline simulated under each cap. Raises `UserError` where one starves the trainer, naming the cap."""
    found = []
    for cap in caps:
        name = "none" if cap is None else f"{cap:g}"
        try:
            told = summary(simulate(pipeline.changed({"cap": cap}, f"CAP={name}"), seed))
        except UserError as error:
            raise UserError(f"CAP={name}: {error}") from error
        counts = told["lag"]["tokens"]
        lag = sum(int(lag) * n for lag, n in counts.items()) / sum(counts.values())
        found.append(Cap(cap, lag, told["step_seconds"], told["binds"], told["why"]))
    return found
