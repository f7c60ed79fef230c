"""The risk table: what share of its on-policy score a method keeps as the data get older."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..statistics.bootstrap import percentiles, resample, stable_seed
from ..statistics.normalise import constants
from ..statistics.results import Results
from ..statistics.scores import Array, final_score
from ..statistics.table import Table
from ..store.cells import Cell, Grid
from .captions import looks_of, made, seeds
from .registry import SHEETS
from .sheet import Block, Entry, Sheet

BANDS = ((0, 1), (2, 5), (6, 20), (21, math.inf))  # of K, as the lesson names them
REPS = 2000
NOT_MEASURED = Entry("not measured")
LEARNED = 0.1  # share of the best method's gain over random that counts as having learned


class Kept(NamedTuple):
    """Share of the K = 1 score above random that is left at a capacity, with its interval."""

    share: float
    low: float | None
    high: float | None


def random_returns(envs: Sequence[str], score: str) -> dict[str, float]:
    """What a fresh policy returns, for the environments of which we know it (`normalisation.json`)."""
    held = constants()["envs"]
    known = {env: held.get(env, {}).get("random", {}).get(score) for env in envs}
    return {env: float(entry["return"]) for env, entry in known.items() if entry}


def retained(found: Grid, label: str, k: int, score: str) -> Kept | None:
    """Mean over environments of (score at K − random) / (score at 1 − random), each score a mean over seeds.

    None where a method has no runs at K or at 1, no environment has a known random return, or the method did not
    learn at K = 1 in one of them (it gained less than a tenth of what the best method did): there is nothing to keep,
    and a share of next to nothing says nothing. The interval resamples the seeds of both capacities independently.
    """
    zero = random_returns(found.envs, score)
    top, base, zeros = [], [], []
    for env in found.envs:
        at_k, at_1 = (found.cells.get(Cell(label, c, env), []) for c in (k, 1))
        if at_k and at_1 and env in zero:
            top.append(np.array([final_score(r, score) for r in at_k]))
            base.append(np.array([final_score(r, score) for r in at_1]))
            zeros.append(zero[env])
            best = max(
                np.mean([final_score(r, score) for r in rs])
                for c, rs in found.cells.items()
                if (c.capacity, c.env) == (1, env)
            )
            if base[-1].mean() - zero[env] < LEARNED * (best - zero[env]) or best <= zero[env]:
                return None
    if not top:
        return None
    share = float(_share(top, base, zeros))
    if k == 1:
        return Kept(share, None, None)
    if min(map(len, [*top, *base])) < 2:
        return Kept(share, None, None)
    rng = np.random.default_rng(stable_seed("retained", label, k))
    low, high = percentiles(_share(resample(top, REPS, rng), resample(base, REPS, rng), zeros)[..., None])
    return Kept(share, float(low[0]), float(high[0]))


def _share(top: Sequence[Array], base: Sequence[Array], zeros: Sequence[float]) -> Array:
    shares = [(t.mean(axis=-1) - z) / (b.mean(axis=-1) - z) for t, b, z in zip(top, base, zeros, strict=True)]
    return np.asarray(np.mean(shares, axis=0))


def bands_of(ks: Sequence[int]) -> dict[tuple[float, float], list[int]]:
    """The capacities that were measured in each band."""
    return {(low, high): [k for k in ks if low <= k <= high] for low, high in BANDS}


@SHEETS.register("risk_table")
def risk_table(results: Results, table: Table) -> Sheet:
    """Share of the on-policy score that each method keeps, by band of K, in cells that are darker for more."""
    found, score = results.grid, table.settings["score"]
    measured = bands_of(table.settings["capacities"])
    # 0: nothing was measured there
    places = [(band, k) for band, ks in measured.items() for k in (ks or [0])]
    known = random_returns(found.envs, score)
    left_out = [env for env in found.envs if env not in known]
    about = (
        f"share of the K = 1 score kept, (return − random) / (return at K = 1 − random), mean over "
        f"{', '.join(known) or 'no environment'} and seeds ({seeds(found)}), 95% bootstrap interval over seeds in "
        f"brackets; {score} returns"
    ) + (f"; no random return known of {', '.join(left_out)}" if left_out else "")
    columns = [f"{band_name(band)}: {f'K = {k}' if k else '–'}" for band, k in places]
    rows = [
        (
            look.name or label,
            [_entry(retained(found, label, k, score)) if k else NOT_MEASURED for _, k in places],
        )
        for label, look in looks_of(table).items()
    ]
    block = Block("Score kept", "algorithm", columns, rows)
    return Sheet("Score kept, by lag", [about, made(table)], [block], table.draft)


def _entry(kept: Kept | None) -> Entry:
    if kept is None:
        return Entry("–")
    interval = ""
    if kept.low is not None and kept.high is not None:
        interval = f"[{percent(kept.low)}, {percent(kept.high)}]"
    return Entry(f"{percent(kept.share)}%", interval, min(1.0, max(0.0, kept.share)))


def percent(share: float) -> int:
    return round(100 * share)


def band_name(band: tuple[float, float]) -> str:
    low, high = band
    return f"{low - 1:g}+" if high == math.inf else f"{low:g}–{high:g}"
