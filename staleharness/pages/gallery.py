"""The figures of a paper as pictures and pages: what is asked, what the paper claims, what we saw.

<out>/README.md             every paper and figure, and how it stands
<out>/<paper>.md            the figures of a paper with their texts; pictures in <out>/<paper>/, as SVG and as PNG, for
                            a page and for a telephone, and what is a table as a table
<out>/<paper>.html          the same as one file that loads nothing

In docs/gallery/, git keeps the Markdown and the PNGs, and the rest is made on demand. Identical results give identical
bytes. Whoever reads results needs no torch, and neither does this.

A picture or section is only ever replaced by a newer one of the same figure: a figure whose results are not there now
stays as it was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base.files import check_creatable, check_replaceable, remove_temporaries, user_path, write_bytes
from ..base.text import invocation
from ..errors import UserError
from .gallery_texts import INDEX_TITLE, drawn_sections, html, index, markdown, picture_file, section
from .papers import Paper, PaperFigure, chosen, read_paper
from .shown import Shown, at_scale, show

ABANDONED = 3600.0  # seconds without a write, after which nobody is writing a temporary file
FILES = (("wide", "svg"), ("wide", "png"), ("narrow", "png"))
__all__ = ["Shown", "index", "make", "publish", "show"]


def make(
    paper: Paper, figures: Sequence[PaperFigure], shown: Sequence[Shown], drawn: Sequence[str], out: Path
) -> list[Path]:
    """Draw the figures named in `drawn`, and write the page of the paper. Returns the files written.

    figures: all of the paper, in the order of its page. shown: those whose texts are written anew; the page keeps the
    sections of the others, and of those that have no results now. Removes nothing. The page as one HTML file is
    written where no figure on it is left as it was. Raises `UserError`, before anything is written, where another file
    is in the place of the page.
    """
    from ..figures.canvas import COLUMN, few_colours, retitle, to_bytes
    from ..figures.canvas import PAGE as FULL
    from ..figures.drawings import check_drawing, draw, sheet
    from ..figures.registry import SHEETS
    from .inline import inline_svg

    name = figures[0].paper
    page, folder = out / f"{name}.md", out / name
    check_replaceable(page, f"# {paper.title}\n", "a page of this gallery")
    for place in filter(Path.is_dir, (out, folder)):
        remove_temporaries(place, "*.md", "*.html", "*.svg", "*.png", age=ABANDONED)
    written, inline, sheets = [], {}, {}
    for s in shown:
        e = s.figure.entry
        check_drawing(e.draw, e.options, f"{name}/{s.figure.name}.toml")
        if s.bundle is None or s.table is None:
            continue
        if e.draw in SHEETS:
            sheets[s.figure.name] = sheet(e.draw, s.results, s.table, **s.options)
            continue
        if s.figure.name not in drawn:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        forms = {}
        for form, width in (("wide", FULL), ("narrow", COLUMN)):
            figure = draw(e.draw, s.results, s.table, width, **s.options)
            retitle(figure, s.figure.heading)
            svg = to_bytes(figure, "svg", s.source)
            png = to_bytes(figure, "png", s.source)
            files = {"svg": svg, "png": png} if form == "wide" else {"png": few_colours(png)}
            for kind, data in files.items():
                path = folder / picture_file(s.figure.name, form, kind)
                write_bytes(path, data)
                written.append(path)
            forms[form] = inline_svg(svg, f"{s.figure.name}-{form}-", s.figure.heading)
        inline[s.figure.name] = forms
    out.mkdir(parents=True, exist_ok=True)
    earlier = drawn_sections(page)
    sections = {s.figure.heading: section(paper, s, sheets) for s in shown}
    without = {s.figure.heading for s in shown if s.state == "no bundle"}
    keep = {f.heading for f in figures} & earlier.keys() - (sections.keys() - without)
    sections |= {heading: earlier[heading] for heading in keep}
    pages = {page: markdown(paper, name, [sections[f.heading] for f in figures if f.heading in sections])}
    if not keep and all(s.state == "no bundle" or s.figure.name in drawn for s in shown):
        pages[out / f"{name}.html"] = html(paper, name, shown, inline, sheets)
    for path, text in pages.items():
        write_bytes(path, text.encode())
        written.append(path)
    return written


def publish(name: str, wanted: str | None, scale: str, bundles: str, out: str) -> tuple[list[Shown], Path]:
    """Draw the wanted figures of a paper that have results, and write its page and the list of papers. Returns the
    wanted figures, and the paper's page. Raises `UserError`, before anything is written; also where no wanted figure
    has results."""
    paper, figures = read_paper(name)
    names = [f.name for f in chosen(figures, wanted)]
    folder = user_path(out)
    check_creatable(folder)
    check_replaceable(folder / "README.md", f"# {INDEX_TITLE}\n", "a page of this gallery")
    shown = show(figures, user_path(bundles), scale)
    found = [s for s in shown if s.figure.name in names]
    if all(s.state == "no bundle" for s in found):
        which = "none of its figures has" if wanted in (None, "all") else f"FIG={wanted} does not have"
        remedy = invocation("reproduce", paper=name, **at_scale(scale))
        raise UserError(f"PAPER={name}: {which} results at SCALE={scale} in {bundles}; make them: {remedy}")
    make(paper, figures, shown, names, folder)
    write_bytes(folder / "README.md", index(folder).encode())
    return found, folder / f"{name}.md"
