"""The figures of a paper as pictures and pages: what is asked, what the paper claims, what we saw.

<out>/README.md             every paper and figure, and how it stands
<out>/<paper>.md            the figures of a paper with their texts; pictures in <out>/<paper>/
<out>/<paper>.html          the same as one file that loads nothing

Identical results give identical bytes. Whoever reads results needs no torch, and neither does this.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import __version__
from ..base.files import user_path, write_bytes
from ..base.text import plural
from ..statistics.table import Table
from ..store.bundle import Bundle, bundle_path, read_bundle
from ..store.study import check_scale_name
from .papers import Entry, Paper, PaperFigure, chosen, experiments, read_paper
from .report import PAGE

VERDICTS = {
    "agree": "Agrees with the paper",
    "disagree": "Disagrees with the paper",
    "cannot tell": "Cannot tell at this scale",
    "": "No claim to check",
}
UNSEEN = "Not looked at yet"


DRAFT = "DRAFT, runs are missing"
TEXTS = ("question", "claim", "asked", "saw", "verdict")  # of an entry; they stand beside its picture


@dataclass(frozen=True)
class Shown:
    """A figure with what there is to fill it."""

    figure: PaperFigure
    bundle: Bundle | None  # of the algorithms that are shown
    table: Table | None

    @property
    def state(self) -> str:
        """`drawn`, `draft` (runs are missing) or `no bundle`."""
        if self.bundle is None or self.table is None:
            return "no bundle"
        return "drawn" if self.bundle.complete else "draft"

    @property
    def redraw(self) -> str:
        return f"make figures PAPER={self.figure.paper} FIG={self.figure.number or self.figure.name}"

    @property
    def rerun(self) -> str:
        return f"make reproduce PAPER={self.figure.paper} FIG={self.figure.number or self.figure.name}"

    @property
    def source(self) -> str:
        """What a picture of it is drawn from, as 16 hex digits: the runs, and what its file says of the drawing. The
        picture carries it, so that one of other runs can be told."""
        entry = {key: value for key, value in asdict(self.figure.entry).items() if key not in TEXTS}
        if not entry["names"]:  # pictures drawn before there were names stay what they are
            del entry["names"]
        runs = [] if self.bundle is None else sorted(run.seal for run in self.bundle.runs)
        content = json.dumps([self.figure.heading, entry, runs], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def facts(self) -> str:
        """n, interval, normalisation, scale and dates, in words."""
        from ..figures.captions import made
        from ..figures.captions import scale as scale_of

        if self.bundle is None or self.table is None:
            text = f"No bundle yet: `{self.rerun}` makes the runs of the study `{self.figure.entry.study}`."
            others = self.bundle.strangers if self.bundle else 0
            return f"{text} (The folder holds {plural(others, 'run')} of other settings.)" if others else text
        s, asked = self.table.settings, self.figure.question.at(self.bundle.scale)
        ks, size = ", ".join(map(str, s["capacities"])), made(self.table)
        algorithms = len({r["algorithm"] for r in self.table.rows})
        text = (
            f"n = {plural(asked.seeds, 'seed')} × {plural(len(s['envs']), 'environment')} ({', '.join(s['envs'])}), "
            f"{plural(algorithms, 'algorithm')}, K = {ks}: "
            f"{len(self.bundle.runs)} of {plural(len(self.bundle.expected), 'run')}. {size[0].upper()}{size[1:]}. "
            f"Intervals: {s['level']:.0%} stratified bootstrap, {s['reps']:,} resamples. "
            f"Scores: {scale_of(self.table)} ({s['constants_note']})."
        )
        if self.bundle.strangers:
            text += f" {plural(self.bundle.strangers, 'run')} of other settings in the folder left out."
        return text if self.bundle.complete else f"{DRAFT}. {text}"


def show(figures: Sequence[PaperFigure], bundles: Path, scale: str = "small", **options: Any) -> list[Shown]:
    """What there is of each figure, read from `bundles`. A table (`stats.table` with these options) is computed once
    for all figures that show the same."""
    from ..statistics.aggregate import table as table_from

    check_scale_name(scale)

    @functools.cache
    def whole(study: str) -> Bundle | None:
        question = next(f.question for f in figures if f.entry.study == study)
        if scale != "small" and not question.paper:
            return None
        return read_bundle(bundle_path(bundles, study, scale), question, scale)

    @functools.cache
    def table_of(study: str, score: str, normalise: str) -> Table | None:
        bundle = whole(study)
        if bundle is None or not bundle.runs:
            return None
        found = table_from(bundle.runs, bundle.expected, score=score, normalise=normalise, **options)
        note = found.settings["constants_note"].replace("this table", "the study")
        return replace(found, settings=found.settings | {"scale": f"{scale} scale", "constants_note": note})

    out = []
    for f in figures:
        e = f.entry
        bundle, table = whole(e.study), table_of(e.study, e.score, e.normalise)
        if table:
            table = replace(table, settings=table.settings | {"names": e.names})
        if e.only and bundle and table:  # the scale stays that of the whole study
            bundle = bundle.of(e.only)
            series = sorted({r["algorithm"] for r in table.rows})
            rows = [r for r in table.rows if r["algorithm"] in e.only]
            table = replace(table, rows=rows, settings=table.settings | {"series": series})
        out.append(Shown(f, bundle, table))
    return out


def make(
    paper: Paper, name: str, shown: Sequence[Shown], drawn: Sequence[str], out: Path, page: bool = True
) -> list[Path]:
    """Draw the figures named in `drawn`, and write the paper's pages where `page`. Returns what was written.

    The page as one HTML file is written where all figures are drawn.
    """
    from ..figures.canvas import COLUMN, retitle, to_bytes
    from ..figures.canvas import PAGE as FULL
    from ..figures.drawings import check_drawing, draw
    from .inline import inline_svg

    folder = out / name
    out.mkdir(parents=True, exist_ok=True)
    if any(s.state != "no bundle" for s in shown):
        folder.mkdir(parents=True, exist_ok=True)
    written, inline = [], {}
    for s in shown:
        e = s.figure.entry
        check_drawing(e.draw, e.options, f"{name}/{s.figure.name}.toml")
        if s.figure.name not in drawn:
            continue
        if s.bundle is None or s.table is None:
            for kind in ("svg", "png"):  # of results that are no longer there
                (folder / f"{s.figure.name}.{kind}").unlink(missing_ok=True)
            continue
        forms = {}
        for form, width in (("wide", FULL), ("narrow", COLUMN)):
            figure = draw(e.draw, s.bundle.runs, s.table, width, e.options)
            retitle(figure, s.figure.heading)
            if form == "wide":
                for kind in ("svg", "png"):
                    write_bytes(folder / f"{s.figure.name}.{kind}", to_bytes(figure, kind, s.source))
                    written.append(folder / f"{s.figure.name}.{kind}")
            svg = to_bytes(figure, "svg")
            forms[form] = inline_svg(svg, f"{s.figure.name}-{form}-", s.figure.heading)
        inline[s.figure.name] = forms
    if page:
        pages = {f"{name}.md": markdown(paper, name, shown)}
        if set(drawn) >= {s.figure.name for s in shown}:
            pages[f"{name}.html"] = html(paper, name, shown, inline)
        for file, text in pages.items():
            write_bytes(out / file, text.encode())
            written.append(out / file)
    return written


def markdown(paper: Paper, name: str, shown: Sequence[Shown]) -> str:
    """The page of a paper."""
    lines = [f"# {paper.title}", "", f"<{paper.link}>. {paper.about}" if paper.link else paper.about, ""]
    lines += [f"All figures again from the committed runs, without torch: `make figures PAPER={name}`.", ""]
    for s in shown:
        e = s.figure.entry
        lines += [f"## {s.figure.heading}", "", f"*{e.question}*", ""]
        if s.state != "no bundle":
            lines += [f"![{s.figure.heading}]({name}/{s.figure.name}.png)", ""]
        if e.claim:
            lines += [f"**The paper:** {e.claim}", ""]
        if e.asked:
            lines += [f"**Why:** {e.asked}", ""]
        lines += [f"**We saw:** {saw(s)}", "", facts_line(s), ""]
    return "\n".join(lines).rstrip() + "\n"


def standing(entry: Entry) -> str:
    """How what was seen stands to what the paper claims, where somebody looked."""
    return VERDICTS[entry.verdict] if entry.saw else UNSEEN


def saw(s: Shown) -> str:
    e = s.figure.entry
    return e.saw if e.saw and not e.verdict else f"{standing(e).lower()}. {e.saw}".rstrip()


def facts_line(s: Shown) -> str:
    if s.state == "no bundle":
        return s.facts
    files = f"[SVG]({s.figure.paper}/{s.figure.name}.svg)"
    return f"{s.facts} Redraw: `{s.redraw}`; run it yourself: `{s.rerun}`. {files}"


def index(out: Path) -> str:
    """The list of papers and of how each figure stands, from the pages that there are."""
    lines = [
        "# Gallery",
        "",
        "Figures of papers, redrawn from runs of this harness. Each says what it rests on.",
        "",
    ]
    for path in sorted(experiments().glob("*/paper.toml")):
        name = path.parent.name
        paper, figures = read_paper(name)
        page = out / f"{name}.md"
        said_of = page.read_text(encoding="utf-8") if page.is_file() else ""
        title = (
            f"[{paper.title}]({name}.md)"
            if page.is_file()
            else f"{paper.title} (`make figures PAPER={name}`)"
        )
        lines += [f"## {title}", "", "| figure | study | drawn | what we saw |", "|---|---|---|---|"]
        for f in figures:
            picture = out / name / f"{f.name}.png"
            said = said_of.partition(f"## {f.heading}\n")[2].partition("\n## ")[0]
            word = "draft" if DRAFT in said else "yes"
            cell = f"[{word}]({name}/{f.name}.png)" if picture.is_file() else "no bundle yet"
            lines.append(f"| {f.heading} | `{f.entry.study}` | {cell} | {standing(f.entry).lower()} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def html(paper: Paper, name: str, shown: Sequence[Shown], inline: dict[str, dict[str, str]]) -> str:
    """The page of a paper as one file; `inline` holds each figure's two SVG elements."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    entries = []
    for s in shown:
        # Only the rewritten SVG is trusted as markup.
        forms = {form: Markup(svg) for form, svg in inline.get(s.figure.name, {}).items()}
        entries.append({
            "name": s.figure.name, "heading": s.figure.heading, "entry": s.figure.entry, "forms": forms,
            "verdict": standing(s.figure.entry), "state": s.state, "redraw": s.redraw, "rerun": s.rerun,
            "facts": re.sub("`", "", s.facts), "files": f"{name}/{s.figure.name}",
        })  # fmt: skip
    return environment.get_template("gallery.html.j2").render(
        paper=paper, figures=entries, version=__version__, css=Markup((PAGE / "page.css").read_text())
    )


def publish(name: str, wanted: str | None, scale: str, bundles: str, out: str) -> tuple[list[Shown], Path]:
    """Draw what is wanted of a paper and write its pages; the figures that were wanted, and the paper's page. Raises
    `UserError`."""
    paper, figures = read_paper(name)
    drawn = [f.name for f in chosen(figures, wanted)]
    shown = show(figures, user_path(bundles), scale)
    folder = user_path(out)
    folder.mkdir(parents=True, exist_ok=True)
    make(paper, name, shown, drawn, folder)
    write_bytes(folder / "README.md", index(folder).encode())
    return [s for s in shown if s.figure.name in drawn], folder / f"{name}.md"
