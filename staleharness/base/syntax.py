"""What a Python file says, in one canonical text: names, values and structure, and nothing that only a reader sees."""

from __future__ import annotations

import ast
import functools
import hashlib
import warnings

SAYS_NOTHING = (ast.Import, ast.ImportFrom, ast.Pass)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
HOLLOW = (ast.If, ast.With, ast.Try)  # they say nothing where nothing is said in them


@functools.lru_cache(maxsize=256)
def meaning_hash(source: bytes) -> str:
    """16 hex digits of what a file says: layout, comments, docstrings and import statements do not count, and the
    Python that reads it does not matter. What is no Python counts byte by byte."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a stray backslash was said when the file was imported
            content = canonical(ast.parse(source)).encode()
    except (SyntaxError, ValueError):
        content = source
    return hashlib.sha256(content).hexdigest()[:16]


def canonical(part: object) -> str:
    """A part of a syntax tree as text. `ast.dump` would do, but its text differs between versions of Python: what is
    empty is left out, and so is the `kind` of a text, which says whether it was written u""."""
    if isinstance(part, ast.Constant):
        return f"{type(part.value).__name__} {part.value!a}"
    if isinstance(part, ast.AST):
        fields = [(name, _counted(part, value)) for name, value in ast.iter_fields(part)]
        inside = (f"{name}={canonical(value)}" for name, value in fields if value is not None and value != [])
        return f"{type(part).__name__}({', '.join(inside)})"
    if isinstance(part, list):
        return f"[{', '.join(map(canonical, part))}]"
    return ascii(part)


def _counted(node: ast.AST, value: object) -> object:
    """A field of a node without what does not count: docstrings, statements that say nothing, empty texts of an
    f-string (which Python 3.12 alone writes down)."""
    if not isinstance(value, list):
        return value
    if isinstance(node, DOCUMENTED) and value is node.body and ast.get_docstring(node, clean=False) is not None:
        value = value[1:]
    if isinstance(node, ast.JoinedStr):
        return [item for item in value if not (isinstance(item, ast.Constant) and item.value == "")]
    return [item for item in value if not (isinstance(item, ast.stmt) and _says_nothing(item))]


def _says_nothing(statement: ast.stmt) -> bool:
    """Whether it and all that is inside it are imports, or `if`, `with` and `try` around them."""
    inside = (node for node in ast.walk(statement) if isinstance(node, ast.stmt))
    return all(isinstance(node, SAYS_NOTHING + HOLLOW) for node in inside)
