"""The JSON schema of a tool's arguments, as a model sees it.

Every request carries it, so it says what a model needs to write a call. Whatever else the class demands is checked when
the call comes, and the error says what to fix.
"""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import BaseMetadata, Ge, Gt, Le, Lt, MaxLen, MinLen
from msgspec import Meta
from pydantic import AfterValidator, BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined

from bubbot.arguments.fields import AnyArgs, Args, fields_of
from bubbot.tape.entry import JsonObject

_PLAIN_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LEFT_OUT = {"pattern", "coerce_numbers_to_str"}
"""What marks demand of a text without a word of it in the schema."""


@cache
def build_schema(args: type[AnyArgs]) -> JsonObject:
    """Build the schema of a class of arguments, once for each.

    That of an `Args` follows from its fields. That of plain fields is written from their declarations: pydantic would build a validator first, which few of the tools
    need in a process, and takes 20 times as long. It is asked for any other class.
    """
    if issubclass(args, Args):
        return describe_args(args)
    return describe_fields(args) or describe_by_pydantic(args)


def describe_args(args: type[Args]) -> dict[str, Any]:
    """Write the schema from the fields of an `Args`. Raise `TypeError` for a field of a type that has no words here."""
    properties: dict[str, Any] = {}
    for name, field in fields_of(args).items():
        described = _describe_type(field.annotation)
        if described is None:
            raise TypeError(f"{args.__name__}.{name} is {field.annotation}, which no schema describes")
        for mark in (mark for mark in field.marks if isinstance(mark, Meta)):
            described |= _describe_limits(mark, is_array=described["type"] == "array")
        properties[name] = dict(sorted({**described, "description": field.description}.items()))
        if not field.description:
            del properties[name]["description"]
    required = [name for name, field in fields_of(args).items() if field.is_required]
    return {"properties": properties, **({"required": required} if required else {}), "type": "object"}


def _describe_limits(mark: Meta, *, is_array: bool) -> dict[str, Any]:
    """Return the limits that a model needs to know; lengths of texts are told if they are passed."""
    numbers = {
        "minimum": mark.ge, "exclusiveMinimum": mark.gt, "maximum": mark.le, "exclusiveMaximum": mark.lt,
    }  # fmt: skip
    counts = {"minItems": mark.min_length, "maxItems": mark.max_length} if is_array else {}
    return {name: limit for name, limit in (numbers | counts).items() if limit is not None}


def describe_fields(args: type[BaseModel]) -> dict[str, Any] | None:
    """Write the schema from the declarations; None if these say more to pydantic than this function knows."""
    if args.model_config.get("json_schema_extra"):
        return None
    properties: dict[str, Any] = {}
    for name, field in args.model_fields.items():
        described = _describe_field(field)
        if described is None:
            return None
        properties[name] = described
    required = [name for name, field in args.model_fields.items() if field.is_required()]
    return {"properties": properties, **({"required": required} if required else {}), "type": "object"}


def describe_by_pydantic(args: type[BaseModel]) -> dict[str, Any]:
    """Let pydantic build the schema, and leave out what a call is written without."""
    schema = args.model_json_schema(schema_generator=_QuickSchema)
    for key in ("title", "description", "additionalProperties"):  # the class docstring is for us
        schema.pop(key, None)
    for value in schema.get("properties", {}).values():
        kinds = value.get("anyOf", ())
        if len(kinds) == 2 and kinds[1] == {"type": "null"}:  # what may be left out need not be null as well
            del value["anyOf"]
            value.update(kinds[0])
        for key in ("title", "default", "minLength", "maxLength", "pattern"):
            value.pop(key, None)
        if "" in value.get("enum", ()):
            value["enum"] = [choice for choice in value["enum"] if choice]
    return schema


class _QuickSchema(GenerateJsonSchema):
    """A schema whose plain defaults are taken as they are: pydantic builds a serializer for each, a third of all it does."""

    def encode_default(self, dft: Any) -> Any:
        return dft if dft is None or type(dft) in (bool, int, str) else super().encode_default(dft)


def _describe_field(field: FieldInfo) -> dict[str, Any] | None:
    described = _describe_type(field.annotation)
    if described is None or field.alias or field.validation_alias or field.examples or field.json_schema_extra:
        return None
    if field.deprecated or not all(_describe_mark(mark, described) for mark in field.metadata):
        return None
    if field.description:
        described["description"] = field.description
    return dict(sorted(described.items()))


def _describe_type(kind: Any) -> dict[str, Any] | None:
    origin, options = get_origin(kind), get_args(kind)
    if kind in _PLAIN_TYPES:
        return {"type": _PLAIN_TYPES[kind]}
    if origin is Literal and len(options) > 1 and all(type(option) is str for option in options):
        return {"enum": [option for option in options if option], "type": "string"}
    if origin in (Union, UnionType) and len(options) == 2 and options[1] is NoneType:
        return _describe_type(options[0])  # what may be left out need not be null as well
    if origin is list or (origin is tuple and options[1:] == (...,)):
        items = _describe_type(options[0])
        return None if items is None else {"items": items, "type": "array"}
    return {"additionalProperties": True, "type": "object"} if kind == dict[str, Any] else None


def _describe_mark(mark: object, described: dict[str, Any]) -> bool:
    """Add what a mark of a field says to its schema. Return false if only pydantic knows what it says."""
    is_array = described["type"] == "array"
    match mark:
        case Ge(ge=bound):
            described["minimum"] = bound
        case Gt(gt=bound):
            described["exclusiveMinimum"] = bound
        case Le(le=bound):
            described["maximum"] = bound
        case Lt(lt=bound):
            described["exclusiveMaximum"] = bound
        case MinLen(min_length=length):
            described |= {"minItems": length} if is_array else {}
        case MaxLen(max_length=length):
            described |= {"maxItems": length} if is_array else {}
        case BeforeValidator(json_schema_input_type=kind):
            return kind is PydanticUndefined
        case AfterValidator():
            return True
        case BaseMetadata():
            return {*getattr(mark, "__dict__", "?")} <= _LEFT_OUT
        case _:  # a mark of ours, which pydantic does not know either
            return not hasattr(mark, "__get_pydantic_json_schema__")
    return True
