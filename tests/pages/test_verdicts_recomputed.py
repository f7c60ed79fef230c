"""Tests of the gallery, recomputed from its TOML files and the bundles by pandas and scipy alone.

Nothing of the package takes part but the readings that are checked, and the random returns it counts shares from.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from paper_studies import PAPERS, published_figures
from places import ROOT
from scipy import stats
from statsmodels.stats.multitest import multipletests

from staleharness.statistics.scores import constants, resolve_auto
from staleharness.store.store import Store

REFERENCE = ROOT / "results" / "reference"
COUNTED = ("warned", "warned first")  # hits and false alarms of runs; tests/statistics/test_claims.py has them
REDUCE: Mapping[str, Callable[[Any], float]] = {
    "mean": np.mean,
    "max": np.max,
    "geometric": stats.gmean,
    "change": lambda v: np.mean(v[-(len(v) // 4) :]) - np.mean(v[: len(v) // 4]),
    "jump": lambda v: np.mean(np.abs(np.diff(v))),
    "turn": lambda v: stats.pearsonr(np.diff(v)[:-1], np.diff(v)[1:]).statistic,
}


def table(folder: Path, name: str) -> pd.DataFrame:
    """All parts of a bundle's table."""
    return pd.concat([pd.read_parquet(path) for path in sorted(folder.glob(f"{name}*.parquet"))], ignore_index=True)


def records(folder: Path) -> pd.DataFrame:
    """A row per run of a bundle."""
    tables = {n: dict(list(table(folder, n).groupby("run"))) for n in ("metrics", "timing")}
    rows = []
    for text in table(folder, "runs")["record"]:
        record = json.loads(text)
        spec = record["spec"]
        rows.append(
            {"label": record["label"], "k": spec["capacity"], "env": spec["env"], "seed": spec["seed"]}
            | {"record": record, **{n: tables[n].get(record["id"]) for n in tables}}
        )
    return pd.DataFrame(rows)


def reused_records(folder: Path) -> list[pd.DataFrame]:
    """Rows of the methods and capacities that a bundle's study asks for and reuses from other bundles."""
    path = ROOT / "experiments" / f"{folder.name}.toml"
    study = tomllib.loads(path.read_text()) if path.is_file() else {}
    found = []
    for name in study.get("reuse", []):
        frame = records(REFERENCE / name)
        found.append(frame[frame.label.isin(study["algorithm"]) & frame.k.isin(np.atleast_1d(study["capacity"]))])
    return found


@cache
def runs_of(study: str) -> pd.DataFrame:
    """A row per run, by label, K, env and seed: `record`, `metrics` and `timing` [phases × columns], scores."""
    folder = REFERENCE / study
    frame = pd.concat([records(folder), *reused_records(folder)], ignore_index=True)
    score, normalise = resolve_auto(Store(folder).read_all(), "auto", "auto")
    frame["return"] = [r["scores"][score]["mean"] for r in frame["record"]]
    ends = frame.groupby("env")["return"].agg(["min", "max"])
    low, span = (
        (0.0, 1.0) if normalise == "raw" else (frame.env.map(ends["min"]), frame.env.map(ends["max"] - ends["min"]))
    )
    frame["score"] = (frame["return"] - low) / span
    frame["low"], frame["span"], frame["way"], frame["raw"] = low, span, score, normalise == "raw"
    frame["trained"] = [
        r["id"] if m is None or "grad_norm" not in m else digest(m["grad_norm"].to_numpy(), r["scores"])
        for r, m in zip(frame["record"], frame["metrics"], strict=True)
    ]
    groups = {label: group for group in same_without_lag(frame) for label in group}
    frame["same"] = [groups.get(label, {label}) for label in frame.label]
    return frame


def digest(norms: np.ndarray, scores: Mapping[str, Any]) -> str:
    return hashlib.sha256(norms.tobytes() + json.dumps(scores).encode()).hexdigest()


def measure_of(what: str, part: Mapping[str, Any]) -> Callable[[Any], float]:
    """Number of one row of `runs_of`."""

    def area(run: Any) -> float:
        curve = run.metrics[["steps", f"eval_{run.way}"]].dropna().to_numpy()
        return np.trapezoid((curve[:, 1] - run.low) / run.span, curve[:, 0]) / np.ptp(curve[:, 0])

    def column(run: Any) -> float:
        table, name = (run.timing, what[8:]) if what.startswith("seconds/") else (run.metrics, what)
        values = table[name].to_numpy(float)[slice(*part.get("phases", (0, None)))]
        return float(REDUCE[part.get("reduce", "mean")](values[~np.isnan(values)]))

    seconds = lambda run: run.record["seconds"]["collect"] + run.record["seconds"]["learn"]  # noqa: E731
    zero = lambda run: 0.0 if run.raw else constants()["envs"][run.env]["random"][run.way]["return"]  # noqa: E731
    plain: dict[str, Callable[[Any], float]] = {
        "score": lambda run: run.score,
        "return": lambda run: run["return"],
        "kept": lambda run: run["return"] - zero(run),
        "area": area,
        "seconds": seconds,
    }
    return plain.get(what, column)


def same_without_lag(frame: pd.DataFrame) -> list[set[str]]:
    """Groups of labels of which one run at K = 1 is another's, as far as gradients and scores go."""
    groups = [set(g.label) for _, g in frame[frame.k == 1].groupby(["env", "seed", "trained"], sort=False)]
    for a, b in itertools.permutations(range(len(groups)), 2):
        if groups[a] & groups[b]:
            groups[b] |= groups[a]
            groups[a] = set()
    return [g for g in groups if g]


def samples(study: str, env: str, label: str, k: int, part: Mapping[str, Any]) -> pd.Series:
    """Values of a cell by seed; the cell at K = 1 of methods that are the same there has each result once."""
    measure = {name: part[name] for name in ("what", "phases", "reduce", "by_seed", "ratio") if name in part}
    return samples_by_text(study, env, label, k, json.dumps(measure))


@cache
def samples_by_text(study: str, env: str, label: str, k: int, measure: str) -> pd.Series:
    frame, part = runs_of(study), json.loads(measure)
    what, labels = part.get("what", "score"), {label}
    if k == 1 and not part.get("by_seed") and what in ("score", "return", "area", "kept"):
        labels = next(iter(frame[frame.label == label].same), labels)
    cell = frame[(frame.env == env) & (frame.k == k) & frame.label.isin(labels)].drop_duplicates(["seed", "trained"])
    value = measure_of(what, part)
    values = [value(run) for _, run in cell.iterrows()]
    return pd.Series(np.log(values) if part.get("ratio") else values, index=cell.seed)


def estimate(study: str, terms: Sequence[tuple[str, int, int]], part: Mapping[str, Any]) -> tuple[float, ...]:
    """Value, low, high, standard error, degrees of freedom of a signed sum of means, or of shares of means at K = 1."""
    share = part.get("what") == "kept"
    values, variances, sizes = [], [], []
    for env in sorted(runs_of(study).env.unique()):
        if part.get("env") and env.split("-v")[0] != part["env"].split("-v")[0]:
            continue
        tops = [samples(study, env, label, k, part) for label, k, _ in terms]
        bases = [samples(study, env, label, 1, part) for label, _, _ in terms] if share else [None] * len(terms)
        if any(len(x) == 0 for x in [*tops, *bases] if x is not None):
            continue
        signs = [sign for *_, sign in terms]
        ratio = [t.mean() / (b.mean() if b is not None else 1.0) for t, b in zip(tops, bases, strict=True)]
        values.append(float(np.dot(signs, ratio)))
        if part.get("by_seed"):
            gaps = sum(s * t for s, t in zip(signs, tops, strict=True)).dropna()  # type: ignore[union-attr]
            values[-1] = gaps.mean()
            variances, sizes = [*variances, gaps.var() / len(gaps)], [*sizes, len(gaps)]
            continue
        pieces: dict[tuple[tuple[int, float], ...], list[Any]] = {}  # each sample once, however many terms it is in
        for sign, t, b in zip(signs, tops, bases, strict=True):
            pieces.setdefault(tuple(t.items()), []).append((sign, t, b, True))
            if b is not None:
                pieces.setdefault(tuple(b.items()), []).append((sign, t, b, False))
        for sample, uses in pieces.items():
            n, x = len(sample), np.array([value for _, value in sample])
            out = np.array([np.delete(x, i).mean() for i in range(n)])
            whole, without = 0.0, np.zeros(n)
            for sign, t, b, top in uses:
                other = 1.0 if b is None else b.mean()
                whole += sign * (x.mean() / other if top else t.mean() / x.mean())
                without += sign * (out / other if top else t.mean() / out)
            pseudo = n * whole - (n - 1) * without
            variances, sizes = [*variances, pseudo.var(ddof=1) / n], [*sizes, n]
    if not values or min(sizes) < 2:
        return (float(np.mean(values)) if values else math.nan, *(math.nan,) * 4)
    v = np.array(variances) / len(values) ** 2
    than = part.get("than") or 0.0
    value = float(np.mean(values)) - (math.log(than) if part.get("ratio") and than else than)
    freedom = v.sum() ** 2 / (v**2 / (np.array(sizes) - 1)).sum() if v.sum() else math.nan
    reach = stats.t.ppf(0.975, freedom) * math.sqrt(v.sum())
    return value, value - reach, value + reach, math.sqrt(v.sum()), freedom


def p_of(found: tuple[float, ...], be: str, margin: float) -> float:
    value, _, _, error, freedom = found
    value = {"more": value, "less": -value, "alike": abs(value)}[be]
    return float(2 * stats.t.sf(abs(value - margin) / error, freedom))


def terms_of(part: Mapping[str, Any]) -> list[list[tuple[str, int, int]]]:
    """Terms (label, K, sign) of each comparison of a part, in the page's order."""
    out = []
    for k, label, other in itertools.product(part["k"], part["of"], part.get("over", [""])):
        if label == other:
            continue
        over_k, beyond = part.get("over_k"), part.get("beyond", False)
        terms = [(label, k, 1)]
        terms += [(other, k if over_k is None or beyond else over_k, -1)] if other else []
        if over_k is not None and (beyond or not other):
            terms += [(one, over_k, -sign) for one, _, sign in list(terms)]
        out.append(terms)
    return out


def told_in(text: str) -> list[dict[str, Any]]:
    """Parts behind the words `{told A over=B of=kept K=16 env=Hopper study=x}` of a text."""
    parts = []
    for words in re.findall(r"\{told ([^{}]+)\}", text):
        options = dict(re.findall(r" (over|of|K|env|study|over_k|phases)=(\S+)", " " + words))
        label = re.sub(r" (over|of|K|env|study|over_k|phases)=\S+", "", " " + words).strip()
        part: dict[str, Any] = {"of": [label], "what": options.get("of", "score"), "env": options.get("env", "")}
        part |= {"over": [options["over"].replace("~", " ")], "study": options.get("study", "")}
        parts.append(part | {"k": [int(options["K"])] if "K" in options else []})
    return parts


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.long
def test_pandas_and_scipy_come_to_the_same_tests_and_verdicts(paper: str) -> None:
    checked = 0
    for loaded in published_figures(paper):
        if loaded.state != "drawn":  # its tests wait for all runs
            continue
        figure, claim_result = loaded.figure, loaded.claim_result
        entry = tomllib.loads((ROOT / "experiments" / paper / f"{figure.name}.toml").read_text())
        family: dict[tuple[float, float], float] = {}
        rows = []
        for spec, result in zip(entry.get("part", []), claim_result.parts, strict=True):
            if spec.get("untested") or spec.get("what") in (*COUNTED, "fell"):
                rows += [(None, row, spec) for row in result.rows]
                for row in result.rows:
                    if (p := row.p(result.part)) is not None and row.contrast:
                        family[round(row.contrast.value, 9), round(p, 9)] = p
                continue
            study = spec.get("study") or entry["study"]
            part = {"what": "score", "k": sorted(runs_of(study).k.unique()), **spec}
            for terms, row in zip(terms_of(part), result.rows, strict=True):
                rows.append((estimate(study, terms, part), row, part))
        for part in told_in(entry.get("observation", "")):
            study = part["study"] or entry["study"]
            part["k"] = part["k"] or sorted(runs_of(study).k.unique())
            found = estimate(study, terms_of(part)[0], part)
            p = p_of(found, "more", 0.0)
            family[round(found[0], 9), round(p, 9)] = p
        for found, row, part in rows:
            if found is None or row.contrast is None or row.contrast.low is None:
                continue
            assert row.contrast.value == pytest.approx(found[0], abs=1e-9), (figure.name, row.text)
            if not row.contrast.error:
                continue
            where = (figure.name, row.text)
            assert (row.contrast.low, row.contrast.high) == pytest.approx(found[1:3], rel=1e-6, abs=1e-9), where
            if part.get("role") != "identity":
                p = p_of(found, part.get("be", "more"), part.get("margin", 0.0))
                family[round(found[0], 9), round(p, 9)] = p
            checked += 1
        ps = list(family.values())
        corrected = dict(zip(family, multipletests(ps, method="holm")[1] if ps else (), strict=True))
        for found, row, part in rows:
            if found is None or row.holm is None or not row.contrast.error:
                continue
            be, margin = part.get("be", "more"), part.get("margin", 0.0)
            p = p_of(found, be, margin)
            assert row.holm == pytest.approx(corrected[round(found[0], 9), round(p, 9)], rel=1e-6), (
                figure.name,
                row.text,
            )
            value = -found[0] if be == "less" else found[0]
            inside = abs(value) < margin if be == "alike" else value > margin
            assert row.outcome == ("open" if row.holm >= 0.05 else "yes" if inside else "no"), (figure.name, row.text)
        claims = [r.outcome for r in claim_result.parts if r.part.role == "claim"]
        expected = "partly" if "yes" in claims else "disagrees" if "no" in claims else "cannot tell"
        expected = "agrees" if set(claims) == {"yes"} else expected if claims else entry.get("verdict", "")
        assert claim_result.verdict == expected, figure.name
    assert checked >= {"vaco": 100, "stress": 15, "a3po": 30}.get(paper, 0)


def test_figure_3_of_vaco_has_the_numbers_of_an_outside_review() -> None:
    """IQMs, differences and the pooled share that a reviewer computed from the same bundle (25 November 2026).

    The review paired seeds, which moves the ends of intervals by less than 0.01, and of the share by 2 points."""
    frame = runs_of("vaco_ratio")
    iqm = {"vaco": (0.62, 0.53, 0.39), "ppo_clip": (0.60, 0.36, 0.16)}
    for label, values in iqm.items():
        for k, value in zip((1, 4, 16), values, strict=True):
            cell = frame[(frame.label == label) & (frame.k == k)].score
            assert stats.trim_mean(cell, 0.25) == pytest.approx(value, abs=0.005)
    loaded = {f.figure.name: f for f in published_figures("vaco")}["fig3"]
    rows = {row.text: row.contrast for result in loaded.claim_result.parts for row in result.rows}
    for k, value, low, high in ((4, 0.144, 0.056, 0.232), (16, 0.209, 0.137, 0.281)):
        found = rows[f"score, VACO − PPO-clip, K = {k}"]
        assert found is not None and found.value == pytest.approx(value, abs=5e-4)
        assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)
    kept = rows["share kept, VACO − PPO-clip, K = 16"]
    assert kept is not None and (kept.value, kept.low, kept.high) == pytest.approx((0.335, 0.202, 0.467), abs=0.02)
