"""Hash of a plugin's code: of its file, and of the user's files that it imports, directly or through each other.

A file counts by what it says: names, values and structure, without layout, comments, docstrings and imports.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .legacy_source_form import PublishedForm

PACKAGE_FOLDERS = {"site-packages", "dist-packages"}
"""Folders of installed packages, whose code does not count in run ids."""
LIBRARIES = {*sys.stdlib_module_names, "staleharness", "gymnasium", "numpy", "pandas", "torch", "transformers"}
"""Modules that built-in plugins import: they do not count wherever they lie, so that published ids hold everywhere."""
USUAL_MODULES = {"__future__", "abc", "collections.abc", "dataclasses", "numpy.typing", "staleharness", "typing"}
"""Modules, with those below `staleharness`, whose names stand for nothing else in any file."""
USUAL_ALIASES = {("numpy", "np"), ("pandas", "pd"), ("staleharness", "sh"), ("torch.nn.functional", "F")}
USUAL_NAMES = {("torch", "Tensor"), ("torch", "nn")}


class Import(NamedTuple):
    """One name of an import statement: `from ..module import name as alias`, or `import module as alias`."""

    level: int  # dots before the module
    module: str
    name: str
    alias: str


def code_hash(file: Path, active: frozenset[str] = frozenset(), bases: Sequence[Path] | None = None) -> str:
    """Return the hash of what a file says and of what the files say that its import statements find.

    These are the user's own, and for a file of an installed package those of the package too. Import statements that
    find one count as they are written; where the files lie does not. The hash of a file without such imports is its
    `meaning_hash`, which explains `active`.

    bases: of a user's plugin, the files of those that it derives from, which count too; and so do the imports that
    decide what a name in its files stands for (`naming_imports`).
    """
    files, lines = code_files(file), []
    for base in bases or ():
        files += [path for path in code_files(base) if path not in files]
    for path in files:
        source = path.read_bytes()
        lines.append(meaning_hash(source, active))
        imports = {statement: _targets(statement, path, files[0]) for statement in import_statements(source)}
        lines += [f"{[*x]}" for x in naming_imports(source) if bases is not None and not imports.get(x)]
        lines += [f"{[*x]} {[files.index(target) for target in targets]}" for x, targets in imports.items() if targets]
    return lines[0] if len(lines) == 1 else hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def code_files(file: Path) -> list[Path]:
    """Return a plugin's file, then the files of `code_hash` that it imports, directly or through each other."""
    files = [file.resolve()]
    for path in files:  # grows
        for statement in import_statements(path.read_bytes()):
            files += [x for x in _targets(statement, path, files[0]) if x not in files]
    return files


def _targets(statement: Import, importer: Path, plugin: Path) -> list[Path]:
    """Return the files that an import statement finds, of the user's own or of the plugin's package."""
    return [x for x in files_of(statement, importer) if package(x) in ("", package(plugin))]


def package(file: Path) -> str:
    """Return the name of the installed package that a file belongs to; empty for a file of the user's."""
    depths = [depth for depth, part in enumerate(file.parts[:-1]) if part in PACKAGE_FOLDERS]
    return file.parts[depths[-1] + 1] if depths else ""


def import_statements(source: bytes) -> tuple[Import, ...]:
    """Return the import statements of a file at any depth, sorted, without those of known libraries."""
    return tuple(x for x in _all_imports(source) if x.level or x.module.partition(".")[0] not in LIBRARIES)


def naming_imports(source: bytes) -> tuple[Import, ...]:
    """Return the import statements of a file at any depth that decide what a name in it stands for, sorted: with
    another module in the same place the file would say the same and mean something else. Without `import module`, names
    that mean the same in every file, and imports for type checkers."""
    nodes = list(ast.walk(_parse(source)))
    uses = {"*", *(node.id for node in nodes if isinstance(node, ast.Name))}
    checks = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")]
    for_types = {x for check in checks for statement in check.body for x in _imports(statement)}
    imports = (x for x in _all_imports(source) if not x.level and x not in for_types and _is_naming(x))
    return tuple(x for x in imports if (x.alias or x.name) in uses)


def _is_naming(statement: Import) -> bool:
    module, name, alias = statement.module, statement.name, statement.alias
    if not name:
        return alias not in ("", module) and (module, alias) not in USUAL_ALIASES
    is_usual = module in USUAL_MODULES or module.startswith("staleharness.") or (module, name) in USUAL_NAMES
    return alias not in ("", name) or not is_usual


@functools.lru_cache(maxsize=256)
def _all_imports(source: bytes) -> tuple[Import, ...]:
    return tuple(sorted(_imports(_parse(source))))


def _parse(source: bytes) -> ast.Module:
    """Parse a file; what is not Python has no statements."""
    with contextlib.suppress(SyntaxError, ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)
    return ast.Module([], [])


def _imports(tree: ast.AST) -> set[Import]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {Import(0, alias.name, "", alias.asname or "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {Import(node.level, node.module or "", x.name, x.asname or "") for x in node.names}
    return names


def files_of(statement: Import, importer: Path) -> list[Path]:
    """Return the Python files that an import statement of a file executes, from the outermost package inwards."""
    parts = [part for part in (*statement.module.split("."), statement.name) if part]
    if not statement.level:
        return module_files(parts, importer.parent)
    folder = importer.parents[min(statement.level, len(importer.parents)) - 1]
    package_file = folder / "__init__.py"
    return [*([package_file] if package_file.is_file() else []), *_walk(parts, folder)]


def module_files(parts: list[str], folder: Path | None = None) -> list[Path]:
    """Return the Python files of a module and of its packages, as far as there are any. Python's search finds them, or
    else they lie in the folder. Imports none."""
    return list(_walk(parts, folder, absolute=True))


def _walk(parts: list[str], folder: Path | None, absolute: bool = False) -> Iterator[Path]:
    """Find the files of nested modules, the first of them in a folder. absolute: ask Python first, where it need not
    import a package for the answer."""
    folders = [folder] if folder else []
    for depth, part in enumerate(parts):
        spec = None
        if absolute and (depth == 0 or ".".join(parts[:depth]) in sys.modules):
            with contextlib.suppress(Exception):  # of import hooks, and of modules without a specification
                spec = importlib.util.find_spec(".".join(parts[: depth + 1]))
        if spec:
            file, folders = Path(spec.origin or ""), [Path(x) for x in spec.submodule_search_locations or ()]
        else:
            packages = [place / part for place in folders]
            choices = (x for inner in packages for x in (inner / "__init__.py", inner.with_name(f"{part}.py")))
            file = next((path for path in choices if path.is_file()), Path())
            folders = [file.parent] if file.name == "__init__.py" else [] if file.name else packages
        if file.suffix == ".py" and file.is_file():
            yield file.resolve()


IGNORABLE = (ast.Import, ast.ImportFrom, ast.Pass)
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
    """Return a field of a node without ignored statements, and without the empty texts of an f-string (which only
    Python 3.12 and later write down)."""
    if not isinstance(value, list):
        return value
    if isinstance(node, ast.JoinedStr):
        return [item for item in value if not (isinstance(item, ast.Constant) and item.value == "")]
    return [item for item in value if not (isinstance(item, ast.stmt) and _is_ignored(item))]


def _is_ignored(statement: ast.stmt) -> bool:
    """Return whether a statement and all that it holds are docstrings, of fields too, or imports, or `if`, `with` and
    `try` around them."""
    inside = (node for node in ast.walk(statement) if isinstance(node, ast.stmt))
    return all(isinstance(node, IGNORABLE + WRAPPERS) or _is_docstring(node) for node in inside)


def _is_docstring(statement: ast.stmt) -> bool:
    """Return whether a statement is a text alone, which changes nothing that is computed."""
    text = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(text, ast.Constant) and isinstance(text.value, str)
