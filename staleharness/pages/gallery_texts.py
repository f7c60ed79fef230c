"""What the gallery says: the page of a paper as Markdown and as one HTML file, and the list of all papers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from ..base.text import invocation
from ..base.version import __version__
from ..figures.sheet import Sheet
from .papers import Paper, experiments, read_paper
from .report import PAGE
from .shown import DRAFT, Shown
from .verdict_texts import said_lines, standing, standing_on, test_rows

INDEX_TITLE = "Gallery"
TABLE_MARK = "<!-- "  # stands before a table on a page


def markdown(paper: Paper, name: str, sections: Sequence[str]) -> str:
    """The page of a paper, of its sections in order."""
    about = f"<{paper.link}>. {paper.about}" if paper.link else paper.about
    redraw = f"To redraw all figures from the committed runs, without torch: `{invocation('figures', paper=name)}`."
    return "\n\n".join([f"# {paper.title}", about, redraw, *sections]) + "\n"


def section(paper: Paper, s: Shown, sheets: Mapping[str, Sheet]) -> str:
    """A figure on the page; `sheets` holds the figures that are tables, by name. A table is preceded by what it was
    made from, as a picture carries it inside (`Shown.source`)."""
    e, name = s.figure.entry, s.figure.name
    lines = [f"## {s.figure.heading}", "", f"*{e.question}*", ""]
    if name in sheets:
        lines += [f"{TABLE_MARK}{s.source} -->", "", sheets[name].markdown(), ""]
    elif s.state != "no bundle":
        lines += [picture(s.figure.heading, name, f"{s.figure.paper}/"), ""]
    if e.claim:
        lines += [f"**The {paper.source}:** {e.claim}", ""]
    if e.asked:
        lines += [f"**Why:** {e.asked}", ""]
    return "\n".join([*lines, *said_lines(s), facts_line(s)]).rstrip()


def drawn_sections(page: Path) -> dict[str, str]:
    """Heading -> section of the figures that a page of a paper shows, as a picture or a table; none without a page."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    found = {part.partition("\n")[0]: f"## {part}".rstrip() for part in text.split("\n## ")[1:]}
    return {heading: part for heading, part in found.items() if _shows(part)}


def _shows(part: str) -> bool:
    return "<picture>" in part or TABLE_MARK in part


def picture_file(name: str, form: str, kind: str = "png") -> str:
    """The file of a figure in its `wide` or `narrow` form."""
    return f"{name}.{kind}" if form == "wide" else f"{name}_{form}.{kind}"


def picture(text: str, name: str, folder: str = "") -> str:
    """A picture in Markdown, whose narrow form is shown where the page is; `text` stands in for it."""
    wide, narrow = (folder + picture_file(name, form) for form in ("wide", "narrow"))
    return (
        f'<picture><source media="(max-width: 620px)" srcset="{narrow}">'
        f'<img src="{wide}" alt="{escape(text)}"></picture>'
    )


def facts_line(s: Shown) -> str:
    if s.state == "no bundle":
        return s.facts
    return f"{s.facts} Redraw: `{s.redraw}`; run it yourself: `{s.rerun}`."


def index(out: Path) -> str:
    """The list of papers and of how each figure stands, from the pages that there are."""
    lines = [
        f"# {INDEX_TITLE}",
        "",
        "Figures of papers, redrawn from runs of this harness. Each figure states the runs and tests behind it.",
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
            else f"{paper.title} (`{invocation('figures', paper=name)}`)"
        )
        lines += [f"## {title}", "", "| figure | study | drawn | verdict |", "|---|---|---|---|"]
        for f in figures:
            said = said_of.partition(f"## {f.heading}\n")[2].partition("\n## ")[0]
            word = "draft" if DRAFT in said else "yes"
            place = f"{name}.md#{anchor(f.heading)}" if TABLE_MARK in said else f"{name}/{f.name}.png"
            cell = f"[{word}]({place})" if _shows(said) else "no bundle yet"
            lines.append(f"| {f.heading} | `{f.entry.study}` | {cell} | {standing_on(said)} |")
        lines.append("")
    own = sorted(out.glob("*/README.md"))  # studies with a page of their own making
    if own:
        titles = [path.read_text(encoding="utf-8").partition("# ")[2].partition("\n")[0] for path in own]
        lines += ["## Studies of our own", ""]
        lines += [f"- [{title}]({path.parent.name}/README.md)" for title, path in zip(titles, own, strict=True)]
    return "\n".join(lines).rstrip() + "\n"


def anchor(heading: str) -> str:
    """What a link to a heading of Markdown is called."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def html(
    paper: Paper,
    name: str,
    shown: Sequence[Shown],
    inline: Mapping[str, Mapping[str, str]],
    sheets: Mapping[str, Sheet],
) -> str:
    """The page of a paper as one file; `inline` holds each figure's two SVG elements, `sheets` its tables."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    entries = []
    for s in shown:
        # Only the rewritten SVG and the tables are trusted as markup.
        forms = {form: Markup(svg) for form, svg in inline.get(s.figure.name, {}).items()}
        entries.append(
            {
                "name": s.figure.name,
                "heading": s.figure.heading,
                "entry": s.figure.entry,
                "forms": forms,
                "sheet": Markup(sheets[s.figure.name].html()) if s.figure.name in sheets else "",
                "verdict": standing(s),
                "saw": s.reading.saw,
                "tests": test_rows(s.reading),
                "state": s.state,
                "redraw": s.redraw,
                "rerun": s.rerun,
                "facts": re.sub("`", "", s.facts),
                "files": f"{name}/{s.figure.name}",
            }
        )
    return environment.get_template("gallery.html.j2").render(
        paper=paper, figures=entries, version=__version__, css=Markup((PAGE / "page.css").read_text(encoding="utf-8"))
    )
