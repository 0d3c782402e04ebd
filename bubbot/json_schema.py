"""JSON that others write, and JSON Schemas (Draft 2020-12) that say what it has to be. Nothing is fetched, nothing takes long."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import nsmallest
from math import isfinite
from time import monotonic
from typing import Any, NoReturn

from bubbot.expressions import compile_search

MAX_DEPTH = 64
"""How deep the tables and lists of a value may be nested."""
MAX_NUMBER_DIGITS = 1_000
"""Digits of a whole number."""
MAX_PROBLEMS = 5
"""Problems of a value that are told at once."""
MAX_PROBLEM_CHARS = 300
MAX_SEARCH_SECONDS = 0.5
"""The longest that the regular expressions of a schema are searched in one value; the event loop waits for it."""
_FENCE = re.compile(r"[ \t]*```[ \t]*((?:json)?)[ \t]*", re.IGNORECASE)
_VALUE_KEYWORDS = ("const", "enum", "default", "examples")
"""Keywords that hold values, in which nothing is a schema."""
_UNION_KEYWORDS = ("anyOf", "oneOf")
"""Keywords whose own message says little; what is wrong with the nearest of their schemas says more."""


def find_schema_problems(schema: object) -> list[str]:
    """Say what keeps a value from being a JSON Schema, at most `MAX_PROBLEMS` problems."""
    if not isinstance(schema, dict):
        return [f"it is a {type(schema).__name__}, and must be a JSON Schema, which is a table"]
    if is_too_deep(schema):
        return ["the JSON Schema is nested too deep: make it flatter"]
    if reason := find_non_json(schema):
        return [f"the JSON Schema {reason}"]
    from jsonschema import Draft202012Validator

    meta = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    problems = _describe(meta.iter_errors(schema), " of the JSON Schema")
    problems = problems or [*dict.fromkeys(_find_wrong_patterns(schema))]
    return problems[:MAX_PROBLEMS] or [*dict.fromkeys(_find_wrong_references(schema, meta.is_valid))][:MAX_PROBLEMS]


def find_misfits(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Say what of a value does not fit a JSON Schema, the most telling first, at most `MAX_PROBLEMS`.

    Raises:
        TimeoutError: a regular expression of the schema takes too long for this value; whether the value fits is not known.
    """
    if is_too_deep(value):
        return ["the JSON is nested too deep"]
    if reason := find_non_json(value):
        return [f"the JSON {reason}"]
    from referencing.exceptions import Unresolvable

    try:
        return _describe(_PatternChecks().make_validator(schema).iter_errors(value))
    except ValueError as error:  # an expression that was not checked
        return [f"of the JSON Schema, {error}: nothing fits it"]
    except RecursionError:
        return ["the JSON Schema refers to itself without an end: nothing fits it"]
    except Unresolvable as error:
        return [f"the JSON Schema refers to {error.ref!r}, which it does not have: nothing fits it"]


def find_fences(text: str) -> list[str]:
    """Return what stands in the Markdown fences of a text that name no language, or JSON."""
    found, opened = list[str](), None
    lines = text.splitlines(keepends=True)
    for place, line in enumerate(lines):
        fence = _FENCE.fullmatch(line.rstrip("\r\n"))
        if fence is None:
            continue
        if opened is None:
            opened = place
        elif not fence[1]:
            found.append("".join(lines[opened + 1 : place]))
            opened = None
    return found


def refuse_constant(name: str) -> NoReturn:
    """Refuse `NaN` and `Infinity`, which `json` reads though JSON has no such number. Raise `ValueError`."""
    raise ValueError(f"JSON has no number {name}")


def is_too_deep(value: object) -> bool:
    """Return true if tables and lists are nested deeper than `MAX_DEPTH`. Does not recurse itself."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for each in level for inner in _list_parts(each)]
        if not level:
            return False
    return True


def find_non_json(value: object) -> str:
    """Say what of a value is not JSON, such as a date; empty for nothing. The value is not too deep."""
    if isinstance(value, Mapping):
        return next((f"has the key {key!r}, which is not a text" for key in value if not isinstance(key, str)), "") or (
            next(filter(None, map(find_non_json, (*value, *value.values()))), "")
        )
    if isinstance(value, list | tuple):
        return next(filter(None, map(find_non_json, value)), "")
    if isinstance(value, str):
        return "holds half of a surrogate pair, which is not valid text" if _has_surrogate(value) else ""
    if isinstance(value, int) and abs(value) >= 10**MAX_NUMBER_DIGITS:
        return f"holds a number of more than {MAX_NUMBER_DIGITS} digits: write it as a text in quotes"
    if value is None or isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return ""
    what = f"holds the number {value}" if isinstance(value, float) else f"holds a {type(value).__name__}, {value}"
    return f"{what}, which JSON does not have: write it as a text in quotes"


class _PatternChecks:
    """The keywords of JSON Schema that search regular expressions; together they take at most `MAX_SEARCH_SECONDS`."""

    def __init__(self) -> None:
        self._deadline = monotonic() + MAX_SEARCH_SECONDS

    def make_validator(self, schema: Mapping[str, Any]) -> Any:
        """Return a validator of a schema with these keywords; it fetches nothing."""
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend
        from referencing import Registry

        keywords: Any = {
            "pattern": self._check_text,
            "patternProperties": self._check_keys,
            "additionalProperties": self._check_other_keys,
        }
        registry: Registry[Any] = Registry()  # an empty one
        return extend(Draft202012Validator, keywords)(schema, registry=registry)

    def _check_text(self, _: Any, pattern: str, value: Any, __: Any) -> Iterator[Exception]:
        if isinstance(value, str) and not self._matches(pattern, value):
            yield _misfit(f"{value!r} does not match {pattern!r}")

    def _check_keys(self, validator: Any, schemas: Any, value: Any, _: Any) -> Iterator[Exception]:
        for key, inner in value.items() if isinstance(value, dict) else ():
            for pattern, schema in schemas.items():
                if self._matches(pattern, key):
                    yield from validator.descend(inner, schema, path=key, schema_path=pattern)

    def _check_other_keys(self, validator: Any, schema: Any, value: Any, parent: Any) -> Iterator[Exception]:
        if not isinstance(value, dict):
            return
        known, patterns = parent.get("properties", {}), parent.get("patternProperties", {})
        rest = [key for key in value if key not in known and not any(self._matches(each, key) for each in patterns)]
        if schema is False and rest:
            names = f"{', '.join(map(repr, rest))} {'was' if len(rest) == 1 else 'were'}"
            yield _misfit(f"Additional properties are not allowed ({names} unexpected)")
        elif isinstance(schema, dict):
            for key in rest:
                yield from validator.descend(value[key], schema, path=key)

    def _matches(self, pattern: str, text: str) -> bool:
        seconds = self._deadline - monotonic()
        if seconds <= 0:
            raise TimeoutError(f"the regular expressions take more than {MAX_SEARCH_SECONDS} seconds")
        return compile_search(pattern)(text, seconds) is not None


def _misfit(message: str) -> Exception:
    from jsonschema.exceptions import ValidationError

    error: Exception = ValidationError(message)
    return error


def _describe(errors: Iterable[Any], of: str = "") -> list[str]:
    """Return the words of the validator for its most telling errors: the outermost first, those of one depth in its order."""
    from jsonschema.exceptions import best_match

    nearest = nsmallest(
        MAX_PROBLEMS, errors, key=lambda error: (len(error.absolute_path), error.validator in _UNION_KEYWORDS)
    )
    lines = []
    for error in nearest:
        inner = best_match([error])
        words = [_shorten(str(inner.message))]
        # What fits no schema of a union fits none of them for its own reason.
        words += [_shorten(str(each.message)) for each in inner.context[:3] if each.json_path == inner.json_path]
        lines.append(f"at {inner.json_path}{of}: {'; '.join(dict.fromkeys(words))}")
    return list(dict.fromkeys(lines))


def _shorten(message: str) -> str:
    """Return a message of the validator without the middle of a long value: what is wrong with it stands at the end."""
    if len(message) <= MAX_PROBLEM_CHARS:
        return message
    return f"{message[: MAX_PROBLEM_CHARS // 3]} … {message[-MAX_PROBLEM_CHARS * 2 // 3 :]}"


def _find_wrong_patterns(schema: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the regular expressions of a JSON Schema; one that is none would fail only at a value."""
    for table in _list_tables(schema, without=_VALUE_KEYWORDS):
        patterns = [table.get("pattern")]
        if isinstance(by_name := table.get("patternProperties"), dict):
            patterns += by_name
            if by_name and "unevaluatedProperties" in table:
                yield "patternProperties beside unevaluatedProperties is not supported: write additionalProperties"
        for pattern in patterns:
            if isinstance(pattern, str):
                try:
                    compile_search(pattern)
                except ValueError as error:
                    yield f"of the JSON Schema, {error}"


def _find_wrong_references(schema: dict[str, Any], is_schema: Callable[[Any], bool]) -> Iterator[str]:
    """Yield what is wrong with the references of a JSON Schema: each stays within it, and names a schema."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    nameless = {key: each for key, each in schema.items() if key != "$id"}
    registry: Registry[Any] = Registry()
    resolver = registry.resolver_with_root(DRAFT202012.create_resource(nameless))
    items = ((key, value) for table in _list_tables(nameless) for key, value in table.items())
    known: set[int] = set()
    for key, value in dict.fromkeys((key, value) for key, value in items if isinstance(value, str)):
        if key == "$id":
            yield f"$id {value!r} within the JSON Schema changes what its references mean: remove it"
        elif key in ("$ref", "$dynamicRef"):
            if not value.startswith("#"):
                yield f'{key} {value!r} leads out of the JSON Schema, and nothing is fetched: write "#/$defs/NAME"'
                continue
            try:
                target = resolver.lookup(value).contents
            except (Unresolvable, ValueError, TypeError):  # the latter two for a path into a list or a number
                yield f"{key} {value!r} names nothing in the JSON Schema"
                continue
            if id(target) not in known and not is_schema(target):
                yield f"{key} {value!r} names a part of the JSON Schema that is no schema itself"
            known.add(id(target))


def _list_tables(value: object, without: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield all tables of a value that is not too deep, but not those under some keys."""
    if isinstance(value, dict):
        yield value
        value = [inner for key, inner in value.items() if key not in without]
    for inner in value if isinstance(value, list) else ():
        yield from _list_tables(inner, without)


def _list_parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
