"""The places where one small change makes a mutant, and a fixed draw from them."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}
_LOGGING = frozenset({"debug", "info", "warning", "error", "exception"})


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file.

    Attributes:
        path: the file, relative to the project's root, with forward slashes.
        line: where the change is, counted from 1.
        start, end: the byte range that is replaced.
        before, after: what stands there, and what takes its place.
    """

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """One line for a table."""
        return f"{self.path}:{self.line} {_short(self.before)} -> {_short(self.after)}"

    def apply(self, root: Path) -> bytes:
        """Write the changed file below `root`; return the bytes it had."""
        file = root / self.path
        source = file.read_bytes()
        if source[self.start : self.end] != self.before.encode():
            raise ValueError(f"{self.path} has changed since the mutants were drawn")
        file.write_bytes(source[: self.start] + self.after.encode() + source[self.end :])
        return source


def draw(root: Path, packages: Sequence[str], *, seed: int, count: int) -> list[Mutant]:
    """Draw `count` mutants: the same for the same sources and seed, in the order of files and lines."""
    paths = [path for package in packages for path in sorted((root / package).rglob("*.py"))]
    sites = [one for path in paths for one in mutants(root, path)]
    random.Random(seed).shuffle(sites)
    drawn: list[Mutant] = []
    for one in sites:
        if len(drawn) == count:
            break
        if _compiles((root / one.path).read_bytes(), one):
            drawn.append(one)
    return sorted(drawn, key=lambda one: (one.path, one.start))


def mutants(root: Path, path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file.

    Only code inside functions is changed. Numbers and flags at module level are settings, annotations and docstrings
    do nothing, and what a program logs is for people to read.
    """
    source = path.read_bytes()
    file = _File(path.relative_to(root).as_posix(), source)
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                for inner in _walk(statement):
                    yield from file.changes(inner)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a statement; leave out functions inside it (met by themselves), annotations, docstrings and log calls."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assert | ast.Raise):
        return
    if isinstance(node, ast.Expr) and (isinstance(node.value, ast.Constant) or _is_logging(node.value)):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment"):
            continue
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, ast.AST):
                yield from _walk(inner)


def _is_logging(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=name)):
            return name in _LOGGING
    return False


def _compiles(source: bytes, mutant: Mutant) -> bool:
    try:
        compile(source[: mutant.start] + mutant.after.encode() + source[mutant.end :], mutant.path, "exec")
    except SyntaxError:
        return False
    return True


class _File:
    """One source file, to turn nodes into byte ranges."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def changes(self, node: ast.AST) -> Iterator[Mutant]:
        """Yield the mutants of one node."""
        match node:
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                sides = [left, *comparators]
                for place, op in enumerate(ops):
                    yield from self._between(sides[place], sides[place + 1], *_COMPARE[type(op)])
            case ast.BoolOp(op=op, values=values):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield from self._between(values[0], values[1], *words)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                yield from self._between(left, right, *_ARITHMETIC[type(op)])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._mutant(node, f"({self._text(operand)})")
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield self._mutant(test, f"(not ({self._text(test)}))")
            case ast.Constant(value=bool() as value):
                yield self._mutant(node, str(not value))
            case ast.Constant(value=int() as value):
                yield self._mutant(node, str(value + 1))
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield self._mutant(value, "None")
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield self._mutant(node, "pass")
            case ast.Break() | ast.Continue():
                yield self._mutant(node, "continue" if isinstance(node, ast.Break) else "break")

    def _between(self, left: ast.expr, right: ast.expr, before: str, after: str) -> Iterator[Mutant]:
        """Change the operator that stands between two operands, parentheses left as they are."""
        start, end = self._end(left), self._start(right)
        gap = self._source[start:end].decode()
        place = gap.find(before)
        if place >= 0 and "#" not in gap[:place]:
            at = start + len(gap[:place].encode())
            yield Mutant(self._path, left.end_lineno or left.lineno, at, at + len(before), before, after)

    def _mutant(self, node: ast.expr | ast.stmt, after: str) -> Mutant:
        return Mutant(self._path, node.lineno, self._start(node), self._end(node), self._text(node), after)

    def _text(self, node: ast.expr | ast.stmt) -> str:
        return self._source[self._start(node) : self._end(node)].decode()

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return f"`{line}`" if len(line) <= 60 else f"`{line[:57]}...`"
