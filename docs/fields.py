"""Fields of a dataclass for the generated pages: their descriptions in the source, and values as users type them."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from typing import Any

WIDTH = 120  # characters of a line of source


def descriptions(cls: type) -> dict[str, str]:
    """Description of each field that the class itself declares: the comment on its lines, or else the text below it,
    or else the comment on the lines above."""
    source = textwrap.dedent(inspect.getsource(cls))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    by_line = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    alone = {i for i, line in enumerate(source.splitlines(), 1) if line.lstrip().startswith("#")}
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.ClassDef)
    texts = {}
    for node, following in zip(definition.body, [*definition.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = [by_line[i] for i in range(node.lineno, (node.end_lineno or 0) + 1) if i in by_line]
            if not lines and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                lines = [" ".join(str(following.value.value).split())]
            if not lines and node.lineno - 1 in alone:
                lines = _comment_above(source.splitlines()[: node.lineno - 1])
            if lines:
                texts[node.target.id] = " ".join(lines)
    return texts


def _comment_above(lines: list[str]) -> list[str]:
    """Return the comment that ends on the last line, in its lines: one goes on where the first word of the next would
    have made it too long."""
    *before, last = lines
    text = [last.lstrip(" #")]
    while before and before[-1].lstrip().startswith("#") and len(f"{before[-1]} {text[0].split()[0]}") > WIDTH:
        text.insert(0, before.pop().lstrip(" #"))
    return text


def option_text(value: Any) -> str:
    """Value as it is written after `=`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    return f"{value:g}" if isinstance(value, float) else str(value)
