"""Templates: each sentence they say exists and gets its values, and nothing in them escapes the escaping."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from jinja2 import Environment, nodes

from bubbot.features.people.record import LineKind, LineReason
from tests.docs.pages import ROOT
from tests.unit.texts.test_texts import SENTENCES, wanted

TEMPLATES = sorted((ROOT / "bubbot").rglob("templates/*.html"))
BUILT = {
    "trace_file_": ("image", "audio", "voice", "video", "file"),
    "trace_origin_": ("schedule", "approval", "command"),
    "trace_from_": ("people", "world"),
    "trace_kind_": ("sessions", "archives", "system"),
    "trace_none_": ("sessions", "archives", "system"),
    "person_line_": get_args(LineKind),
    "person_reason_": get_args(LineReason),
}


def sentences(name: nodes.Node) -> Iterator[str]:
    """The names of the sentences that a first argument of `say` stands for."""
    match name:
        case nodes.Const():
            yield str(name.value)
        case nodes.CondExpr():
            yield from sentences(name.expr1)
            if name.expr2 is not None:
                yield from sentences(name.expr2)
        case nodes.Concat(nodes=[nodes.Const(value=beginning), _]):
            yield from (f"{beginning}{end}" for end in BUILT[beginning])
        case nodes.Getattr() | nodes.Getitem() | nodes.Name(name="column" | "sentence"):
            pass  # in the data of a panel, or among its columns
        case _:
            raise AssertionError(f"{name} is no sentence that can be checked")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_what_a_template_says_exists_and_has_its_values(path: Path) -> None:
    tree = Environment(autoescape=True).parse(path.read_text(encoding="utf-8"))
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == "say":
            for name in sentences(call.args[0]):
                assert {keyword.key for keyword in call.kwargs} == wanted(SENTENCES[name]), name
    for said in tree.find_all(nodes.Filter):
        if said.name == "map" and said.args == [nodes.Const("say")] and said.node:
            for column in said.node.find_all(nodes.Const):
                assert wanted(SENTENCES[str(column.value)]) == set(), column.value


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_turns_no_escaping_off_and_holds_no_script_or_style(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\|\s*safe|autoescape|Markup", text)
    assert not re.search(r"\son\w+\s*=|\sstyle\s*=|javascript:", text)
    assert re.findall(r"<script[^>]*>", text) in ([], ['<script type="module" src="/static/trace.js">'])
    assert not re.search(r"(?:href|src|action)=\"(?:https?:)?//", text)
    assert not re.search(r"\s[\w-]+=\{\{", text)  # an attribute without quotes could be ended by a space
