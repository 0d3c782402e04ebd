"""Artifacts: a model's final text as a value, checked against the contract of its node, a JSON Schema (Draft 2020-12)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from bubbot.errors import BubbotError
from bubbot.json_schema import find_fences, find_misfits, find_schema_problems, refuse_constant

MAX_TRIES = 1_000
"""Brackets of a text that may begin a value: each costs time, also if it is none, such as that of a footnote."""
_BRACKET = re.compile(r"[\[\]{}]")


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
    return find_schema_problems(contract)


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
    fences = find_fences(text)
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
    failure, place, tries = "", 0, 0
    while bracket := _BRACKET.search(text, place):
        place = bracket.end()
        if bracket[0] in "}]":
            if not open_brackets or open_brackets.pop() + bracket[0] not in ("{}", "[]"):
                return values, failure or f"the {bracket[0]} at character {bracket.start()} closes nothing"
            continue
        if not open_brackets:
            tries += 1
            if tries > MAX_TRIES:
                return values, f"there are more than {MAX_TRIES} brackets around it: write the JSON alone"
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
    try:
        return find_misfits(value, contract)
    except TimeoutError:
        return [
            "a text in it takes too long to be checked by a regular expression of the contract: write a shorter one"
        ]
