"""A page in a browser while a second script, which the page's own policy would refuse, does what a person would."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from browser import in_browser

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def press(text: str, folder: Path, script: str, width: int = 1600) -> Any:
    """Return of `script` as JSON, after it ran at the end of the page in a window of this width."""
    before, after = "parent.document.title = '@@' + JSON.stringify((() => {", "})()) + '@@';"
    page = POLICY.sub("", text).replace("</body>", f"<script>{before} {script} {after}</script></body>")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "page.html"
    frame = f'<iframe style="width:{width}px;height:1200px" srcdoc="{html.escape(page, quote=True)}"></iframe>'
    path.write_text(f"<title></title>{frame}", encoding="utf-8")
    shown = in_browser(path, "", folder / "profile", "--virtual-time-budget=3000")
    found = re.search(r"@@(.*?)@@", " ".join(shown.texts), re.DOTALL)
    assert found, "the script did not come to its end"
    return json.loads(found[1])
