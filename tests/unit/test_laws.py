"""Every law has a test, and every test that claims a law names one that exists."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.laws import LAWS, PENDING

TESTS = Path(__file__).parents[1]


def claims(source: str) -> Iterator[str]:
    """The laws claimed by the tests of a module: by a test, by its class, or by the whole module."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test_"):
                marks: list[ast.expr] = node.decorator_list
            case ast.ClassDef() if node.name.startswith("Test"):
                marks = node.decorator_list
            case ast.Assign(targets=[ast.Name("pytestmark")], value=value):
                marks = list(value.elts) if isinstance(value, ast.List) else [value]
            case _:
                continue
        for mark in marks:
            yield from _laws_of(mark)


def _laws_of(mark: ast.expr) -> Iterator[str]:
    match mark:
        case ast.Call(ast.Attribute(ast.Attribute(ast.Name("pytest"), "mark"), "law"), args):
            for argument in args:
                yield ast.literal_eval(argument)


@cache
def claimed() -> dict[str, list[str]]:
    """The laws claimed anywhere, with the files that claim them."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        for law in claims(source) if "mark.law(" in source else ():  # most claim none, and parsing takes long
            found.setdefault(law, []).append(path.relative_to(TESTS).as_posix())
    return found


def test_every_law_is_claimed_by_a_test_or_known_to_be_pending() -> None:
    assert set(LAWS) - set(claimed()) <= PENDING


def test_no_test_claims_a_law_that_does_not_exist() -> None:
    assert {law: files for law, files in claimed().items() if law not in LAWS} == {}


def test_a_pending_law_that_a_test_claims_is_pending_no_more() -> None:
    assert {law: files for law, files in claimed().items() if law in PENDING} == {}


def test_only_laws_that_exist_are_pending() -> None:
    assert set(LAWS) >= PENDING


def test_the_laws_are_those_of_the_design_in_order() -> None:
    assert list(LAWS) == [*(f"T{number}" for number in range(1, 23)), "P1"]


def test_claims_are_found_on_functions_classes_and_modules() -> None:
    source = """
pytestmark = [pytest.mark.law("T1"), pytest.mark.proof]

@pytest.mark.law("T2", "T3")
async def test_something() -> None: ...

@pytest.mark.law("T4")
class TestMachine: ...
"""
    assert sorted(claims(source)) == ["T1", "T2", "T3", "T4"]


def test_a_mark_on_something_that_is_no_test_claims_nothing() -> None:
    source = """
@pytest.mark.law("T1")
def build() -> None: ...

@pytest.mark.flaw("T2")
def test_other_mark() -> None: ...
"""
    assert list(claims(source)) == []
