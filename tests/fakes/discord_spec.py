"""Discord's own description of its REST API (OpenAPI), as a judge of requests and answers.

The description has no licence and is not part of this repository: the variable names a copy,
https://github.com/discord/discord-api-spec, file specs/openapi.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

VARIABLE = "BUBBOT_DISCORD_SPEC"
RESULTS_VARIABLE = "BUBBOT_DISCORD_JUDGED"
"""Names a file that gets the route and the problems of each judged request, one JSON array a line."""
API = "/api/v10"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """What one route takes and answers."""

    route: str
    pattern: re.Pattern[str]
    description: Json
    parameters: tuple[Json, ...]


class Spec:
    """The description, read once."""

    def __init__(self, text: str) -> None:
        self.document: Json = json.loads(text)
        self._operations = [
            Operation(
                f"{verb.upper()} {path}", re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path)), operation,
                (*methods.get("parameters", ()), *operation.get("parameters", ())),
            )
            for path, methods in self.document["paths"].items()
            for verb, operation in methods.items()
            if verb != "parameters"
        ]  # fmt: skip
        # Words in the place of a parameter come first: `@me`, `@original`.
        self._operations.sort(key=lambda one: one.route.count("{"))
        self._validators: dict[str, Draft202012Validator] = {}

    @classmethod
    @cache
    def load(cls, path: str) -> Spec:
        """Read a file once in a process."""
        return cls(Path(path).read_text(encoding="utf-8"))

    def find(self, method: str, path: str) -> Operation | None:
        """The operation of a request."""
        return next(
            (one for one in self._operations if one.route.split()[0] == method and one.pattern.fullmatch(path)), None
        )

    def problems(self, value: object, schema: Json) -> Iterator[str]:
        """What is wrong with a value."""
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            self._validators[key] = Draft202012Validator({"components": self.document["components"], "allOf": [schema]})
        for error in self._validators[key].iter_errors(value):
            deepest = best_match([error]) or error
            yield f"{deepest.json_path}: {deepest.message[:200]}"

    def judge_request(
        self, found: Operation, query: Mapping[str, str], body: object, *, has_files: bool
    ) -> Iterator[str]:
        """What is wrong with a request."""
        for one in found.parameters:
            if one["in"] != "query":
                continue
            if (value := query.get(one["name"])) is not None:
                yield from (
                    f"query {one['name']}{problem}"
                    for problem in self.problems(_typed(value, self.resolve(one["schema"])), one["schema"])
                )
            elif one.get("required"):
                yield f"query {one['name']} is missing"
        known = {one["name"] for one in found.parameters if one["in"] == "query"}
        yield from (f"query {name} is not described" for name in query if name not in known)
        content = found.description.get("requestBody", {}).get("content", {})
        if body is not None or has_files:
            media = "multipart/form-data" if has_files else "application/json"
            if media not in content:
                yield f"takes no {media}"
                return
            yield from (
                f"body{problem}"
                for problem in self.problems(body, content.get("application/json", content[media])["schema"])
            )
        elif found.description.get("requestBody", {}).get("required"):
            yield "has no body"

    def judge_answer(self, found: Operation, status: int, result: object) -> Iterator[str]:
        """What is wrong with an answer."""
        responses = found.description["responses"]
        if (response := responses.get(str(status)) or responses.get(f"{status // 100}XX")) is None:
            yield f"answers {status}, which is not described"
            return
        content = self.resolve(response).get("content", {}).get("application/json")
        if content is not None:
            yield from (f"answer{problem}" for problem in self.problems(result, content["schema"]))
        elif result is not None:
            yield f"answers {status} with a body"

    def resolve(self, value: Json) -> Json:
        """Follow a reference within the description."""
        while "$ref" in value:
            found: Any = self.document
            for part in value["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            value = found
        return value


def _typed(value: str, schema: Json) -> object:
    kind = schema.get("type")
    if kind == "integer":
        return int(value) if value.lstrip("-").isdigit() else value
    return {"true": True, "false": False}.get(value, value) if kind == "boolean" else value
