"""One self-contained HTML file, with the figures as PNG and PDF and the tables as CSV beside it.

Whatever a user or a log wrote is escaped by Jinja2; the page's policy forbids every other source and every
script but its own. Identical results give identical bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import __version__
from .files import digest, write_bytes, write_json
from .palette import styles
from .scores import cell_of, learning_curve
from .store import StoredRun
from .tables import Table, duration, number, rows_to_csv, to_csv

PAGE = Path(__file__).with_name("page")  # template, style and script
FORMAT = 1  # of a report; raise it when the same results would give another page

COLUMNS = (  # key of a row, heading, what it is
    ("algorithm", "algorithm", ""),
    ("capacity", "K", "capacity of the policy buffer"),
    ("iqm", "IQM", "interquartile mean of normalised scores, more is better"),
    ("median", "median", "median over environments of mean normalised scores"),
    ("mean", "mean", "mean over environments of mean normalised scores"),
    ("optimality_gap", "gap", "optimality gap, less is better"),
    ("auc", "AUC", "area under the normalised learning curve"),
    ("raw_mean", "return", "mean raw return"),
    ("lag_mean", "lag", "mean realised lag in phases"),
    ("tv", "TV", "total variation between the newest policy and those that acted"),
    ("ess", "ESS", "effective sample size as a share of the data"),
    ("clipped", "clipped", "share of decisions whose gradient the method removed"),
    ("n_runs", "n", "runs × environments"),
    ("seconds", "time", "mean wall-clock time of a run"),
)
RUN_COLUMNS = (
    "algorithm",
    "environment",
    "K",
    "seed",
    "sampled",
    "deterministic",
    "steps",
    "time",
    "status",
    "run",
)
NUMBERS = frozenset({"K", "seed", "sampled", "deterministic", "steps", "time"})  # of the list of runs
AXES = ("algorithm", "capacity", "env", "seed")  # settings that a sweep varies on purpose
CAPTIONS = {
    "learning_curves": (
        "Learning curves",
        "Evaluations of the newest policy, not returns of the stale actors.",
    ),
    "aggregate_curves": (
        "Score over training",
        "All environments together, each run's curve normalised first.",
    ),
    "score_against_capacity": (
        "Score against buffer capacity",
        "The more level a line, the more staleness it takes.",
    ),
    "aggregate_scores": ("Aggregate scores", "Black: the estimate. Coloured: its interval."),
    "lag_histogram": ("Lag histogram", "Early phases have few versions to draw from: young data weigh more."),
    "staleness": ("Staleness over training", "How far the data are from the policy that learns from them."),
}


def write(
    out_dir: Path,
    runs: Sequence[StoredRun],
    table: Table,
    failures: Sequence[Mapping[str, Any]] = (),
    command: str = "",
    title: str = "staleharness",
) -> Path:
    """Write the report into `out_dir` and return the path of its `index.html`.

    `failures` are records {class, message, log_tail, phase} with {label, env, capacity, seed} where known. A
    report of the same content is left as it is. Raises nothing of its own; figures need at least one run.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    index = out_dir / "index.html"
    runs = sorted(runs, key=lambda r: (cell_of(r), r.record["spec"]["seed"]))
    key = _key(runs, table, failures, command, title)
    before = _manifest(out_dir)
    if before["key"] == key and all(_intact(out_dir / name, sha) for name, sha in before["files"].items()):
        return index

    from .canvas import COLUMN, to_bytes
    from .figures import all_figures
    from .inline import inline_svg

    files = {
        "table.csv": to_csv(table),
        "runs.csv": _runs_csv(runs, failures),
        "curves.csv": _curves_csv(runs),
    }
    contents = {name: text.encode() for name, text in files.items()}
    narrow = all_figures(runs, table, COLUMN)
    figures = []
    for name, figure in all_figures(runs, table).items():
        heading, caption = CAPTIONS[name]
        contents |= {f"{name}.{kind}": to_bytes(figure, kind) for kind in ("png", "pdf")}
        shown = {"name": name, "title": heading, "caption": caption}
        for form, drawn in (("wide", figure), ("narrow", narrow[name])):
            shown[form] = inline_svg(to_bytes(drawn, "svg"), f"{name}-{form}-", heading)
        figures.append(shown)
    contents["index.html"] = _page(runs, table, failures, command, title, figures).encode()

    for name, data in contents.items():
        write_bytes(out_dir / name, data)
    for name in set(before["files"]) - set(contents):
        (out_dir / name).unlink(missing_ok=True)
    shas = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    write_json(out_dir / "report.json", {"key": key, "files": shas})
    return index


def _page(
    runs: Sequence[StoredRun], table: Table, failures: Sequence[Mapping[str, Any]], command: str, title: str,
    figures: list[dict[str, str]],
) -> str:  # fmt: skip
    import jinja2
    from markupsafe import Markup

    looks = styles(row["algorithm"] for row in table.rows)
    envs = table.settings["envs"]
    script = (PAGE / "page.js").read_text()
    sha = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Only what this package wrote itself is trusted as markup: its script, its style, and the rewritten SVG.
    trusted = dict.fromkeys(("wide", "narrow"), Markup)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2").render(
        title=title,
        version=__version__,
        command=command,
        notes=table.notes,
        settings=table.settings,
        percent=f"{table.settings['level']:.0%}",
        runs_done=len(runs),
        envs=envs,
        capacities=table.settings["capacities"],
        algorithms=[{"label": label, "index": s.index, "colour": s.colour} for label, s in looks.items()],
        columns=[{"name": name, "help": text} for _, name, text in COLUMNS],
        rows=[_score_row(row, table, looks[row["algorithm"]]) for row in table.rows],
        figures=[{k: trusted.get(k, str)(v) for k, v in f.items()} for f in figures],
        failures=[_failure(f) for f in failures],
        run_columns=[{"name": name, "number": name in NUMBERS} for name in RUN_COLUMNS],
        axes=AXES,
        run_rows=[_run_row(r, looks, envs) for r in _run_records(runs, failures)],
        made=[
            {"title": "Versions and hardware", "entries": _entries([r.record["fingerprint"] for r in runs])},
            {"title": "Settings", "entries": _entries([_flat(r.record["spec"]) for r in runs])},
        ],
        css=Markup((PAGE / "page.css").read_text()),
        script=Markup(script),
        script_hash=f"sha256-{sha}",
    )


# --- rows


def _score_row(row: Mapping[str, Any], table: Table, look: Any) -> dict[str, Any]:
    cells = []
    for key, _, _ in COLUMNS:
        value = row[key]
        cell: dict[str, Any] = {
            "value": "" if value is None else value,
            "text": value,
            "interval": "",
            "bar": None,
        }
        if key == "n_runs":
            cell["text"] = f"{value}×{row['n_tasks']}" + ("*" if row["missing"] else "")
        elif key == "seconds":
            cell["text"] = duration(value)
        elif key == "clipped":
            cell["text"] = number(None if value is None else 100 * value, 1) + ("" if value is None else "%")
        elif key not in ("algorithm", "capacity"):
            cell["text"] = number(value, {"raw_mean": 1, "tv": 3}.get(key, 2))
        if f"{key}_low" in row and value is not None:
            low, high = row[f"{key}_low"], row[f"{key}_high"]
            cell["interval"] = "[–]" if low is None else f"[{number(low)}, {number(high)}]"
        if key == "iqm" and value is not None:
            cell["bar"] = _bar(row, table)
        cells.append(cell)
    return {"index": look.index, "colour": look.colour, "cells": cells}


def _bar(row: Mapping[str, Any], table: Table) -> dict[str, float | None]:
    """Where the IQM and its interval lie between the least and greatest end of all rows, in percent."""
    ends = [r[k] for r in table.rows for k in ("iqm", "iqm_low", "iqm_high") if r[k] is not None]
    low, span = min(ends), (max(ends) - min(ends)) or 1.0

    def at(value: float) -> float:
        return float(round(100 * (value - low) / span, 2))

    bar: dict[str, float | None] = {"at": at(row["iqm"]), "low": None, "width": None}
    if row["iqm_low"] is not None:
        bar |= {"low": at(row["iqm_low"]), "width": round(at(row["iqm_high"]) - at(row["iqm_low"]), 2)}
    return bar


def _run_records(runs: Sequence[StoredRun], failures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One flat record per run and per failure: what the list of runs and `runs.csv` show."""
    records = []
    for run in runs:
        r, cell = run.record, cell_of(run)
        records.append({
            "algorithm": cell.label, "environment": cell.env, "K": cell.capacity, "seed": r["spec"]["seed"],
            "sampled": r["scores"]["sampled"]["mean"], "sampled_std": r["scores"]["sampled"]["std"],
            "deterministic": r["scores"]["deterministic"]["mean"],
            "deterministic_std": r["scores"]["deterministic"]["std"],
            "steps": r["steps"], "time": r["seconds"]["total"], "status": "done", "run": run.id,
        })  # fmt: skip
    for f in failures:
        records.append({
            "algorithm": f.get("label", ""), "environment": f.get("env", ""), "K": f.get("capacity"),
            "seed": f.get("seed"), "status": f.get("class", "failed"), "run": f.get("id", ""),
        })  # fmt: skip
    return records


def _run_row(record: Mapping[str, Any], looks: Mapping[str, Any], envs: Sequence[str]) -> dict[str, Any]:
    look, env = looks.get(record["algorithm"]), record["environment"]
    cells = []
    for name in RUN_COLUMNS:
        value = record.get(name)
        text = "–" if value is None else str(value)
        if name in ("sampled", "deterministic") and value is not None:
            text = f"{value:.1f} ± {record[f'{name}_std']:.1f}"
        elif name == "time":
            text = duration(value)
        elif name == "steps" and value is not None:
            text = f"{value:,}"
        cells.append({"value": "" if value is None else value, "text": text, "number": name in NUMBERS})
    return {
        "cells": cells,
        "failed": record["status"] != "done",
        "index": look.index if look else None,
        "colour": look.colour if look else "transparent",
        "panel": envs.index(env) if env in envs else None,
    }


def _failure(record: Mapping[str, Any]) -> dict[str, Any]:
    place = [str(record["label"])] if record.get("label") else []
    place += [
        f"{word}{record[key]}"
        for key, word in (("env", "on "), ("capacity", "K="), ("seed", "seed "))
        if key in record
    ]
    return {
        "where": " ".join(place) or "a run",
        "kind": record.get("class", "failed"),
        "message": clean(str(record.get("message", ""))),
        "phase": record.get("phase"),
        "log": clean(str(record.get("log_tail", ""))),
    }


def clean(text: str) -> str:
    """A log as it looked at the end: without terminal escapes, overwritten lines and other control
    characters.
    """
    text = re.sub(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]", "", text)
    lines = (line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return "\n".join("".join(c for c in line if c == "\t" or c.isprintable()) for line in lines)


# --- how it was made


def _flat(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with an algorithm's hyper-parameters beside the rest, under the algorithm's name."""
    flat = {k: v for k, v in spec.items() if k != "hyper"}
    return flat | {f"{spec['algorithm']}.{k}": v for k, v in spec.get("hyper", {}).items()}


def _entries(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, int]]]]:
    """(name, [(value, number of runs)]) of every name in any record: one value where all agree."""
    entries = []
    for name in sorted({k for r in records for k in r}):
        counts = Counter(_word(r[name]) for r in records if name in r)
        entries.append((name, sorted(counts.items())))
    return entries


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


# --- files


def _runs_csv(runs: Sequence[StoredRun], failures: Sequence[Mapping[str, Any]]) -> str:
    columns = list(RUN_COLUMNS)
    columns[5:6] = ["sampled_std", "deterministic", "deterministic_std"]
    return rows_to_csv(_run_records(runs, failures), columns)


def _curves_csv(runs: Sequence[StoredRun]) -> str:
    """A line per evaluation of a run: the learning curves, sampled and deterministic."""
    rows = []
    for run in runs:
        cell, seed = cell_of(run), run.record["spec"]["seed"]
        for score in ("sampled", "deterministic"):
            for steps, value in zip(*learning_curve(run, score), strict=True):
                rows.append({
                    "algorithm": cell.label, "environment": cell.env, "K": cell.capacity, "seed": seed,
                    "run": run.id, "score": score, "steps": int(steps), "return": float(value),
                })  # fmt: skip
    return rows_to_csv(rows, ("algorithm", "environment", "K", "seed", "run", "score", "steps", "return"))


def _key(
    runs: Sequence[StoredRun], table: Table, failures: Sequence[Mapping[str, Any]], command: str, title: str
) -> str:
    content = {
        "code": [FORMAT, __version__, *(digest(p) for p in sorted(PAGE.iterdir()))],
        "runs": [[r.id, digest(r.path / "manifest.json")] for r in runs],
        "table": table.to_json(),
        "failures": [dict(f) for f in failures],
        "text": [command, title],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _manifest(out_dir: Path) -> dict[str, Any]:
    try:
        held = json.loads((out_dir / "report.json").read_text())
        return {"key": str(held["key"]), "files": dict(held["files"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"key": "", "files": {}}  # none yet, or of another make


def _intact(path: Path, sha: str) -> bool:
    return path.is_file() and digest(path) == sha
