"""Pages as a parser splits them, and as a browser has them after their script has run."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import re
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
    done = subprocess.run([*command, f"{path.as_uri()}#{choice}"], capture_output=True, text=True, timeout=600)
    return Page(done.stdout)


def assert_only_its_own_script(text: str, page: Page) -> None:
    """The page loads nothing, and its policy allows no script but the one in it."""
    policy = next(a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    sha = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy is not None and policy.startswith("default-src 'none'") and f"script-src 'sha256-{sha}'" in policy
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form") and "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"url\((?!#)", text)


def unique_ids(page: Page) -> set[str | None]:
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    return set(ids)
