"""Values that a JSON schema allows, made from a seed: every field comes and stays away, every alternative is taken."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
SIGNS = " \n\t.,:;!?'\"`*_~|\\#[]()<>{}@&%€ßéא中🙂\u200b\u202e"
MENTIONS = ("@", "#", "@&")
TAGS = (*MENTIONS, "t:1795298000:R", ":a:5", "/b c:6", "id:guide")
MAX_DEPTH = 9
"""Values within values; from here on only what has to be."""


class SchemaValues:
    """Makes values.

    Args:
        seed: of all choices.
        resolve: gives the schema that a `$ref` names.
        ids: what ids are taken from, so that some are those of the same people and places.
    """

    def __init__(self, seed: int, resolve: Callable[[str], Schema], ids: list[str]) -> None:
        self.random = random.Random(seed)
        self._resolve = resolve
        self._ids = ids
        self._words = 0

    def make(self, schema: Schema, depth: int = 0) -> Any:
        """A value. Each text has a word that no other has: `w17w`."""
        if "$ref" in schema:
            return self.make(self._resolve(schema["$ref"]), depth + 1)
        for key in ("oneOf", "anyOf"):
            if key in schema and "enum" not in schema:
                choices = schema[key]
                simple = [one for one in choices if "$ref" not in one and one.get("type") not in ("object", "array")]
                return self.make(self.random.choice(simple if simple and depth > MAX_DEPTH else choices), depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        if "allOf" in schema:
            return self._merged(
                [*schema["allOf"], {name: value for name, value in schema.items() if name != "allOf"}], depth
            )
        kinds = schema.get("type", "object" if "properties" in schema else "null")
        kind = self.random.choice(kinds) if isinstance(kinds, list) else kinds
        return getattr(self, f"_{kind}")(schema, depth)

    def _merged(self, schemas: list[Schema], depth: int) -> Any:
        values = [self.make(one, depth) for one in schemas if one]
        objects = [value for value in values if isinstance(value, dict)]
        return {name: value for one in objects for name, value in one.items()} if objects else values[0]

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        often = 0.0 if depth > MAX_DEPTH else 0.5 if depth < 3 else 0.25
        made = {
            name: self.make(inner, depth + 1)
            for name, inner in schema.get("properties", {}).items()
            if name in required or self.random.random() < often
        }
        if isinstance(more := schema.get("additionalProperties"), dict) and often:
            made |= {self.random.choice(self._ids): self.make(more, depth + 1) for _ in range(self.random.randrange(3))}
        return made

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        low = schema.get("minItems", 0)
        count = low if depth > MAX_DEPTH else max(low, self.random.choice((0, 1, 1, 2, 3)))
        made: list[Any] = []
        for _ in range(count):
            value = self.make(schema.get("items", {}), depth + 1)
            if not (schema.get("uniqueItems") and value in made):
                made.append(value)
        return made

    def _string(self, schema: Schema, depth: int) -> str:
        match schema.get("format"):
            case "snowflake":
                return self.random.choice(self._ids)
            case "date-time":
                return f"2026-{self.random.randrange(1, 13):02}-{self.random.randrange(1, 29):02}T10:00:00.123000+00:00"
            case "uri":
                return f"https://example.org/{self._word()}"
        text = self._word()
        if "maxLength" in schema or self.random.random() < 0.6:
            return text
        for _ in range(self.random.choice((1, 2, 5))):
            piece = self._tag() if self.random.random() < 0.5 else self.random.choice(SIGNS)
            text = f"{text}{piece}" if self.random.random() < 0.5 else f"{piece}{text}"
        return text

    def _word(self) -> str:
        self._words += 1
        return f"w{self._words}w"

    def _tag(self) -> str:
        tag = self.random.choice(TAGS)
        return f" <{tag}{self.random.choice(self._ids) if tag in MENTIONS else ''}> "

    def _integer(self, schema: Schema, depth: int) -> int:
        low, high = schema.get("minimum", 0), schema.get("maximum", 2**31 - 1)
        return self.random.choice((low, high, self.random.randint(low, high), max(low, min(3, high))))

    def _number(self, schema: Schema, depth: int) -> float:
        return self.random.choice((0, 0.0, 1.5, 1e6, 12))

    def _boolean(self, schema: Schema, depth: int) -> bool:
        return self.random.random() < 0.5

    def _null(self, schema: Schema, depth: int) -> None:
        return None
