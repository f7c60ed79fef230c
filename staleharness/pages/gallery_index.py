"""Index of the gallery as one HTML page: every figure with its verdict, and links to the leaderboard and the
methods."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from .page_parts import anchor, picture_file, prose, read_page, read_template, sections_on_page, shell
from .paper_figure_specs import paper_names, read_paper
from .paper_verdict_summary import conclusion_on_page
from .verdict_text import verdict_on_page

TITLE = "Gallery of stale data"
PAGES = (  # beside the gallery; linked where they exist
    ("leaderboard.html", "Leaderboard", "every method on every track, with formula, curves and runs"),
    ("corrections.md", "Which corrections survive", "each study tested by its own rules"),
    ("staleness_budgets.md", "Staleness budgets", "what each method keeps at each lag"),
    ("methods.md", "Methods", "the map of methods, the symbols and what options share"),
    ("figures.md", "How verdicts are made", "parts of claims, tests and corrections"),
)
NO_SENTENCE = re.compile(r"^(?:<!--.*?-->|\||#|\s*$)")  # lines of a method's page: comment, table, heading or blank


def index_page(out: Path) -> str:
    """HTML of the index of the gallery in the folder `out`, with links to the pages that exist now."""
    papers = [_paper(name, out) for name in paper_names()]
    pages = [(f"../{name}", title, about) for name, title, about in PAGES if (out.parent / name).is_file()]
    return read_template("index.html.j2").render(
        **shell(), title=TITLE, papers=papers, studies=study_pages(out), pages=pages, methods=_methods(out.parent)
    )


def _paper(name: str, out: Path) -> dict[str, Any]:
    paper, figures = read_paper(name)
    sections = sections_on_page(out / name / "evidence.md")
    html = f"{name}.html" if (out / f"{name}.html").is_file() else ""
    rows = []
    for f in figures:
        section = sections.get(f.heading, "")
        link = f"{html}#{f.name}" if html else f"{name}/evidence.md#{anchor(f.heading)}"
        drawing = f"{name}/{picture_file(f.name)}"
        rows.append(
            {
                "heading": f.heading,
                "question": f.entry.question,
                "verdict": verdict_on_page(section) if section else "not drawn yet",
                "link": link if section else "",
                "picture": drawing if (out / drawing).is_file() else "",
            }
        )
    counts = Counter(row["verdict"] for row in rows)
    return {
        "name": name,
        "title": paper.title,
        "link": html or (f"{name}.md" if sections else ""),
        "conclusion": prose(conclusion_on_page(read_page(out / f"{name}.md"))),
        "counts": sorted(counts.items(), key=lambda item: (-item[1], item[0])),
        "rows": rows,
    }


def study_pages(out: Path) -> dict[str, str]:
    """Link -> title of our own studies, each of which has a page in the folder of the gallery."""
    pages = {f"{path.parent.name}/README.md": read_page(path) for path in sorted(out.glob("*/README.md"))}
    return {link: text.partition("# ")[2].partition("\n")[0] for link, text in pages.items()}


def _methods(docs: Path) -> list[dict[str, str]]:
    """Pages of methods in the folder of the documentation: name and first sentence."""
    pages = []
    for path in sorted((docs / "methods").glob("*.md")):
        lines = path.read_text(encoding="utf-8").splitlines()
        about = next((line for line in lines if not NO_SENTENCE.match(line)), "")
        if path.stem != "README":
            pages.append({"link": f"../methods/{path.name}", "name": path.stem, "about": about.replace("`", "")})
    return pages
