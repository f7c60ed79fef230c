"""The documentation builds as a site without warnings, loads nothing from a network and has no dead link."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from needs import needs_extra

from staleharness import batch

ROOT = Path(__file__).resolve().parents[2]
pytestmark = needs_extra("docs")


class Links(HTMLParser):
    """Addresses that a page links to, those that it loads, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        if identifier := values.get("id") or values.get("name"):
            self.anchors.add(identifier)
        address = values.get("href") or values.get("src")
        if not address or address.startswith("data:"):
            return
        (self.links if tag == "a" else self.loads).append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", "docs/site/mkdocs.yml", "-d", str(out)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path] = Links()
        found[path].feed(path.read_text("utf-8"))
    return found


def test_pages_load_nothing_from_a_network(pages: dict[Path, Links]) -> None:
    assert len(pages) > 60
    assert not [(path.name, load) for path, page in pages.items() for load in page.loads if "://" in load]


def test_every_link_within_the_site_leads_somewhere(site: Path, pages: dict[Path, Links]) -> None:
    dead = []
    for path, page in pages.items():
        for link in page.links + page.loads:
            address, anchor = urldefrag(link)
            if re.match(r"[a-z]+:", link):
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (anchor and target in pages and unquote(anchor) not in pages[target].anchors):
                dead.append((path.relative_to(site).as_posix(), link))
    assert not dead


def test_every_plot_has_a_narrow_form_and_a_description(site: Path, pages: dict[Path, Links]) -> None:
    found = 0
    for path in pages:
        for before, image in re.findall(r'(<source [^>]*>)?\s*(<img [^>]*src="[^"]*\.png"[^>]*>)', path.read_text()):
            assert "_narrow.png" in before and re.search(r' alt="[^"]+"', image), (path.name, image)
            found += 1
    assert found > 50


def test_the_interactive_leaderboard_is_beside_its_page(site: Path, pages: dict[Path, Links]) -> None:
    assert "leaderboard_table.html" in pages[site / "leaderboard.html"].links
    whole = pages[site / "leaderboard_table.html"]
    text = (site / "leaderboard_table.html").read_text()
    assert "methods/ppo_clip.html" in whole.links and "data-sortable" in text and "](" not in text


@pytest.mark.parametrize("name", ["Decisions", "Trajectories", "Values", "PolicyLoss"])
def test_the_reference_lists_every_field_of_what_a_method_is_given(pages: dict[Path, Links], name: str) -> None:
    (reference,) = [page for path, page in pages.items() if path.name == "reference.html"]
    fields = [f"staleharness.batch.{name}.{field.name}" for field in dataclasses.fields(getattr(batch, name))]
    assert [field for field in fields if field not in reference.anchors] == []
