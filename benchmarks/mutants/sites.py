"""The places where one small change makes a mutant, and a fixed draw from them."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.source import Source

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

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        if source[self.start : self.end] != self.before.encode():
            raise ValueError(f"{self.path} has changed since the mutants were drawn")
        return source[: self.start] + self.after.encode() + source[self.end :]


def draw(root: Path, packages: Sequence[str], *, seed: int, count: int, only: Sequence[str] = ()) -> list[Mutant]:
    """Draw `count` mutants: the same for the same sources and seed, in the order of files and lines.

    With `only` they are of files whose path contains one of these texts.
    """
    paths = [path for package in packages for path in sorted((root / package).rglob("*.py"))]
    chosen = [path for path in paths if not only or any(text in path.relative_to(root).as_posix() for text in only)]
    sites = [one for path in chosen for one in mutants(root, path)]
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
    source = Source(path.relative_to(root).as_posix(), path.read_bytes())
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                for inner in _walk(statement):
                    yield from _changes(source, inner)


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
        compile(mutant.apply(source), mutant.path, "exec")
    except SyntaxError:
        return False
    return True


def _changes(source: Source, node: ast.AST) -> Iterator[Mutant]:
    """Yield the mutants of one node."""
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [left, *comparators]
            for place, op in enumerate(ops):
                yield from _between(source, sides[place], sides[place + 1], *_COMPARE[type(op)])
        case ast.BoolOp(op=op, values=values):
            words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
            yield from _between(source, values[0], values[1], *words)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            yield from _between(source, left, right, *_ARITHMETIC[type(op)])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _mutant(source, node, f"({source.text(operand)})")
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield _mutant(source, test, f"(not ({source.text(test)}))")
        case ast.Constant(value=bool() as value):
            yield _mutant(source, node, str(not value))
        case ast.Constant(value=int() as value):
            yield _mutant(source, node, str(value + 1))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _mutant(source, value, "None")
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield _mutant(source, node, "pass")
        case ast.Break() | ast.Continue():
            yield _mutant(source, node, "continue" if isinstance(node, ast.Break) else "break")


def _between(source: Source, left: ast.expr, right: ast.expr, before: str, after: str) -> Iterator[Mutant]:
    """Change the operator that stands between two operands, parentheses left as they are."""
    start, end = source.end(left), source.start(right)
    gap = source.data[start:end].decode()
    place = gap.find(before)
    if place >= 0 and "#" not in gap[:place]:
        at = start + len(gap[:place].encode())
        yield Mutant(source.path, left.end_lineno or left.lineno, at, at + len(before), before, after)


def _mutant(source: Source, node: ast.expr | ast.stmt, after: str) -> Mutant:
    return Mutant(source.path, node.lineno, source.start(node), source.end(node), source.text(node), after)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return f"`{line}`" if len(line) <= 60 else f"`{line[:57]}...`"
