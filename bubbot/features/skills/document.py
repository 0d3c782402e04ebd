"""`SKILL.md`: front matter in YAML, and a text. Read leniently, with everything that the specification does not allow.

The specification is that of agentskills.io. `problems` agree with its reference validator, `skills-ref`; what that does not look at, but the
specification advises, are warnings.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.toml_tables import Problem

SKILL_FILE = "SKILL.md"
MAX_SKILL_BYTES = 262_144
"""Bytes of a `SKILL.md`."""
MAX_FRONT_CHARS = 16_384
"""Characters of its front matter; YAML takes milliseconds for so many."""
MAX_DEPTH = 8
MAX_NODES = 1_000
"""Values in a front matter."""
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1_024
MAX_COMPATIBILITY_CHARS = 500
MAX_BODY_LINES = 500
MAX_BODY_TOKENS = 5_000
BYTES_PER_TOKEN = 4
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_FENCE = "---"
_SIGNS = ("<<", "=")
"""Plain texts that mean something else in YAML, and are no texts."""
_LINE = re.compile(r"([A-Za-z][A-Za-z-]*):[ \t]+(\S.*)")

Value: TypeAlias = "str | list[Value] | dict[str, Value]"
"""A value of a front matter: what YAML takes for a number or a date stays the text that was written."""


class SkillDocument(Struct, frozen=True):
    """A `SKILL.md`.

    Attributes:
        name: as it says; empty if it says none that can be used.
        description: what the skill does, and when to use it; the first line of the text if it has none.
        license: as it says.
        compatibility: what it needs, as it says.
        allowed_tools: the tools that it wishes to be allowed.
        metadata: what it says for other programs.
        body: its text, below the front matter.
        problems: what the specification does not allow, first; then warnings.
    """

    name: str
    description: str
    license: str
    compatibility: str
    allowed_tools: str
    metadata: Mapping[str, str]
    body: str
    problems: tuple[Problem, ...]

    @property
    def is_valid(self) -> bool:
        """True if the specification allows it."""
        return all(each.is_warning for each in self.problems)


def is_skill_name(name: str) -> bool:
    """Return true if the specification allows this name."""
    return not _find_name_problems(name) and name == unicodedata.normalize("NFKC", name)


def read_document(data: bytes, folder: str) -> SkillDocument:
    """Read a `SKILL.md`.

    Args:
        folder: the name of its folder.

    Raises:
        ConfigError: it is too long, or no text.
    """
    if len(data) > MAX_SKILL_BYTES:
        raise ConfigError(
            f"{SKILL_FILE} has {len(data)} bytes, of at most {MAX_SKILL_BYTES}: move a part of it into other files of the skill"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{SKILL_FILE} is no UTF-8 (byte {error.start}): store it as UTF-8") from error
    if "\0" in text:
        raise ConfigError(f"{SKILL_FILE} has a NUL character, which no text has: store it as a text")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    problems = find_problems(text, folder)
    fields, body, warnings = _read_fields(text.removeprefix("\ufeff"))
    name = unicodedata.normalize("NFKC", _as_text(fields.get("name", "")).strip())
    description = " ".join(_as_text(fields.get("description", "")).split())
    if not description:
        description = next((line for each in body.split("\n") if (line := each.strip("#*->_ \t"))), "")
    metadata = fields.get("metadata", {})
    return SkillDocument(
        name=name if is_skill_name(name) else "",
        description=description[:MAX_DESCRIPTION_CHARS],
        license=_as_text(fields.get("license", "")),
        compatibility=_as_text(fields.get("compatibility", "")),
        allowed_tools=_as_text(fields.get("allowed-tools", "")),
        metadata={key: _as_text(value) for key, value in metadata.items()} if isinstance(metadata, dict) else {},
        body=body,
        problems=(*problems, *warnings, *_find_long_parts(body)),
    )


def find_problems(text: str, folder: str) -> tuple[Problem, ...]:
    """Return what the specification does not allow in the text of a `SKILL.md` in a folder of this name."""
    # As the reference validator takes it apart: at the first three dashes, wherever they stand.
    if not text.startswith(_FENCE):
        return (_problem(f"it has to begin with front matter, between two lines {_FENCE}"),)
    _, front, *rest = text.split(_FENCE, 2)
    if not rest:
        return (_problem(f"its front matter has no end: write a line {_FENCE} below it"),)
    try:
        reader = FrontMatter(front)
        fields = reader.read()
    except YamlUnreadable as error:
        return (_problem(str(error)),)
    found = list(reader.problems)
    if not isinstance(fields, dict):
        return (*found, _problem("its front matter has to be lines `key: value`"))
    if unknown := sorted(fields.keys() - set(FIELDS)):
        found.append(
            _problem(
                f"{', '.join(map(_quote, unknown))} is no field: the fields are {', '.join(FIELDS)}; write others into metadata"
            )
        )
    return (*found, *_find_field_problems(fields, folder))


def _find_field_problems(fields: Mapping[str, Value], folder: str) -> Iterator[Problem]:
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not name.strip():
        yield _problem("is missing: give the skill the name of its folder", "name")
    else:
        name = unicodedata.normalize("NFKC", name.strip())
        yield from (_problem(each, "name") for each in _find_name_problems(name))
        if name != unicodedata.normalize("NFKC", folder):
            yield _problem(f"is {_quote(name)}, but the folder is {_quote(folder)}: give both the same name", "name")
    if not isinstance(description, str) or not description.strip():
        yield _problem("is missing: say what the skill does, and when to use it", "description")
    elif len(description) > MAX_DESCRIPTION_CHARS:
        yield _problem(
            f"has {len(description)} characters, of at most {MAX_DESCRIPTION_CHARS}: shorten it", "description"
        )
    compatibility = fields.get("compatibility", "")
    if not isinstance(compatibility, str):
        yield _problem("has to be a text", "compatibility")
    elif len(compatibility) > MAX_COMPATIBILITY_CHARS:
        yield _problem(
            f"has {len(compatibility)} characters, of at most {MAX_COMPATIBILITY_CHARS}: shorten it", "compatibility"
        )


def _find_name_problems(name: str) -> list[str]:
    found = list[str]()
    if not name:
        return ["is empty"]
    if len(name) > MAX_NAME_CHARS:
        found.append(f"has {len(name)} characters, of at most {MAX_NAME_CHARS}: shorten it")
    if name != name.lower():
        found.append(f"is {_quote(name)}: write it in lower case")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        found.append(f"is {_quote(name)}: put single hyphens between words only")
    if not all(char.isalnum() or char == "-" for char in name):
        found.append(f"is {_quote(name)}: use letters, digits and hyphens only")
    return found


def _find_long_parts(body: str) -> Iterator[Problem]:
    lines, tokens = body.count("\n") + 1, len(body.encode()) // BYTES_PER_TOKEN
    if lines > MAX_BODY_LINES or tokens > MAX_BODY_TOKENS:
        yield Problem(
            SKILL_FILE,
            f"its text has {lines} lines, about {tokens} tokens: beyond {MAX_BODY_LINES} lines or {MAX_BODY_TOKENS} tokens move "
            "details into other files of the skill",
            is_warning=True,
        )


def _problem(message: str, field: str = "") -> Problem:
    return Problem(f"{SKILL_FILE}: {field}" if field else SKILL_FILE, message)


def _quote(text: str) -> str:
    return json.dumps(text[:80], ensure_ascii=not text.isprintable())


def _as_text(value: Value) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value else ""


def _read_fields(text: str) -> tuple[dict[str, Value], str, list[Problem]]:
    """Read the front matter, line by line with a warning if it is no YAML mapping, and the text below it."""
    front, body = _split_leniently(text)
    try:
        fields = FrontMatter(front).read()
    except YamlUnreadable:
        pass
    else:
        if isinstance(fields, dict):
            return fields, body, []
    lines = {found[1]: found[2].strip().strip("\"'") for line in front.split("\n") if (found := _LINE.fullmatch(line))}
    if not front:
        return {}, body, []
    warning = Problem(
        SKILL_FILE, "its front matter is read line by line, and only its texts of one line count", is_warning=True
    )
    return dict[str, Value](lines), body, [warning]


def _split_leniently(text: str) -> tuple[str, str]:
    """Return the front matter between two lines of three dashes, and the text below; no front matter if one is missing."""
    first, *lines = text.split("\n")
    if first.rstrip() != _FENCE:
        return "", text.strip()
    ends = [place for place, line in enumerate(lines) if line.rstrip() == _FENCE]
    if not ends:
        return "", text.strip()
    return "\n".join(lines[: ends[0]]), "\n".join(lines[ends[0] + 1 :]).strip()


class YamlUnreadable(Exception):
    """A front matter cannot be read."""


class FrontMatter:
    """Reads YAML from its events: no value is made by a type, no alias is followed, and depth and number are limited.

    Attributes:
        problems: what the specification's reader refuses, found by `read`.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._nodes = 0
        self._events: Iterator[Any] = iter(())
        self.problems: list[Problem] = []

    def read(self) -> Value:
        """Return its value; an empty text for none. Raise `YamlUnreadable`."""
        # Imported here: a bot without skills does not load it.
        import yaml

        if len(self._text) > MAX_FRONT_CHARS:
            raise YamlUnreadable(
                f"its front matter has {len(self._text)} characters, of at most {MAX_FRONT_CHARS}: shorten it"
            )
        self._yaml = yaml
        try:
            self._events = yaml.parse(self._text, Loader=yaml.SafeLoader)
            value: Value = ""
            documents = 0
            for event in self._events:
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        raise YamlUnreadable("its front matter has two documents: leave one")
                elif isinstance(event, yaml.NodeEvent):
                    value = self._read_node(event, 0)
        except yaml.MarkedYAMLError as error:
            line = f" in its line {error.problem_mark.line + 1}" if error.problem_mark else ""
            raise YamlUnreadable(
                f"its front matter is no YAML{line} ({error.problem}): put quotes around texts"
            ) from error
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            raise YamlUnreadable(
                f"its front matter is no YAML ({type(error).__name__}): put quotes around texts"
            ) from error
        return value

    def _read_node(self, event: Any, depth: int) -> Value:
        yaml = self._yaml
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise YamlUnreadable(
                f"its front matter is nested deeper than {MAX_DEPTH}, or has more than {MAX_NODES} values: make it simpler"
            )
        if isinstance(event, yaml.AliasEvent):
            self._refuse("an alias", event)
            return ""
        if event.anchor is not None:
            self._refuse("an anchor", event)
        if event.tag is not None:
            self._refuse("a tag", event)
        if isinstance(event, yaml.ScalarEvent):
            return [] if event.implicit[0] and event.value in _SIGNS else str(event.value)
        if event.flow_style:
            self._refuse("values in brackets or braces", event)
        if isinstance(event, yaml.SequenceStartEvent):
            items = list[Value]()
            while not isinstance(each := next(self._events), yaml.SequenceEndEvent):
                items.append(self._read_node(each, depth + 1))
            return items
        return self._read_mapping(depth)

    def _read_mapping(self, depth: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        columns = set[int]()
        while not isinstance(key_event := next(self._events), self._yaml.MappingEndEvent):
            key = _as_text(self._read_node(key_event, depth + 1))
            value_event = next(self._events)
            if isinstance(value_event, self._yaml.MappingStartEvent):
                columns.add(value_event.start_mark.column if value_event.start_mark else 0)
            value = self._read_node(value_event, depth + 1)
            if key in found:
                self._refuse(f"{_quote(key)} twice", key_event)
            found[key] = value
        if len(columns) > 1:
            self.problems.append(_problem("its front matter indents its tables differently: use the same indent"))
        return found

    def _refuse(self, what: str, event: Any) -> None:
        line = event.start_mark.line + 1
        self.problems.append(_problem(f"its front matter has {what} in its line {line}: write one plain text a line"))


def write_document(name: str, description: str, body: str) -> str:
    """Write a `SKILL.md` that the specification allows, if its name and description are allowed."""
    return f"{_FENCE}\nname: {name}\ndescription: {json.dumps(description, ensure_ascii=False)}\n{_FENCE}\n\n{body.strip()}\n"
