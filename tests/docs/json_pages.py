"""The JSON Schemas of what commands print with `--json`, written from the classes that they declare.

`python -m tests.docs.json_pages` writes docs/reference/json and the table in docs/reference/json.md; `test_json_pages.py`
checks that they are up to date.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from inspect import cleandoc
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from bubbot.app.command_table import COMMANDS
from bubbot.cli.main import load_group
from bubbot.cli.restore import OPTION_RESULTS
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "json.md"
FOLDER = ROOT / "docs" / "reference" / "json"
HEAD = "| command | schema | what it describes |\n|---|---|---|\n"
SCALARS: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}


def results() -> dict[str, type]:
    """What each command prints with `--json`, by its whole name."""
    found = {command.name: command.result for command in _commands() if command.result is not None}
    return {**found, **OPTION_RESULTS}


def _commands() -> Iterator[Any]:
    for word in COMMANDS:
        yield from load_group(word).commands


def file_name(command: str) -> str:
    """The name of the file with the schema of a command."""
    return f"{command.replace(' ', '-')}.schema.json"


def list_keys() -> dict[str, tuple[str, str]]:
    """The key of the lists that commands print and what they show, by their whole names."""
    return {command.name: (command.rows, command.description) for command in _commands() if command.rows}


def schema(result: Any, key: str = "", description: str = "") -> dict[str, Any]:
    """The schema of a result, or of the object with the key of a list. Classes in it are definitions."""
    definitions: dict[str, Any] = {}
    if key:
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "description": description}
        listed = {"properties": {key: _value(result, definitions)}, "required": [key], "additionalProperties": False}
        return {**head, "type": "object", **listed, "$defs": definitions}
    own = _object(result, definitions)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": result.__name__}
    return {**head, **own} | ({"$defs": definitions} if definitions else {})


def write_schemas() -> dict[str, str]:
    """The files with the schemas, by their names."""
    keys = list_keys()
    return {
        file_name(command): json.dumps(schema(result, *keys.get(command, ("", ""))), indent=1, ensure_ascii=False)
        + "\n"
        for command, result in results().items()
    }


def write_table(page: str) -> str:
    """The page with its table."""
    before, head, _ = page.partition(HEAD)
    assert head, "the table of schemas is gone"
    keys = list_keys()
    rows = (
        f"| `bubbot {command.replace('restore ', 'restore --') if command.startswith('restore ') else command}` | [{file_name(command)}](json/{file_name(command)}) | {keys[command][1] if command in keys else _summary(result)} |\n"
        for command, result in results().items()
    )
    return before + head + "".join(rows)


def _object(result: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    is_open = getattr(result, "is_open", False)
    hints = get_type_hints(result, include_extras=True)
    texts = _attributes(result)
    properties = {}
    listed = msgspec.structs.fields(result) if issubclass(result, msgspec.Struct) else fields(result)
    for field in listed:
        value = _value(hints[field.name], definitions)
        properties[field.name] = value | ({"description": texts[field.name]} if field.name in texts else {})
    required = [field.name for field in listed if not is_open or _is_required(field)]
    return {
        "description": _summary(result),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": is_open,
    }


def _is_required(field: Any) -> bool:
    return all(value in (MISSING, msgspec.NODEFAULT) for value in (field.default, field.default_factory))


def _value(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    if origin is Annotated:
        return {**_value(arguments[0], definitions), "format": arguments[1]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_value(each, definitions) for each in arguments]}
    if origin in (tuple, list):
        assert origin is list or arguments[1:] == (...,), f"{hint} is not a sequence of one type"
        return {"type": "array", "items": _value(arguments[0], definitions)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _value(arguments[1], definitions)}
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return {"enum": [str(member) for member in hint]}
    assert is_dataclass(hint) or issubclass(hint, msgspec.Struct), f"{hint} has no schema"
    name = hint.__name__
    if name not in definitions:
        definitions[name] = {}
        definitions[name] = _object(hint, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _summary(result: type) -> str:
    return " ".join((result.__doc__ or "").partition("\n\n")[0].split())


def _attributes(result: type) -> dict[str, str]:
    """The texts of the attributes in the docstring of a class."""
    # Python 3.13 takes the indentation off docstrings when it compiles them, those before do not.
    _, _, listed = cleandoc(result.__doc__ or "").partition("Attributes:\n")
    return dict(_entries(listed))


def _entries(listed: str) -> Iterator[tuple[str, str]]:
    for match in re.finditer(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE):
        text = " ".join(match[2].split())
        yield match[1], text[:1].upper() + text[1:]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    schemas = write_schemas()
    for stale in FOLDER.glob("*.schema.json"):
        if stale.name not in schemas:
            stale.unlink()
    for name, text in schemas.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    PAGE.write_text(write_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
