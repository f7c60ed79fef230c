"""What a method takes for granted without declaring it, found before a run begins."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..algorithm import Algorithm, takes_rows
from ..base.plugins import source_file
from ..batch import Decisions
from ..errors import UserError, shortened

# A field of `Decisions` that may be None -> what a method that cannot do without it has among its `needs`.
DECLARED_BY = {
    "group": "groups",
    "outcome": "groups",
    "logit_norm": "logit_norm",
    "reference_logp": "reference",
    "analytic_kl": "closed_form",
}
ASKED_FOR = frozenset(
    {"logit_norm", "reference"}
)  # of `NEEDS`: what costs a pass, so that only who declares it gets it


@functools.lru_cache(maxsize=256)
def rehearse(algorithm: Algorithm, env: str, provides: frozenset[str]) -> None:
    """Ask for the loss of a small made-up minibatch if the method's file names a field that will be None on a task
    that `provides` this much. Raises `UserError` where it fails without the field and works with it; whatever else may
    be wrong, the run says.
    """
    given = provides - (ASKED_FOR - algorithm.needs)
    text = Path(source_file(type(algorithm))).read_text(encoding="utf-8")
    absent = [field for field, need in DECLARED_BY.items() if f".{field}" in text and need not in given]
    if not absent:
        return
    full = _minibatch(algorithm, provides)
    if _failure(algorithm, full) is not None:
        return
    for field in absent:
        without: dict[str, Any] = {field: None}
        if (error := _failure(algorithm, replace(full, **without))) is None:
            continue
        if isinstance(error, UserError):
            raise error
        need = DECLARED_BY[field]
        where = f"on {env} unless declared" if need in provides else f"on {env}"
        said = f"{type(error).__name__}: {shortened(' '.join(str(error).split()), 80)}"
        raise UserError(
            f"{algorithm.name}: policy_loss needs decisions.{field}, which is None {where} ({said}); declare "
            f"needs = frozenset({{{need!r}}}), or do without where it is None"
        )


def _failure(algorithm: Algorithm, d: Decisions) -> Exception | None:
    try:
        algorithm.policy_loss(d)
    except Exception as error:
        return error
    return None


def _minibatch(algorithm: Algorithm, provides: frozenset[str]) -> Decisions:
    """24 decisions with every field there is: 4 rows, two of a group; one decision a row where minibatches of control
    are shuffled. Ratios are from 0.7 to 1.4, lags 0 to 3."""
    import torch

    rows, steps = (4, 6) if "groups" in provides or takes_rows(algorithm) else (24, 1)
    wave = torch.linspace(-0.35, 0.35, rows * steps).view(rows, steps)
    logp = (wave - 1.0).requires_grad_()
    lag = (torch.arange(rows * steps) % 4).float().view(rows, steps)
    return Decisions(
        target_logp=logp,
        behaviour_logp=torch.full_like(wave, -1.0),
        proximal_logp=0.5 * wave - 1.0,
        advantage=wave.flip(0) + 0.1,
        lag=lag,
        gradient_lag=lag,
        mask=torch.ones_like(wave),
        state=dict(algorithm.init_state()),
        continues=torch.ones_like(wave) if algorithm.time_order else None,
        analytic_kl=lambda anchor: 0.5 * (logp + 1.0).square(),
        group=torch.arange(rows) // 2,
        outcome=(torch.arange(rows) % 2).float(),
        logit_norm=torch.full_like(wave, 0.5),
        reference_logp=torch.full_like(wave, -1.0),
    )
