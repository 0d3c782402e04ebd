"""What servers offer: the digest that an owner pins, what changed of it, and the names that models call tools by."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from itertools import takewhile
from typing import Any

from msgspec import Struct

from bubbot.features.mcp.child.values import OfferedTool
from bubbot.json_schema import find_schema_problems
from bubbot.tape.entry import canonical, thaw

HINTS = ("readOnlyHint", "destructiveHint")
MAX_SCHEMA_CHARS = 100_000
MAX_DESCRIPTION_CHARS = 20_000
MAX_NAME_CHARS = 64
"""Characters of a name that providers take."""
MAX_DIFFERENCE_LINES = 200
MAX_COMPARED_LINES = 2_000
"""Lines of a description and schema that are compared; those after them are shown as gone, or new."""
MAX_LINE_CHARS = 1_000
_MARK_DIGITS = 8
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_SAFE_NAME = re.compile(r"[A-Za-z0-9._/:-]{1,256}")
"""A name of a tool that is no other text in a shell, in Markdown, on a page, and in the line about the source of a result."""


class OfferedTools(Struct, frozen=True):
    """What a server offers now.

    Attributes:
        protocol: the version that it speaks with us.
        server: what it calls itself.
        tools: in its order.
    """

    protocol: str
    server: str
    tools: tuple[OfferedTool, ...]

    def find(self, tool: str) -> OfferedTool | None:
        """Return a tool by the server's name; None if it offers none."""
        return next((each for each in self.tools if each.name == tool), None)


def read_hints(offered: OfferedTool) -> dict[str, bool]:
    """Return what a server says of the effects of a tool, if it says so."""
    hints = {name: offered.annotations.get(name) for name in HINTS}
    return {name: value for name, value in hints.items() if isinstance(value, bool)}


def digest_offer(offered: OfferedTool) -> str:
    """Return the digest of what an owner looks at: name, description, schema and hints."""
    shown = {
        "name": offered.name,
        "description": offered.description,
        "schema": offered.schema,
        "hints": read_hints(offered),
    }
    return sha256(canonical(shown).encode()).hexdigest()


def describe_offer(description: str, schema: Mapping[str, Any], hints: Mapping[str, Any]) -> list[str]:
    """Return the lines that an owner looks at: all of it, the same lines for the same tool."""
    lines = description.splitlines()
    lines += json.dumps(thaw(schema), ensure_ascii=False, indent=2, sort_keys=True).splitlines()
    return [*lines, *(f"{name}: {str(value).lower()}" for name, value in sorted(hints.items()))]


def find_difference(before: list[str], after: list[str]) -> tuple[str, ...]:
    """Return the lines that went, after `-`, and that came, after `+`, in their order; very many are cut in the middle.

    Whole lines are compared: to look for similar ones takes minutes for 200 lines that a server chooses.
    """
    # Imported here: few tools ever change.
    from difflib import unified_diff

    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    old, new = before[same:], after[same:]
    changes = [*unified_diff(old[:MAX_COMPARED_LINES], new[:MAX_COMPARED_LINES], n=0, lineterm="")][2:]
    changes += [*(f"-{line}" for line in old[MAX_COMPARED_LINES:]), *(f"+{line}" for line in new[MAX_COMPARED_LINES:])]
    found = [f"{line[0]} {line[1:MAX_LINE_CHARS]}".rstrip() for line in changes if line[0] in "+-"]
    if len(found) <= MAX_DIFFERENCE_LINES:
        return tuple(found)
    half = MAX_DIFFERENCE_LINES // 2
    return (*found[:half], "…", *found[-half:])


def find_offer_problem(offered: OfferedTool, key: str) -> str:
    """Say why a tool cannot be pinned, in words that follow its name; empty if it can. `key` is the argument for keys of calls."""
    if not _SAFE_NAME.fullmatch(offered.name):
        return "its name has other characters than letters, digits and . _ - / :, which commands and messages cannot show as they are"
    if len(offered.description) > MAX_DESCRIPTION_CHARS:
        return f"its description has more than {MAX_DESCRIPTION_CHARS} characters"
    if len(json.dumps(offered.schema)) > MAX_SCHEMA_CHARS:
        return f"its schema has more than {MAX_SCHEMA_CHARS} characters"
    if offered.schema.get("type") != "object":
        return "its schema does not say that its arguments are an object"
    if problems := find_schema_problems(shown_schema(offered.schema)):
        return "; ".join(problems)
    properties = offered.schema.get("properties")
    if key and not (isinstance(properties, dict) and key in properties):
        return f"it has no argument {key} that could take the key of a call"
    return ""


def shown_schema(schema: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    """Return the schema as models see it: without the argument that takes the key of a call, and without names of documents."""
    shown: dict[str, Any] = {name: value for name, value in thaw(schema).items() if name not in ("$schema", "$id")}
    if key:
        shown["properties"] = {name: each for name, each in shown.get("properties", {}).items() if name != key}
        shown["required"] = [name for name in shown.get("required", ()) if name != key]
        if not shown["required"]:
            del shown["required"]
    return shown


def make_name(server: str, tool: str, taken: Collection[str]) -> str:
    """Return the name that models call a tool by: `mcp.server.tool`, no longer than providers take, and no other's.

    What names cannot have becomes `_`; a name that is too long, or taken in the form of providers, ends with a mark of its own.
    """
    name = f"mcp.{server}.{_NOT_IN_NAMES.sub('_', tool)}"
    forms = {each.replace(".", "_") for each in taken}
    if len(name) <= MAX_NAME_CHARS and name.replace(".", "_") not in forms:
        return name
    mark = sha256(f"{server}/{tool}".encode()).hexdigest()[:_MARK_DIGITS]
    return f"{name[: MAX_NAME_CHARS - _MARK_DIGITS - 1]}_{mark}"
