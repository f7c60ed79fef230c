"""Form of a plugin's source that published ids hash: earlier names of imports, and no option added since."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

OPERATORS: dict[type[ast.cmpop | ast.unaryop], Callable[..., Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
CONSTANT = (ast.Constant, ast.Tuple, ast.List, ast.Compare, ast.UnaryOp, ast.cmpop, ast.unaryop, ast.expr_context)
EARLIER_NAMES = {
    "staleharness.trace.read_replay": "read_trace",
    "staleharness.base.reference_results.portable_name": "name_of",
    "staleharness.base.reference_results.results_path": "published",
    "staleharness.errors.shorten": "shortened",
}
"""Names of the package that plugin files import, as `module.name`, and the earlier name that published ids hash."""


class PublishedForm(ast.NodeTransformer):
    """Rewrites a file as published ids know it: earlier names of imports, and no option added since.

    In a class that declares or inherits `x: float = later(0.0, before=0.0)`, `self.x` becomes 0.0 unless `x` is in
    `active`. Comparisons, `not`, `and`, `or`, `if` and `... if ... else ...` that read it are evaluated as far as its
    value decides them, and `self.require("x", ...)` is left out. The declaration counts without its default, and only
    where `x` is in `active`.
    """

    def __init__(self, active: frozenset[str]) -> None:
        self.active = active
        self.names: dict[str, str] = {}  # a name in the file -> the name that counts
        self.modules: dict[str, str] = {}  # a name in the file -> the module that it stands for
        self.later: dict[str, dict[str, Any]] = {}  # by class: option -> value before it was added
        self.values: dict[str, Any] = {}  # of the class being visited

    def visit_Import(self, node: ast.Import) -> ast.Import:
        self.modules |= {alias.asname: alias.name for alias in node.names if alias.asname}
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        for alias in node.names:
            name, path = alias.asname or alias.name, f"{node.module}.{alias.name}"
            self.modules[name] = path
            if path in EARLIER_NAMES and not alias.asname:
                self.names[name] = EARLIER_NAMES[path]
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        outer = self.values
        defaults: dict[str, Any] = {}
        for base in node.bases:
            defaults |= self.later.get(base.id, {}) if isinstance(base, ast.Name) else {}
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                defaults.pop(statement.target.id, None)
                defaults |= _later_default(statement, statement.target.id)
        self.later[node.name] = defaults
        self.values = {name: value for name, value in defaults.items() if name not in self.active}
        self.generic_visit(node)
        self.values = outer
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if isinstance(node.target, ast.Name) and _later_default(node, node.target.id):
            if node.target.id in self.values:
                return None
            node.value = None
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name):
            if node.value.id == "self" and node.attr in self.values:
                return ast.Constant(self.values[node.attr])
            if node.value.id in self.modules:
                node.attr = EARLIER_NAMES.get(f"{self.modules[node.value.id]}.{node.attr}", node.attr)
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        match node.value:
            case ast.Call(func=ast.Attribute(attr="require"), args=[ast.Constant(value=str(name)), *_]) if (
                name in self.values
            ):
                return None
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare | ast.UnaryOp) -> ast.AST:
        reads = self._reads(node)
        self.generic_visit(node)
        if not reads or not all(isinstance(part, CONSTANT) for part in ast.walk(node)):
            return node
        return ast.Constant(_constant_value(node))

    visit_UnaryOp = visit_Compare

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        reads = self._reads(node)
        self.generic_visit(node)
        if not reads:
            return node
        deciding, values = isinstance(node.op, ast.Or), []
        for value in node.values:
            values.append(value)
            if isinstance(value, ast.Constant):
                if bool(value.value) is deciding:
                    break
                if value is not node.values[-1]:
                    values.pop()
        return values[0] if len(values) == 1 else ast.BoolOp(node.op, values)

    def visit_If(self, node: ast.If | ast.IfExp) -> ast.AST | list[ast.stmt]:
        reads = self._reads(node.test)
        self.generic_visit(node)
        if reads and isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node

    visit_IfExp = visit_If

    def _reads(self, node: ast.AST) -> bool:
        """Return whether an expression reads an option that is replaced by its value."""
        attributes = (part for part in ast.walk(node) if isinstance(part, ast.Attribute))
        return any(isinstance(a.value, ast.Name) and a.value.id == "self" and a.attr in self.values for a in attributes)


def _constant_value(node: ast.AST) -> Any:
    """Return the value of comparisons and signs of constants."""
    match node:
        case ast.Tuple(elts=elements):
            return tuple(map(_constant_value, elements))
        case ast.List(elts=elements):
            return list(map(_constant_value, elements))
        case ast.UnaryOp(op=op, operand=operand):
            return OPERATORS[type(op)](_constant_value(operand))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            values = [_constant_value(x) for x in (left, *comparators)]
            return all(OPERATORS[type(op)](*pair) for op, pair in zip(ops, pairwise(values), strict=True))
        case _:
            return ast.literal_eval(node)


def _later_default(node: ast.AnnAssign, name: str) -> dict[str, Any]:
    """Return {name: before} of `name: type = later(default, before=...)`, and nothing of another declaration."""
    match node.value:
        case ast.Call(func=ast.Name(id="later"), keywords=[ast.keyword(arg="before", value=before)]):
            return {name: ast.literal_eval(before)}
    return {}
