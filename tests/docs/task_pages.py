"""The tables of docs/reference/tasks.md: the keys of `task.toml`, and the steps of the harness with their parameters.

`python -m tests.docs.task_pages` writes them again from the classes of the schema and from the vocabulary;
`test_task_pages.py` checks that they are up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import msgspec

from bubbot.features.tasks.harness.steps import KEYWORDS, OWN_STEPS, PARAMETERS
from bubbot.features.tasks.schema import TaskNode, TaskSchema
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "tasks.md"
KEYS = "| key | type | default | what it is |\n|---|---|---|---|\n"
STEPS = "| step | after | kind | what it means |\n|---|---|---|---|\n"
BLANKS = "| blank | what it stands for |\n|---|---|\n"


def write_page(page: str) -> str:
    """Return the page with its tables as the code has them; everything between them stays."""
    page = _replace(page, "## task.toml", KEYS, _list_keys(TaskSchema, {"nodes"}))
    page = _replace(page, "## [nodes.NAME]", KEYS, _list_keys(TaskNode, set()))
    page = _replace(page, "## Steps", STEPS, _list_steps())
    return _replace(page, "## Blanks", BLANKS, _list_blanks())


def _replace(page: str, heading: str, head: str, rows: Iterator[str]) -> str:
    before, found, section = page.partition(f"\n{heading}\n")
    assert found, f"the heading {heading} is gone"
    start, found_head, rest = section.partition(head)
    assert found_head, f"the table of {heading} is gone"
    _, _, after = rest.partition("\n\n")
    return f"{before}\n{heading}\n{start}{head}{''.join(rows)}\n{after}"


def _list_keys(kind: type[msgspec.Struct], left_out: set[str]) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        if field.name not in left_out:
            described = _find_description(field.type)
            assert described, f"{field.name} has no description"
            yield f"| `{field.name}` | {_name_type(field.type)} | {_write_default(field)} | {described} |\n"


def _find_description(annotation: Any) -> str:
    return next((mark.description for mark in getattr(annotation, "__metadata__", ()) if mark.description), "")


def _name_type(annotation: Any) -> str:
    marks = [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, msgspec.Meta)]
    if marks:
        inner = get_args(annotation)[0]
        low, high = next(((mark.ge, mark.le) for mark in marks if mark.le is not None), (None, None))
        above = next((mark.gt for mark in marks if mark.gt is not None), None)
        if high is not None and inner in (int, float):
            kind = "whole number" if inner is int else "number"
            return f"{kind} from {low} to {high}" if low is not None else f"{kind} above {above}, at most {high}"
        return _name_type(inner)
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(f'`{each}`' for each in get_args(annotation))}"
    if get_origin(annotation) is tuple:
        inner = _name_type(get_args(annotation)[0])
        return "list of texts" if inner == "text" else f"list of {inner.removeprefix('one of ')}"
    if type(None) in get_args(annotation):
        return _name_type(next(each for each in get_args(annotation) if each is not type(None)))
    return {str: "text", int: "whole number", float: "number"}.get(annotation, "table, or text")


def _write_default(field: Any) -> str:
    default = field.default
    if default is None:
        return "not set"
    return f"`{msgspec.json.encode(default).decode()}`"


def _list_steps() -> Iterator[str]:
    for step in OWN_STEPS:
        yield f"| `{step.pattern}` | {', '.join(KEYWORDS[step.kind])} | {step.kind} | {step.brief} |\n"


def _list_blanks() -> Iterator[str]:
    for name, parameter in PARAMETERS.items():
        yield f"| `{{{name}}}` | {parameter.brief} |\n"


if __name__ == "__main__":
    PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
