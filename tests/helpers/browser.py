"""Pages as a parser splits them, and as a browser has them after their script has run."""

from __future__ import annotations

import html.parser
import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(html.parser.HTMLParser):
    """A page as a browser splits it: every element with its attributes, and every text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def in_browser(path: Path, choice: str, profile: Path, *flags: str) -> Page:
    """The page as the browser has it after its script has run with `choice` in the address."""
    assert CHROMIUM is not None
    quiet = (
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--window-size=1600,1200",
    )
    command = [CHROMIUM, "--headless", "--no-sandbox", *quiet, *flags, f"--user-data-dir={profile}", "--dump-dom"]
    done = subprocess.run([*command, f"{path.as_uri()}#{choice}"], capture_output=True, text=True, timeout=90)
    return Page(done.stdout)
