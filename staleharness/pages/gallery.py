"""The figures of a paper as pictures and pages: what is asked, what the paper claims, what we saw.

<out>/README.md             every paper and figure, and how it stands
<out>/<paper>.md            the figures of a paper with their texts; pictures in <out>/<paper>/, as SVG and as PNG, for
                            a page and for a telephone, and what is a table as a table
<out>/<paper>.html          the same as one file that loads nothing

In docs/gallery/, git keeps the Markdown and the PNGs, and the rest is made on demand. Identical results give identical
bytes. Whoever reads results needs no torch, and neither does this.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base.files import forget_torn, user_path, write_bytes
from .gallery_texts import html, index, markdown, picture_file
from .papers import Paper, chosen, read_paper
from .shown import Shown, show

ABANDONED = 3600.0  # seconds without a write, after which nobody is writing a temporary file
FILES = (("wide", "svg"), ("wide", "png"), ("narrow", "png"))
__all__ = ["Shown", "index", "make", "publish", "show"]


def make(
    paper: Paper, name: str, shown: Sequence[Shown], drawn: Sequence[str], out: Path, page: bool = True
) -> list[Path]:
    """Draw the figures named in `drawn`, and write the paper's pages where `page`. Returns what was written.

    The page as one HTML file is written where all figures are drawn.
    """
    from ..figures.canvas import COLUMN, few_colours, retitle, to_bytes
    from ..figures.canvas import PAGE as FULL
    from ..figures.drawings import check_drawing, draw, sheet
    from ..figures.registry import SHEETS
    from .inline import inline_svg

    folder = out / name
    out.mkdir(parents=True, exist_ok=True)
    if any(s.state != "no bundle" and s.figure.entry.draw not in SHEETS for s in shown):
        folder.mkdir(parents=True, exist_ok=True)
    for place in filter(Path.is_dir, (out, folder)):
        forget_torn(place, "*.md", "*.html", "*.svg", "*.png", age=ABANDONED)
    written, inline, sheets = [], {}, {}
    for s in shown:
        e = s.figure.entry
        check_drawing(e.draw, e.options, f"{name}/{s.figure.name}.toml")
        is_table = e.draw in SHEETS
        if is_table and page and s.table is not None:
            sheets[s.figure.name] = sheet(e.draw, s.results, s.table, **s.options)
        if s.figure.name not in drawn:
            continue
        if s.bundle is None or s.table is None or is_table:
            for form, kind in FILES:  # of results that are no longer there, or of what is a table now
                (folder / picture_file(s.figure.name, form, kind)).unlink(missing_ok=True)
            continue
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
    if page:
        pages = {f"{name}.md": markdown(paper, name, shown, sheets)}
        if set(drawn) >= {s.figure.name for s in shown}:
            pages[f"{name}.html"] = html(paper, name, shown, inline, sheets)
        for file, text in pages.items():
            write_bytes(out / file, text.encode())
            written.append(out / file)
    return written


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
