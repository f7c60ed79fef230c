"""Parts that HTML pages share: templates, style, script and the policy that allows no other."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template


PAGE = Path(__file__).with_name("templates")  # templates, styles and scripts
SCRIPTS = ("page.js", "figures.js")


def read_template(name: str) -> Template:
    """Template of this folder; it escapes all that is no `Markup`, and refuses names that it is not given."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def shell(*styles: str) -> dict[str, Any]:
    """{css, script, script_hash, version} for a template: page.css and then `styles`, and the script with its hash."""
    from markupsafe import Markup

    css = "".join(_read(name) for name in ("page.css", *styles))
    script = "".join(_read(name) for name in SCRIPTS)
    sha = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {"css": Markup(css), "script": Markup(script), "script_hash": f"sha256-{sha}", "version": __version__}


def _read(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")
