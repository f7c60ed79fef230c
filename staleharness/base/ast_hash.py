"""Hash of what a Python file says: names, values and structure, without layout, comments, docstrings and imports."""

from __future__ import annotations

import ast
import functools
import hashlib
import warnings

from .hash_compatibility import PublishedForm

IGNORABLE = (ast.Import, ast.ImportFrom, ast.Pass)
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
WRAPPERS = (ast.If, ast.With, ast.Try)  # ignored where all that they hold is ignored


@functools.lru_cache(maxsize=256)
def meaning_hash(source: bytes, active: frozenset[str] = frozenset()) -> str:
    """Return 16 hex digits of what a file says, the same under every version of Python.

    Layout, comments, docstrings and import statements do not count. Options that were added `later` count where their
    names are in `active`; the others are replaced by their value `before`, and code that this value decides is left
    out (`PublishedForm`). A file that is not Python counts byte by byte.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python has warned of a stray backslash when the file was imported
            content = canonical(PublishedForm(active).visit(ast.parse(source))).encode()
    except (SyntaxError, ValueError):
        content = source
    return hashlib.sha256(content).hexdigest()[:16]


def canonical(part: object) -> str:
    """Return a part of a syntax tree as text. Unlike `ast.dump`, whose text differs between versions of Python, it
    leaves out what is empty and the `kind` of a text, which says whether it was written u""."""
    if isinstance(part, ast.Constant):
        return f"{type(part.value).__name__} {part.value!a}"
    if isinstance(part, ast.AST):
        fields = [(name, _without_ignored(part, value)) for name, value in ast.iter_fields(part)]
        inside = (f"{name}={canonical(value)}" for name, value in fields if value is not None and value != [])
        return f"{type(part).__name__}({', '.join(inside)})"
    if isinstance(part, list):
        return f"[{', '.join(map(canonical, part))}]"
    return ascii(part)


def _without_ignored(node: ast.AST, value: object) -> object:
    """Return a field of a node without docstrings, ignored statements, and the empty texts of an f-string (which only
    Python 3.12 and later write down)."""
    if not isinstance(value, list):
        return value
    if isinstance(node, WITH_DOCSTRING) and value is node.body and ast.get_docstring(node, clean=False) is not None:
        value = value[1:]
    if isinstance(node, ast.JoinedStr):
        return [item for item in value if not (isinstance(item, ast.Constant) and item.value == "")]
    return [item for item in value if not (isinstance(item, ast.stmt) and _is_ignored(item))]


def _is_ignored(statement: ast.stmt) -> bool:
    """Return whether a statement and all that it holds are imports, or `if`, `with` and `try` around them."""
    inside = (node for node in ast.walk(statement) if isinstance(node, ast.stmt))
    return all(isinstance(node, IGNORABLE + WRAPPERS) for node in inside)
