"""Report of results: one self-contained HTML file, with the figures as PNG and one PDF and the tables as CSV beside it.

Whatever a user or a log wrote is escaped by Jinja2; the page's policy forbids every other source and every
script but its own. Identical results give identical bytes.
"""

from __future__ import annotations

import gc
import hashlib
import json
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..base import __version__
from ..base.files import atomic_write, digest, read_json, remove_temporaries, tree_digest, write_bytes, write_json
from ..base.table_formatting import columns_to_csv, rows_to_csv
from ..figures.palette import styles, with_names
from ..statistics.results import Results
from ..statistics.scores import learning_curve
from ..statistics.significance_and_power import method_pairs
from ..statistics.table import Table, to_csv
from ..store.run_grid import cell_of, flat_settings
from ..store.stored_run import StoredRun
from .page_parts import read_template, shell
from .report_panels import anchors, cards, run_groups
from .report_tables import (
    AXES,
    NUMBERS,
    PAIR_COLUMNS,
    RUN_COLUMNS,
    columns_of,
    entries,
    failure,
    run_records,
    run_row,
    score_row,
    squares,
)

PACKAGE = Path(__file__).parents[1]
# A report is rebuilt when one of these packages changes.
MAKERS = [PACKAGE / name for name in ("base", "store", "pipeline", "logs", "statistics", "figures", "pages")]


def write(
    out_dir: Path,
    results: Results,
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
    runs = sorted(results, key=lambda r: (cell_of(r), r.seed))
    key = _key(runs, table, failures, title)
    before = _manifest(out_dir)
    if before["key"] == key and all(_intact(out_dir / name, sha) for name, sha in before["files"].items()):
        return index

    pairs = method_pairs(results.grid, table.settings["score"])
    at = RUN_COLUMNS.index("deterministic")
    run_columns = [*RUN_COLUMNS[:at], "sampled_std", "deterministic", "deterministic_std", *RUN_COLUMNS[at + 1 :]]
    csv_files: dict[str, Iterable[str]] = {
        "table.csv": [to_csv(table)],
        "pairs.csv": [rows_to_csv(pairs, PAIR_COLUMNS)],
        "runs.csv": [rows_to_csv(run_records(runs, failures), run_columns)],
        "curves.csv": _curves_csv(runs),
    }
    figures, sheets, contents = _drawings(results, table)
    csv_files |= sheets
    remove_temporaries(out_dir, "*.csv", "*.json", "*.html", "*.zip", "*.png", "*.pdf")
    for name, pieces in csv_files.items():
        with atomic_write(out_dir / name) as stream:
            stream.writelines(piece.encode() for piece in pieces)
    with atomic_write(out_dir / "data.zip") as stream:
        zip_into(stream, [out_dir / name for name in csv_files])
    for name, data in contents.items():
        write_bytes(out_dir / name, data)
    with atomic_write(index) as stream:
        stream.writelines(_page(runs, results, table, failures, command, title, figures, pairs, out_dir))
    outputs = {*csv_files, *contents, "data.zip", "index.html"}
    for name in before["files"].keys() - outputs:
        if _intact(out_dir / name, before["files"][name]):  # unchanged since this report wrote it
            (out_dir / name).unlink()
    write_json(out_dir / "report.json", {"key": key, "files": {n: digest(out_dir / n) for n in outputs}})
    return index


def _drawings(
    results: Results, table: Table
) -> tuple[list[dict[str, str]], dict[str, Iterable[str]], dict[str, bytes]]:
    """Contents of the page, a record per figure; its tables as CSV and its pictures, each by file name."""
    from ..figures.plot_layout import FORMS, to_bytes
    from ..figures.registry import SHEETS, sections
    from .figure_embedding import PdfBook, hover_axes, inline_svg

    figures: list[dict[str, str]] = []
    csv_files: dict[str, Iterable[str]] = {}
    contents: dict[str, bytes] = {}
    book = PdfBook()
    gc.freeze()  # so that collections skip the results that have been read
    try:
        for drawing in sections(results):
            assert drawing.section is not None
            name, heading = drawing.name, drawing.section.title
            content = {"name": name, "title": heading, "caption": drawing.section.caption}
            figures.append(content)
            if name in SHEETS:
                sheet = drawing.draw(results, table)
                content["sheet"] = sheet.html()
                csv_files[f"{name}.csv"] = [sheet.to_csv()]
                continue
            for form, width in FORMS.items():
                figure = drawing.draw(results, table, width)
                content[form] = inline_svg(to_bytes(figure, "svg"), f"{name}-{form}-", heading, hover_axes(figure))
                if form == "wide":
                    contents[f"{name}.png"] = to_bytes(figure, "png")
                    content["page"] = str(book.add(figure))
            gc.collect()  # a figure is a reference cycle of many objects, and several would pile up
    finally:
        gc.unfreeze()
    if book.count:
        contents["figures.pdf"] = book.close()
    return figures, csv_files, contents


def _page(
    runs: Sequence[StoredRun],
    results: Results,
    table: Table,
    failures: Sequence[Mapping[str, Any]],
    command: str,
    title: str,
    figures: list[dict[str, str]],
    pairs: Sequence[Mapping[str, Any]],
    out_dir: Path,
) -> Iterator[bytes]:
    """Yield the HTML in pieces: the list of runs can be long."""
    from markupsafe import Markup

    looks = with_names(styles(row["algorithm"] for row in table.rows))
    names = anchors(runs)
    envs = table.settings["envs"]
    digits = 3 if any(run.record["task"]["normalise"] == "raw" for run in runs) else 1  # of scores between 0 and 1
    # Only what this package wrote itself is trusted as markup: its script, its style, the rewritten SVG and the
    # tables, which escape what they are given.
    markup = dict.fromkeys(("wide", "narrow", "sheet"), Markup)
    page = read_template("report.html.j2").stream(
        **shell(),
        title=title,
        command=command,
        notes=table.notes,
        answers=table.answers,
        settings=table.settings,
        percent=f"{table.settings['level']:.0%}",
        runs_done=len(runs),
        envs=envs,
        capacities=table.settings["capacities"],
        looks=looks,
        columns=[{"name": name, "help": text} for _, name, text in columns_of(table)],
        rows=[score_row(row, table, looks, names) for row in table.rows],
        squares=squares(pairs, looks, names),
        figures=[{k: markup.get(k, str)(v) for k, v in f.items()} for f in figures],
        cards=cards(results, looks),
        failures=[failure(f) for f in failures],
        run_columns=[{"name": name, "number": name in NUMBERS} for name in RUN_COLUMNS],
        axes=AXES,
        groups=run_groups(runs, table, looks, out_dir),
        run_rows=(run_row(r, looks, envs, digits) for r in run_records(runs, failures, table)),
        made=[
            {"title": "Versions and hardware", "entries": entries(r.record["fingerprint"] for r in runs)},
            {"title": "Settings", "entries": entries(flat_settings(r.record["spec"]) for r in runs)},
        ],
    )
    page.enable_buffering(1000)
    for piece in page:
        yield piece.encode()


def zip_into(stream: BinaryIO, files: Iterable[Path]) -> None:
    """Write a ZIP archive of these; the same bytes for the same files, on any day."""
    with zipfile.ZipFile(stream, "w") as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path.name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            with path.open("rb") as source, archive.open(entry, "w") as target:
                shutil.copyfileobj(source, target)


def _curves_csv(runs: Iterable[StoredRun]) -> Iterator[str]:
    """Yield CSV with a line per evaluation of a run: learning curves, sampled and deterministic, a piece per curve."""
    columns = ("algorithm", "environment", "K", "seed", "run", "score", "steps", "return")
    yield rows_to_csv([], columns)
    for run in runs:
        cell = cell_of(run)
        for score in run.record["scores"]:
            steps, values = learning_curve(run, score)
            of_curve = (cell.label, cell.env, cell.capacity, run.seed, run.id, score)
            cells = [*([x] * len(steps) for x in of_curve), steps.astype(int).tolist(), values.tolist()]
            yield columns_to_csv(dict(zip(columns, cells, strict=True)), header=False)


def _key(runs: Sequence[StoredRun], table: Table, failures: Sequence[Mapping[str, Any]], title: str) -> str:
    """Digest of the content of the report except the command, which may be spelt differently."""
    content = {
        "code": [__version__, tree_digest(*MAKERS)],
        "runs": [[r.id, r.seal, r.label] for r in runs],
        "table": table.to_json(),
        "failures": [dict(f) for f in failures],
        "title": title,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _manifest(out_dir: Path) -> dict[str, Any]:
    """Read {key, files: name -> sha256} of a report in the folder; empty unless all names are plain file names."""
    try:
        manifest = read_json(out_dir / "report.json")
        key, files = str(manifest["key"]), dict(manifest["files"])
        if all(re.fullmatch(r"[^./\\\0][^/\\\0]{0,99}", name) for name in files):
            return {"key": key, "files": files}
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or not one that this code wrote
    return {"key": "", "files": {}}


def _intact(path: Path, sha: str) -> bool:
    return path.is_file() and digest(path) == sha
