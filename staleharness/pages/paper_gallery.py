"""Gallery: the figures of a paper as pictures and pages, with question, claim, verdict and tests.

<out>/README.md             every paper and figure, with the verdict on each
<out>/<paper>.md            summary of a paper on one page: conclusion, and the verdict on each claim
<out>/<paper>/evidence.md   its figures with their texts and tests; pictures beside it, as SVG and as PNG, for wide and
                            for narrow screens, and tables as tables
<out>/<paper>.html          all of that as one file that loads nothing; <paper>_<figure>.html of one figure
<out>/index.html            every paper and figure, with leaderboard and methods

In docs/gallery/, git keeps the Markdown and the PNGs, and the rest is made on demand. Identical results give identical
bytes. Does not need torch.

A picture or section is only ever replaced by a newer one of the same figure: a figure whose results are absent stays
as it was drawn.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ..base.files import check_creatable, check_replaceable, remove_temporaries, write_bytes
from ..base.parsing import user_path
from ..base.reference_results import absent_results
from ..base.text_formatting import invocation
from ..errors import UserError
from ..figures.table_markup import Sheet
from .figure_provenance import DRAFT, figure_facts, run_lists, test_links
from .gallery_index import TITLE, index_page, study_pages
from .page_parts import anchor, picture, picture_file, prose, read_page, read_template, sections_on_page, shell
from .paper_figure_data import GalleryFigure, at_scale, load_figures
from .paper_figure_specs import Paper, PaperFigure, paper_names, read_paper, select_figures
from .paper_verdict_summary import conclusion_on_page, summary_page
from .verdict_text import claims_text, finding, planned_tests, test_rows, verdict_lines, verdict_on_page, verdict_words


def make(
    paper: Paper, figures: Sequence[PaperFigure], entries: Sequence[GalleryFigure], redraw: Sequence[str], out: Path
) -> list[Path]:
    """Draw the figures named in `redraw`, and write the page of the paper. Returns the files written.

    figures: all of the paper, in the order of its page. entries: those whose texts are written anew; the page keeps the
    sections of the others, and of those that have no results now. Removes nothing. The page as one HTML file is
    written unless a figure on it is left as it was. Raises `UserError`, before anything is written, if another file
    is in the place of the page.
    """
    from ..figures.plot_layout import FORMS, reduce_colours, retitle, to_bytes
    from ..figures.registry import SHEETS, check_drawing, draw, sheet
    from .figure_embedding import hover_axes, inline_svg

    name = figures[0].paper
    summary, folder = out / f"{name}.md", out / name
    page = folder / EVIDENCE
    check_pages(paper, figures, redraw, out)
    for place in filter(Path.is_dir, (out, folder)):
        remove_temporaries(place, "*.md", "*.html", "*.svg", "*.png")
    files_written, inline, sheets = [], {}, {}
    for s in entries:
        e = s.figure.entry
        check_drawing(e.draw, e.options, f"{name}/{s.figure.name}.toml")
        if s.bundle is None or s.table is None:
            continue
        if e.draw in SHEETS:
            sheets[s.figure.name] = sheet(e.draw, s.results, s.table, **s.options)
            continue
        if s.figure.name not in redraw:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        forms = {}
        for form, width in FORMS.items():
            figure = draw(e.draw, s.results, s.table, width, **s.options)
            retitle(figure, s.figure.heading)
            svg = to_bytes(figure, "svg", s.source)
            axes = hover_axes(figure)
            png = to_bytes(figure, "png", s.source, title=False)
            files = {"svg": svg, "png": png} if form == "wide" else {"png": reduce_colours(png)}
            for kind, data in files.items():
                path = folder / picture_file(s.figure.name, form, kind)
                write_bytes(path, data)
                files_written.append(path)
            prefix = f"{s.figure.name}-{form}-"
            forms[form] = inline_svg(svg, prefix, s.figure.heading, axes)
        inline[s.figure.name] = forms
    folder.mkdir(parents=True, exist_ok=True)
    earlier = {h: f"## {h}\n{text}".rstrip() for h, text in sections_on_page(page).items() if _shows(text)}
    pictures = {f.name for f in figures if (folder / picture_file(f.name)).is_file()}
    sections = {s.figure.heading: section(paper, s, sheets, pictures) for s in entries}
    lacking = {s.figure.heading for s in entries if s.state == "no bundle"}
    keep = {f.heading for f in figures} & earlier.keys() - (sections.keys() - lacking)
    sections |= {heading: earlier[heading] for heading in keep}
    present = [f for f in figures if f.heading in sections]
    pages = {
        page: markdown(paper, name, [sections[f.heading] for f in present]),
        summary: summary_page(paper, name, present, entries, out),
    }
    if not keep and all(s.state == "no bundle" or s.figure.name in redraw for s in entries):
        pages[out / f"{name}.html"] = html(paper, name, entries, inline, sheets)
    else:
        for s in entries if len(redraw) == 1 else ():
            if s.figure.name in redraw and s.state != "no bundle":
                pages[out / f"{name}_{s.figure.name}.html"] = html(paper, name, [s], inline, sheets)
    for path, text in pages.items():
        write_bytes(path, text.encode())
        files_written.append(path)
    return files_written


def publish(
    name: str, selector: str | None, scale: str, bundles: str, out: str
) -> tuple[list[GalleryFigure], list[Path]]:
    """Draw the wanted figures of a paper that have results, and write its page and the list of papers.

    Returns the wanted figures, and the files written, the paper's summary and the index last. Raises `UserError`,
    before anything is written; also if no wanted figure has results.
    """
    paper, figures = read_paper(name)
    names = [f.name for f in select_figures(figures, selector)]
    folder = user_path(out)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"OUT={out} is a file; give a folder")
    check_creatable(folder)
    check_replaceable(folder / "README.md", f"# {INDEX_TITLE}\n", "a page of this gallery")
    _check_html(folder / "index.html", TITLE)
    entries = load_figures(figures, user_path(bundles), scale)
    wanted_figures = [s for s in entries if s.figure.name in names]
    if all(s.state == "no bundle" for s in wanted_figures):
        problem = "none of its figures has" if selector in (None, "all") else f"FIG={selector} does not have"
        remedy = invocation("reproduce", paper=name, **at_scale(scale))
        where = f"; {text}" if (text := absent_results()) else ""
        raise UserError(f"PAPER={name}: {problem} results at SCALE={scale} in {bundles}; make them: {remedy}{where}")
    files = make(paper, figures, entries, names, folder)
    write_bytes(folder / "README.md", index(folder).encode())
    write_bytes(folder / "index.html", index_page(folder).encode())
    return wanted_figures, [*files, folder / f"{name}.md", folder / "index.html"]


def check_pages(paper: Paper, figures: Sequence[PaperFigure], redraw: Sequence[str], out: Path) -> None:
    """Raise `UserError` if another file is in the place of a page that `make` writes, or of a picture of a figure named
    in `redraw`. Writes nothing."""
    from ..figures.registry import SHEETS

    name = figures[0].paper
    for f in figures:
        for form, kind in PICTURES if f.name in redraw and f.entry.draw not in SHEETS else ():
            path = out / name / picture_file(f.name, form, kind)
            check_replaceable(path, SOURCE_MARK[kind], "a picture of this gallery", within=FILE_HEAD)
    check_replaceable(out / f"{name}.md", f"# {paper.title}\n", "a page of this gallery")
    check_replaceable(out / name / EVIDENCE, f"# {paper.title}: evidence\n", "a page of this gallery")
    for page in (name, *(f"{name}_{f.name}" for f in figures)):
        _check_html(out / f"{page}.html", paper.title)


def _check_html(path: Path, title: str) -> None:
    from markupsafe import escape

    check_replaceable(path, f"<title>{escape(title)}</title>", "a page of this gallery", within=FILE_HEAD)


INDEX_TITLE = "Gallery"
FILE_HEAD = 2000  # bytes in which the title of a page is, and the source of a picture
PICTURES = (("wide", "svg"), ("wide", "png"), ("narrow", "png"))  # files of a figure
SOURCE_MARK = {"svg": "<dc:source>", "png": "tEXtSource\0"}  # before its source (`GalleryFigure.source`)
EVIDENCE = "evidence.md"
TABLE_MARK = "<!-- "  # stands before a table on a page
NO_PICTURE = "Not drawn yet."  # stands in the place of a picture


def markdown(paper: Paper, name: str, sections: Sequence[str]) -> str:
    """Page of a paper's figures and tests, from its sections in order."""
    about = f"[Summary](../{name}.md). `{invocation('figures', paper=name)}` draws all figures again, without torch."
    return "\n\n".join([f"# {paper.title}: evidence", about, *sections]) + "\n"


def section(paper: Paper, s: GalleryFigure, sheets: Mapping[str, Sheet], pictures: Collection[str]) -> str:
    """Section of a figure; `sheets` holds the figures that are tables, by name, and `pictures` the names of those with
    a picture. Its source (`GalleryFigure.source`) stands before a table; a picture carries it inside."""
    e, name = s.figure.entry, s.figure.name
    lines = [f"## {s.figure.heading}", ""]
    if sentence := finding(s):
        lines += [f"**{sentence}**", ""]
    lines += [f"*{e.question}*", ""]
    if name in sheets:
        lines += [f"{TABLE_MARK}{s.source} -->", "", sheets[name].markdown(), ""]
    elif s.state != "no bundle":
        lines += [picture(s.figure.heading, name) if name in pictures else NO_PICTURE, ""]
    if e.claim:
        lines += [f"**The {paper.source}:** {e.claim}", ""]
    if e.motivation:
        lines += [f"**Why:** {e.motivation}", ""]
    text = figure_facts(s)
    if s.state != "no bundle":
        text += f" Redraw: `{s.command('figures')}`; run it yourself: `{s.command('reproduce')}`."
    return "\n".join([*lines, *verdict_lines(s), text]).rstrip()


def _shows(part: str) -> bool:
    return "<picture>" in part or TABLE_MARK in part


def index(out: Path) -> str:
    """List of papers and of each figure's verdict, from the pages in the folder."""
    lines = [
        f"# {INDEX_TITLE}",
        "",
        "Figures of papers, redrawn from runs of this harness. Each figure states the runs and tests behind it.",
        "",
    ]
    for name in paper_names():
        paper, figures = read_paper(name)
        page = out / name / EVIDENCE
        sections_by_heading = sections_on_page(page)
        title = (
            f"[{paper.title}]({name}.md)"
            if page.is_file()
            else f"{paper.title} (`{invocation('figures', paper=name)}`)"
        )
        lines += [f"## {title}", ""]
        if text := conclusion_on_page(read_page(out / f"{name}.md")):
            lines += [text, ""]
        lines += ["| figure | study | drawn | verdict |", "|---|---|---|---|"]
        for f in figures:
            text = sections_by_heading.get(f.heading, "")
            word = "draft" if DRAFT in text else "yes"
            place = f"{name}/{EVIDENCE}#{anchor(f.heading)}" if TABLE_MARK in text else f"{name}/{f.name}.png"
            absent = "not drawn" if f"\n{NO_PICTURE}\n" in text else "no bundle yet"
            cell = f"[{word}]({place})" if _shows(text) else absent
            lines.append(f"| {f.heading} | `{f.entry.study}` | {cell} | {verdict_on_page(text)} |")
        lines.append("")
    if studies := study_pages(out):
        lines += ["## Studies of our own", "", *(f"- [{title}]({link})" for link, title in studies.items())]
    return "\n".join(lines).rstrip() + "\n"


def _results_of(s: GalleryFigure) -> str:
    """Folder of results that holds the runs of a figure, as a command of the checkout names it."""
    assert s.bundle is not None
    path = s.bundle.runs[0].path.parents[1]
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def html(
    paper: Paper,
    name: str,
    entries: Sequence[GalleryFigure],
    inline: Mapping[str, Mapping[str, str]],
    sheets: Mapping[str, Sheet],
) -> str:
    """Page of a paper as one file; `inline` holds each figure's two SVG elements, `sheets` its tables."""
    from markupsafe import Markup

    rows = []
    for s in entries:
        # Only the rewritten SVG and the tables are trusted as markup.
        forms = {form: Markup(svg) for form, svg in inline.get(s.figure.name, {}).items()}
        rows.append(
            {
                "gallery": s,
                "forms": forms,
                "sheet": Markup(sheets[s.figure.name].html()) if s.figure.name in sheets else "",
                "verdict": verdict_words(s),
                "claims": claims_text(s.claim_result),
                "finding": finding(s),
                "texts": {
                    key: prose(getattr(s.figure.entry, key), name) for key in ("question", "claim", "motivation")
                },
                "planned": prose(planned_tests(s), name),
                "observation": prose(s.claim_result.observation, name),
                "tests": test_rows(s.claim_result),
                "links": test_links(s),
                "report": invocation("report", out=_results_of(s)) if s.state != "no bundle" else "",
                "facts": figure_facts(s).replace("`", ""),
            }
        )
    lists = run_lists(entries)
    return read_template("gallery.html.j2").render(
        **shell(), title=paper.title, name=name, paper=paper, about=prose(paper.about), figures=rows, lists=lists
    )
