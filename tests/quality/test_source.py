"""What no tool checks: module-level state, names of modules, and what must not stand in a file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, tracked

SOURCE = sorted(path for package in ("bubbot", "channels") for path in (ROOT / package).rglob("*.py"))
NOBODY_KNOWS = {"util", "utils", "helper", "helpers", "misc", "core", "base", "shared"}
"""Names of modules that say nothing about what is in them."""
MUTATING = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "reverse", "setdefault", "sort", "update",
}  # fmt: skip
MACHINE = re.compile("/" + r"(root|work|Users)/\w|/" + r"home/(?!ada\b|anna\b|me\b)\w")
"""Paths of somebody's machine. Those of ada, anna and me are made up, for tests and examples."""
REGISTRY = re.compile("pythonhosted" + r"\.org|\bpypi" + r"\.org|registry\." + r"npmjs|test\.pypi" + r"\.org")


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_module_is_called_by_a_name_that_says_nothing() -> None:
    assert [_shown(path) for path in SOURCE if {path.stem, path.parent.name} & NOBODY_KNOWS] == []


def _classes(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}


def test_a_name_is_that_of_one_class() -> None:
    """One noun, one type: who searches for a name finds one class."""
    where: dict[str, list[str]] = {}
    for path in SOURCE:
        for name in _classes(ast.parse(path.read_text())):
            where.setdefault(name, []).append(_shown(path))
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def _module_names(tree: ast.Module) -> set[str]:
    """What a module binds at its level, imports, functions and classes left out."""
    names = set()
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        names |= {found.id for target in targets for found in ast.walk(target) if isinstance(found, ast.Name)}
    return names


def _changes(tree: ast.Module) -> Iterator[str]:
    """Where code changes what the module binds: `global`, items that are set or deleted, mutating methods."""
    names = _module_names(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Global(names=found):
                yield f"line {node.lineno}: global {', '.join(found)}"
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()) if name in names:
                yield f"line {node.lineno}: {name}[...] is changed"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if name in names:
                if method in MUTATING:
                    yield f"line {node.lineno}: {name}.{method}()"
            case ast.AugAssign(target=ast.Name(id=name)) if name in names:
                yield f"line {node.lineno}: {name} is changed"


def test_nothing_at_module_level_changes() -> None:
    found = {_shown(path): [*_changes(ast.parse(path.read_text(encoding="utf-8")))] for path in SOURCE}
    assert {name: changes for name, changes in found.items() if changes} == {}


@pytest.mark.parametrize(
    "code",
    [
        "X = []\nX.append(1)",
        "X = {}\ndef f():\n    X['a'] = 1",
        "X = 0\ndef f():\n    global X",
        "X: set[int] = set()\nX.add(1)",
    ],
)
def test_a_change_at_module_level_is_seen(code: str) -> None:
    assert list(_changes(ast.parse(code)))


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = []
    for path in tracked():
        text = path.read_text(encoding="utf-8", errors="replace")
        for pattern in (MACHINE, REGISTRY):
            found += [f"{_shown(path)}: {match[0]}" for match in pattern.finditer(text)]
    assert found == []
