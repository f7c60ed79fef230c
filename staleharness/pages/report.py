"""One self-contained HTML file, with the figures as PNG and PDF and the tables as CSV beside it.

Whatever a user or a log wrote is escaped by Jinja2; the page's policy forbids every other source and every
script but its own. Identical results give identical bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..base.files import digest, tree_digest, write_bytes, write_json
from ..base.text import rows_to_csv
from ..figures.palette import styles
from ..statistics.scores import learning_curve
from ..statistics.table import Table, to_csv
from ..store.cells import cell_of, flat
from ..store.store import StoredRun
from .cards import cards
from .contents import AXES, COLUMNS, NUMBERS, RUN_COLUMNS, entries, failure, run_records, run_row, score_row

PAGE = Path(__file__).with_name("templates")  # template, style and script
PACKAGE = Path(__file__).parents[1]
# a report is made anew when one of these rooms changes
MAKERS = [PACKAGE / room for room in ("base", "store", "statistics", "figures", "pages")]

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
    "where_the_time_goes": (
        "Where the time goes",
        "Recomputing a proximal policy takes a forward pass; interpolating it takes part of the loss.",
    ),
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
    report of the same content is left as it is, with the command that wrote it. Raises nothing of its own; figures
    need at least one run.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    index = out_dir / "index.html"
    runs = sorted(runs, key=lambda r: (cell_of(r), r.record["spec"]["seed"]))
    key = _key(runs, table, failures, title)
    before = _manifest(out_dir)
    if before["key"] == key and all(_intact(out_dir / name, sha) for name, sha in before["files"].items()):
        return index

    from ..figures.canvas import COLUMN, to_bytes
    from ..figures.overview import all_figures
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
        rows=[score_row(row, table, looks[row["algorithm"]]) for row in table.rows],
        figures=[{k: trusted.get(k, str)(v) for k, v in f.items()} for f in figures],
        cards=cards(runs, looks),
        failures=[failure(f) for f in failures],
        run_columns=[{"name": name, "number": name in NUMBERS} for name in RUN_COLUMNS],
        axes=AXES,
        run_rows=[run_row(r, looks, envs) for r in run_records(runs, failures)],
        made=[
            {"title": "Versions and hardware", "entries": entries([r.record["fingerprint"] for r in runs])},
            {"title": "Settings", "entries": entries([flat(r.record["spec"]) for r in runs])},
        ],
        css=Markup((PAGE / "page.css").read_text()),
        script=Markup(script),
        script_hash=f"sha256-{sha}",
    )


def _runs_csv(runs: Sequence[StoredRun], failures: Sequence[Mapping[str, Any]]) -> str:
    columns = list(RUN_COLUMNS)
    columns[5:6] = ["sampled_std", "deterministic", "deterministic_std"]
    return rows_to_csv(run_records(runs, failures), columns)


def _curves_csv(runs: Sequence[StoredRun]) -> str:
    """A line per evaluation of a run: the learning curves, sampled and deterministic."""
    rows = []
    for run in runs:
        cell, seed = cell_of(run), run.record["spec"]["seed"]
        for score in run.record["scores"]:
            for steps, value in zip(*learning_curve(run, score), strict=True):
                rows.append({
                    "algorithm": cell.label, "environment": cell.env, "K": cell.capacity, "seed": seed,
                    "run": run.id, "score": score, "steps": int(steps), "return": float(value),
                })  # fmt: skip
    return rows_to_csv(rows, ("algorithm", "environment", "K", "seed", "run", "score", "steps", "return"))


def _key(runs: Sequence[StoredRun], table: Table, failures: Sequence[Mapping[str, Any]], title: str) -> str:
    """Of all that is shown but the command: asking again in other words is no other report."""
    content = {
        "code": [__version__, tree_digest(*MAKERS)],
        "runs": [[r.id, r.seal] for r in runs],
        "table": table.to_json(),
        "failures": [dict(f) for f in failures],
        "title": title,
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
