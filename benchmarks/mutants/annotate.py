"""Puts notes into a source file: each calls `_note_reached(NUMBER)` where a place is reached.

An expression E becomes `(_note_reached(17), (E))[1]`, a simple statement S becomes `_note_reached(17); S`. What cannot be
wrapped, such as a constant in a `case`, is noted by what encloses it, at last by its function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.mutants.reached import NOTE
from benchmarks.mutants.source import Source

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BEFORE_ALL = 1 << 40
"""As if it ended behind everything: it comes before what begins at the same byte."""


@dataclass(frozen=True, slots=True)
class _Insertion:
    """Text to put in front of a byte.

    Attributes:
        until: the end of what the text begins; 0 if it ends something.
    """

    at: int
    until: int
    text: str


def annotate(path: str, data: bytes, places: Mapping[int, tuple[int, int]], whole: int) -> bytes:
    """Return the source with notes.

    Args:
        path: for messages.
        data: the source.
        places: number of the note -> the byte range that it is about.
        whole: the number of the note that every function of the file begins with.
    """
    source = Source(path, data)
    insertions = [
        one
        for node in ast.walk(source.tree)
        if isinstance(node, _FUNCTIONS)
        for one in _begin_function(source, node, whole)
    ]
    meant = ast.dump(source.tree)
    for number, (start, end) in places.items():
        insertions += _note(source, meant, number, start, end)
    changed = _insert(data, insertions)
    if not _means(changed, meant):
        raise RuntimeError(f"{path}: notes would change what it does")
    return changed


def _note(source: Source, meant: str, number: int, start: int, end: int) -> list[_Insertion]:
    """Note the smallest part that encloses a range and can be noted without a change of anything else."""
    nodes = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.expr | ast.stmt) and source.start(node) <= start and end <= source.end(node)
    ]
    for node in sorted(nodes, key=lambda one: source.end(one) - source.start(one)):
        insertions = [*_enclose(source, node, number)]
        if insertions and _means(_insert(source.data, insertions), meant):
            return insertions
    raise RuntimeError(f"{source.path}: nothing around byte {start} can be noted")


def _enclose(source: Source, node: ast.expr | ast.stmt, number: int) -> Iterator[_Insertion]:
    if isinstance(node, ast.expr):
        start, end = source.start(node), source.end(node)
        yield _Insertion(start, end, f"({NOTE}({number}), (")
        yield _Insertion(end, 0, "))[1]")
    elif isinstance(node, _FUNCTIONS):
        yield from _begin_function(source, node, number)
    elif not hasattr(node, "body") and not isinstance(node, ast.Match):
        yield _Insertion(source.start(node), _BEFORE_ALL, f"{NOTE}({number}); ")


def _begin_function(source: Source, node: ast.FunctionDef | ast.AsyncFunctionDef, number: int) -> Iterator[_Insertion]:
    """Note at the beginning of a function, behind its docstring."""
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        yield _Insertion(source.end(first), 0, f"; {NOTE}({number})")
    elif hasattr(first, "body") or isinstance(first, ast.Match):  # nothing can stand before it in its line
        line = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))])
        indent = " " * first.col_offset
        yield _Insertion(source.start_of_line(line), _BEFORE_ALL, f"{indent}{NOTE}({number})\n")
    else:
        yield _Insertion(source.start(first), _BEFORE_ALL, f"{NOTE}({number}); ")


def _insert(data: bytes, insertions: Iterable[_Insertion]) -> bytes:
    """Ends come before beginnings at the same byte, and of those the one that encloses the others."""
    parts, last = [], 0
    for one in sorted(insertions, key=lambda one: (one.at, one.until > 0, -one.until)):
        parts += [data[last : one.at], one.text.encode()]
        last = one.at
    return b"".join([*parts, data[last:]])


def _means(data: bytes, meant: str) -> bool:
    """Whether this source is the same program once its notes are taken out."""
    try:
        tree = ast.parse(data)
    except SyntaxError:
        return False
    return ast.dump(_WithoutNotes().visit(tree)) == meant


class _WithoutNotes(ast.NodeTransformer):
    """Takes the notes out of a tree."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(
                value=ast.Tuple(elts=[ast.Call(func=ast.Name(id=name)), noted]),
                slice=ast.Constant(value=1),
                ctx=ast.Load(),
            ) if name == NOTE:
                inner: ast.AST = self.visit(noted)
                return inner
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        match node.value:
            case ast.Call(func=ast.Name(id=name)) if name == NOTE:
                return None
        return self.generic_visit(node)
