"""Checks of what a chain task answers: a wrong shape would be spread over episodes, a probability above 1 scored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError, one_line, shorten
from .spec import ChainSpec

if TYPE_CHECKING:
    from .task import ChainTask


def outcome_of(task: ChainTask, spec: ChainSpec, bits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return [B], True where an episode of these decisions [B, H] has succeeded. Raises `UserError`."""
    answer: object = task.outcome(spec, bits)
    if not isinstance(answer, np.ndarray) or answer.shape != (len(bits),) or answer.dtype != np.bool_:
        kind = f"a {type(answer).__name__}"
        if isinstance(answer, np.ndarray):
            kind = f"an array of {answer.dtype} of shape {list(answer.shape)}"
        raise UserError(f"ENV={spec.env}: outcome returns {kind}; give an array of bool, here [{len(bits)}]")
    return answer


def probability_of(task: ChainTask, spec: ChainSpec, p: NDArray[np.float64]) -> float:
    """Return the probability of success under probabilities p [H] of a 1. Raises `UserError`."""
    return _probability(task.success_probability(spec, p), f"ENV={spec.env}: success_probability", "from 0 to 1", 0.0)


def start_of(task: ChainTask, spec: ChainSpec) -> float:
    """Return the first policy's probability of a 1. Raises `UserError`."""
    return _probability(task.start(spec), f"ENV={spec.env}: start", "above 0 and below 1", np.finfo(float).tiny)


def _probability(answer: object, where: str, limits: str, least: float) -> float:
    is_number = isinstance(answer, float | int | np.floating) and not isinstance(answer, bool)
    upper = 1.0 if least == 0.0 else 1.0 - np.finfo(float).epsneg
    if not is_number or not least <= float(answer) <= upper:  # type: ignore[arg-type]
        raise UserError(f"{where} returns {shorten(one_line(repr(answer)))}; give a number {limits}")
    return float(answer)  # type: ignore[arg-type]
