"""What the generated pages say of a field of a dataclass: the comment beside it, and a value as it is typed."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from typing import Any


def comments(cls: type) -> dict[str, str]:
    """Name -> the comment on the lines of a field that the class itself declares, or else alone on the line above."""
    source = textwrap.dedent(inspect.getsource(cls))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    by_line = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    alone = {i for i, line in enumerate(source.splitlines(), 1) if line.lstrip().startswith("#")}
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            beside = [by_line[i] for i in range(node.lineno, (node.end_lineno or 0) + 1) if i in by_line]
            above = [by_line[node.lineno - 1]] if node.lineno - 1 in alone else []
            if beside or above:
                found[node.target.id] = " ".join(beside or above)
    return found


def typed(value: Any) -> str:
    """As it is written behind `=`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    return f"{value:g}" if isinstance(value, float) else str(value)
