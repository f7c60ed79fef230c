"""What the gallery says: the page of a paper as Markdown and as one HTML file, and the list of all papers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .. import __version__
from .papers import Entry, Paper, experiments, read_paper
from .report import PAGE
from .shown import DRAFT, Shown

VERDICTS = {
    "agree": "Agrees with the paper",
    "disagree": "Disagrees with the paper",
    "cannot tell": "Cannot tell at this scale",
    "": "No claim to check",
}
UNSEEN = "Not looked at yet"


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
    return f"{s.facts} Redraw: `{s.redraw}`; run it yourself: `{s.rerun}`."


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
    own = sorted(out.glob("*/README.md"))  # studies with a page of their own making
    if own:
        titles = [path.read_text(encoding="utf-8").partition("# ")[2].partition("\n")[0] for path in own]
        lines += ["## Studies of our own", ""]
        lines += [
            f"- [{title}]({path.parent.name}/README.md)" for title, path in zip(titles, own, strict=True)
        ]
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
