"""The names that the source writes onto tapes, read from the source itself.

A writer is a call such as `event(NAME, {...})`. Its name may be a literal, a constant of any module, or a local
variable that is one of a few literals; what cannot be told from the source is listed as open.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

WRITERS = frozenset({"event", "append_event", "anchor", "handoff", "handoff_after_results", "error"})
"""Functions whose first argument is the name of an event or anchor, or the kind of an error."""
_WRITERS = re.compile(rf"\b({'|'.join(WRITERS)})\(")
"""What stands in a file with a call of one; the others need not be parsed."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Written:
    """What is written: names with the literal keys of their data, by writer; `open` are places that pass a name on."""

    names: dict[str, set[str]] = field(default_factory=dict)
    errors: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)


@cache
def written(root: Path, packages: tuple[str, ...]) -> Written:
    """Everything these packages write."""
    texts = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for package in packages
        for path in sorted((root / package).rglob("*.py"))
    }

    @cache
    def parse(place: str) -> ast.Module:
        return ast.parse(texts[place])

    @cache
    def own(place: str) -> dict[str, str]:
        return _constants(parse(place)) if place in texts else {}

    found = Written()
    for place, text in texts.items():
        if not _WRITERS.search(text):
            continue
        tree = parse(place)
        constants = own(place) | _imported(tree, own)
        for function, call in _calls(tree):
            _take(found, call, function, constants, f"{place}:{function.name if function else ''}")
    return found


def _take(found: Written, call: ast.Call, function: Function | None, constants: Mapping[str, str], place: str) -> None:
    writer = _name_of(call.func)
    names = _texts(call.args[0], function, constants) if call.args else set()
    if not names:
        found.open.add(place)
    elif writer == "error":
        found.errors |= names
    else:
        keys = _keys(call.args[1], function) if len(call.args) > 1 else set()
        for name in names:
            found.names.setdefault(name, set()).update(keys)


def _calls(tree: ast.Module) -> Iterator[tuple[Function | None, ast.Call]]:
    """Each call of a writer with the innermost function around it."""

    def walk(node: ast.AST, function: Function | None) -> Iterator[tuple[Function | None, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inside = child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            if isinstance(child, ast.Call) and _name_of(child.func) in WRITERS and not _is_logging(child.func):
                yield inside, child
            yield from walk(child, inside)

    yield from walk(tree, None)


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_logging(function: ast.expr) -> bool:
    """`log.error(...)` and `parser.error(...)` write no entry."""
    return isinstance(function, ast.Attribute) and function.attr == "error" and _name_of(function.value) != "make"


def _texts(node: ast.expr, function: Function | None, constants: Mapping[str, str]) -> set[str]:
    """The texts an expression may be, or nothing where the source does not tell."""
    match node:
        case ast.Constant(value=str(text)):
            return {text}
        case ast.IfExp(body=body, orelse=orelse):
            parts = [_texts(body, function, constants), _texts(orelse, function, constants)]
            return parts[0] | parts[1] if all(parts) else set()
        case ast.Name(id=name):
            local = _assigned(function, name)
            if local is not None:
                return _texts(local, function, constants)
            return {constants[name]} if name in constants else set()
    return set()


def _keys(node: ast.expr, function: Function | None) -> set[str]:
    """The literal keys of a dict display, or of the one a local variable was given."""
    if isinstance(node, ast.Name):
        local = _assigned(function, node.id)
        return _keys(local, function) if isinstance(local, ast.Dict) else set()
    if not isinstance(node, ast.Dict):
        return set()
    return {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def _assigned(function: Function | None, name: str) -> ast.expr | None:
    """What a local variable is first given."""
    for node in ast.walk(function) if function else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return value
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                return value
    return None


def _constants(tree: ast.Module) -> dict[str, str]:
    """The text constants of a module, by name."""
    found = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                found[name] = text
    return found


def _imported(tree: ast.Module, own: Callable[[str], Mapping[str, str]]) -> dict[str, str]:
    """The text constants that a module imports from others."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            theirs = own(f"{node.module.replace('.', '/')}.py")
            found |= {one.asname or one.name: theirs[one.name] for one in node.names if one.name in theirs}
    return found
