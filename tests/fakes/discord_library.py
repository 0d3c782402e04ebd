"""What discord.py declares of Discord's messages, in the sources of its types, and messages made of that."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import discord

_TYPES = Path(discord.__file__).parent / "types"


@cache
def _module(name: str) -> ast.Module:
    return ast.parse((_TYPES / f"{name}.py").read_text(encoding="utf-8"))


def declared_fields(module: str, kind: str) -> frozenset[str]:
    """The keys of a declared object, with those of the objects it is derived from in the same file."""
    for node in _module(module).body:
        if isinstance(node, ast.ClassDef) and node.name == kind:
            own = {
                part.target.id
                for part in node.body
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            }
            bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id != "TypedDict"]
            return frozenset(own).union(*(declared_fields(module, base) for base in bases))
    raise LookupError(f"discord.types.{module} declares no {kind}")


def declared_values(module: str, name: str) -> frozenset[object]:
    """The values of a declared `Literal`."""
    for node in _module(module).body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return frozenset(part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant))
    raise LookupError(f"discord.types.{module} declares no {name}")


class LibraryTypes:
    """The declared types as JSON schemas; a reference is `MODULE/NAME`."""

    ALSO: ClassVar[dict[str, dict[str, str]]] = {
        "message/Message": {
            "components": "List[Component]", "message_snapshots": "List[ForwardedSnapshot]", "shared_client_theme": "Theme",
        },
        "message/MessageSnapshot": {"components": "List[Component]"},
    }  # fmt: skip
    """Fields that are declared less closely than they are, or not at all."""
    OTHERS: ClassVar[dict[str, dict[str, Any]]] = {
        "Component": {"$ref": "components/Component"},
        "ForwardedSnapshot": {
            "type": "object", "properties": {"message": {"$ref": "message/MessageSnapshot"}}, "required": ["message"],
        },
        "Theme": {"type": "object", "properties": {"colors": {"type": "array", "items": {"type": "string"}}}},
        "Snowflake": {"type": "string", "format": "snowflake"},
        "SnowflakeList": {"type": "array", "items": {"type": "string", "format": "snowflake"}},
        "str": {"type": "string"}, "int": {"type": "integer"}, "float": {"type": "number"}, "bool": {"type": "boolean"},
        "None": {"type": "null"}, "Any": {"type": "null"}, "object": {"type": "null"},
    }  # fmt: skip
    TIMES = frozenset({"timestamp", "edited_timestamp", "ended_timestamp", "joined_at", "expiry", "premium_since"})

    @cache  # noqa: B019 - there is one
    def resolve(self, reference: str) -> dict[str, Any]:
        """The schema of a declared type."""
        module, _, name = reference.partition("/")
        if name in self.OTHERS and reference != "components/Component":
            return self.OTHERS[name]
        for node in _module(module).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return self._object(module, node)
            if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
                return self._schema(module, node.value)
        for part in ast.walk(_module(module)):
            if isinstance(part, ast.ImportFrom) and part.level and any(one.name == name for one in part.names):
                return {"$ref": f"{part.module}/{name}"}
        raise LookupError(reference)

    def _object(self, module: str, node: ast.ClassDef) -> dict[str, Any]:
        total = not any(one.arg == "total" and not ast.literal_eval(one.value) for one in node.keywords)
        properties: dict[str, Any] = {}
        required: list[str] = []
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id != "TypedDict":
                inherited = self._followed({"$ref": f"{module}/{base.id}"})
                properties |= inherited["properties"]
                required += inherited["required"]
        fields = {part.target.id: part.annotation for part in node.body
                  if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)}  # fmt: skip
        also = self.ALSO.get(f"{module}/{node.name}", {})
        fields |= {name: ast.parse(f"NotRequired[{text}]", mode="eval").body for name, text in also.items()}
        for name, annotation in fields.items():
            mark = (
                annotation.value.id
                if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name)
                else ""
            )
            properties[name] = self._schema(module, annotation)
            if name in self.TIMES:
                time = {"type": "string", "format": "date-time"}
                is_optional = "Optional" in ast.unparse(annotation)
                properties[name] = {"oneOf": [{"type": "null"}, time]} if is_optional else time
            if mark == "Required" or (total and mark != "NotRequired"):
                required.append(name)
        return {
            "type": "object",
            "properties": properties,
            "required": [name for name in required if name in properties],
        }

    def _followed(self, schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            schema = self.resolve(schema["$ref"])
        return schema

    def _schema(self, module: str, node: ast.expr) -> dict[str, Any]:
        match node:
            case ast.Constant(value=None):
                return {"type": "null"}
            case ast.Constant(value=str(text)):
                return self._schema(module, ast.parse(text, mode="eval").body)
            case ast.Name(id=name):
                return self.OTHERS.get(name, {"$ref": f"{module}/{name}"})
            case ast.Subscript(value=ast.Name(id="Literal")):
                return {"enum": [one.value for one in ast.walk(node.slice) if isinstance(one, ast.Constant)]}
            case ast.Subscript(value=ast.Name(id="List" | "Sequence")):
                return {"type": "array", "items": self._schema(module, node.slice)}
            case ast.Subscript(value=ast.Name(id="Dict")) if isinstance(node.slice, ast.Tuple):
                return {"type": "object", "additionalProperties": self._schema(module, node.slice.elts[1])}
            case ast.Subscript(value=ast.Name(id="Optional")):
                return {"oneOf": [{"type": "null"}, self._schema(module, node.slice)]}
            case ast.Subscript(value=ast.Name(id="Union")) if isinstance(node.slice, ast.Tuple):
                return {"oneOf": [self._schema(module, one) for one in node.slice.elts]}
            case ast.Subscript(value=ast.Name(id="NotRequired" | "Required")):
                return self._schema(module, node.slice)
        raise LookupError(ast.unparse(node))
