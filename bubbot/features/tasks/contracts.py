"""Artifacts: a model's final text as a value, checked against the contract of its node, a JSON Schema (Draft 2020-12)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from heapq import nsmallest
from typing import Any

from bubbot.errors import BubbotError
from bubbot.features.tasks.sources import find_non_json, is_too_deep, refuse_constant

MAX_PROBLEMS = 5
"""Problems of an artifact that a model is told at once."""
MAX_PROBLEM_CHARS = 300
_FENCE = re.compile(
    r"^[ \t]*```[ \t]*(?:json)?[ \t]*\r?\n(?P<text>.*?)^[ \t]*```[ \t]*\r?$", re.MULTILINE | re.DOTALL | re.IGNORECASE
)
_BRACKET = re.compile(r"[\[\]{}]")
_UNION_KEYWORDS = ("anyOf", "oneOf")
"""Keywords whose own message says little; what is wrong with the nearest of their schemas says more."""


class ArtifactInvalid(BubbotError):
    """A text is not the artifact that its contract asks for; the error's text is fit for the model that repairs it.

    Attributes:
        problems: what is wrong, the most telling first, at most `MAX_PROBLEMS`.
    """

    kind = "artifact_invalid"
    problems: tuple[str, ...] = ()

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"- {each}" for each in self.problems)
        super().__init__(
            f"The artifact does not fit its contract:\n{lines}\nAnswer again with the whole artifact as JSON."
        )


def find_contract_problems(contract: object) -> list[str]:
    """Say what keeps a value from being a contract, at most `MAX_PROBLEMS` problems; nothing is fetched."""
    if not isinstance(contract, dict):
        return ["a contract is a JSON Schema, which is a table, or the path of a JSON file with one"]
    if is_too_deep(contract):
        return ["the JSON Schema is nested too deep: make it flatter"]
    if reason := find_non_json(contract):
        return [f"the JSON Schema {reason}"]
    from jsonschema import Draft202012Validator, FormatChecker

    # A regular expression that is none would fail only when an artifact meets it.
    meta = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=FormatChecker(["regex"]))
    problems = _describe(meta.iter_errors(contract), " of the JSON Schema")
    return problems or [*dict.fromkeys(_find_wrong_references(contract, meta.is_valid))][:MAX_PROBLEMS]


def parse_artifact(text: str, contract: Mapping[str, Any] | None) -> Any:
    """Return the value of a model's final text: with a contract the one JSON value in it, else the text itself.

    The value may stand alone, in a Markdown fence, or among other words. If there are several, the one that fits the contract
    counts, if only one does.

    Raises:
        ArtifactInvalid: the text has no JSON value, several, or half of one, or the value breaks the contract.
    """
    if contract is None:
        return text
    values = _find_values(text)
    failures = [_find_failures(value, contract) for value in values]
    fitting = [value for value, failure in zip(values, failures, strict=True) if not failure]
    if len(fitting) == 1:
        return fitting[0]
    if len(values) == 1:
        raise ArtifactInvalid(failures[0])
    raise ArtifactInvalid([f"the text has {len(values)} JSON values, and must have exactly one"])


def _find_values(text: str) -> list[Any]:
    """Return the JSON values of a text, at least one. Raise `ArtifactInvalid`."""
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    try:
        return [decoder.decode(text)]
    except RecursionError:
        raise ArtifactInvalid(["the JSON is nested too deep"]) from None
    except ValueError as error:
        reason = str(error)
    fences = [match["text"] for match in _FENCE.finditer(text)]
    if len(fences) == 1:
        with suppress(ValueError, RecursionError):  # if it is broken, the scan says where
            return [decoder.decode(fences[0])]
    try:
        values, failure = _scan(text, decoder)
    except RecursionError:
        raise ArtifactInvalid(["the JSON is nested too deep"]) from None
    if failure:
        raise ArtifactInvalid([f"the text holds a broken JSON value: {failure}"])
    if not values:
        raise ArtifactInvalid([f"the text is not JSON: {reason}"])
    return values


def _scan(text: str, decoder: json.JSONDecoder) -> tuple[list[Any], str]:
    """Return the objects and arrays of a text in order, and why it holds a part of one; empty if it doesn't.

    Brackets that are no JSON have to close again, and nothing within them counts: the inner part of an artifact that broke off
    is not an artifact.
    """
    values: list[Any] = []
    open_brackets: list[str] = []
    failure, place = "", 0
    while bracket := _BRACKET.search(text, place):
        place = bracket.end()
        if bracket[0] in "}]":
            if not open_brackets or open_brackets.pop() + bracket[0] not in ("{}", "[]"):
                return values, failure or f"the {bracket[0]} at character {bracket.start()} closes nothing"
            continue
        if not open_brackets:
            try:
                value, place = decoder.raw_decode(text, bracket.start())
            except ValueError as error:
                failure = failure or str(error)
            else:
                values.append(value)
                continue
        open_brackets.append(bracket[0])
    if open_brackets or not values:
        return values, failure
    return values, ""


def _find_failures(value: Any, contract: Mapping[str, Any]) -> list[str]:
    """Say what of a value breaks a contract, the most telling first."""
    if is_too_deep(value):
        return ["the JSON is nested too deep"]
    if reason := find_non_json(value):
        return [f"the JSON {reason}"]
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    registry: Registry[Any] = Registry()  # an empty one: nothing is fetched
    try:
        return _describe(Draft202012Validator(contract, registry=registry).iter_errors(value))
    except RecursionError:
        return ["the contract refers to itself without an end: it fits nothing"]
    except Unresolvable as error:
        return [f"the contract refers to {error.ref!r}, which it does not have: it fits nothing"]


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


def _find_wrong_references(contract: dict[str, Any], is_schema: Callable[[Any], bool]) -> Iterator[str]:
    """Yield what is wrong with the references of a JSON Schema: each stays within it, and names a schema."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    nameless = {key: each for key, each in contract.items() if key != "$id"}
    registry: Registry[Any] = Registry()
    resolver = registry.resolver_with_root(DRAFT202012.create_resource(nameless))
    for key, value in _list_items(nameless):
        if not isinstance(value, str):  # such as a property of this name
            continue
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
            if not is_schema(target):
                yield f"{key} {value!r} names a part of the JSON Schema that is no schema itself"


def _list_items(value: object) -> Iterator[tuple[str, object]]:
    """Yield the keys of all objects in a value, each with what it holds."""
    if isinstance(value, dict):
        yield from value.items()
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _list_items(inner)
