"""The arguments of tools and commands: declared once as a class, read from texts and JSON, described, and written again.

A class of arguments is an `Args`, whose fields have `msgspec.Meta` with a description and limits.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from bubbot.errors import ConfigError
from bubbot.json_schema import refuse_constant
from bubbot.tape.entry import JsonObject, encode, thaw


class Args(Struct, frozen=True, forbid_unknown_fields=True):
    r"""Base of classes of arguments. An unknown argument is refused, so that a misspelt one is not ignored.

    A field with a pattern says in words what it takes, `Meta(pattern=r"^[a-z]+\Z", extra={"form": "small letters"})`. The pattern
    ends with `\Z`: `$` lets a line feed through.
    """

    @classmethod
    def normalize(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values in the forms that the fields have: models and people write some of them in others.

        Raises:
            ValueError: what is wrong with them, as a sentence.
        """
        return values

    def find_problem(self) -> str:
        """Say what is wrong with several of the arguments together; empty for nothing."""
        return ""


class NoArguments(Args, frozen=True):
    """The arguments of commands that take none."""


class JsonArgs(Args, frozen=True):
    """Arguments that a JSON Schema declares and no class of ours, as those of tools of others.

    Attributes:
        values: by the names of the schema.
    """

    values: JsonObject


ONE_A_LINE = "one a line"
"""A mark of a list whose items stand on a line each if they come as one text; by default commas separate them."""


class ArgumentField(Struct, frozen=True):
    """A declared argument.

    Attributes:
        name: as it is typed.
        annotation: its type, without marks.
        is_required: it has no default.
        description: what it means.
        marks: what else its annotation says, such as limits.
    """

    name: str
    annotation: Any
    is_required: bool
    description: str = ""
    marks: tuple[Any, ...] = ()

    @property
    def is_list(self) -> bool:
        """True if it takes several values, which are typed with commas between them."""
        return any(get_origin(kind) in (list, tuple) for kind in (self.annotation, *get_args(self.annotation)))

    @property
    def choices(self) -> tuple[Any, ...]:
        """The values that it may have; empty for any. An empty text among them means the default, and nobody types it."""
        kind = strip_optional(self.annotation)
        return tuple(filter(None, get_args(kind))) if get_origin(kind) is Literal else ()


class ArgumentProblem(Struct, frozen=True):
    """What is wrong with one argument.

    Attributes:
        name: the argument; empty for a rule about several.
        kind: the type of the error: `missing`, `int_parsing` and so on.
        value: what it is.
        limits: the limits that it breaks, such as `ge` and `max_length`; for a pattern `form`, what it takes.
        reason: what a validator of ours says.
    """

    name: str
    kind: str
    value: object = None
    limits: Mapping[str, Any] = {}
    reason: str = ""


@cache
def _declared(args: type[Args]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a class. To find them leaves objects in cycles, so it is done once for each class."""
    return msgspec.structs.fields(args)


@cache
def fields_of(args: type[Args]) -> Mapping[str, ArgumentField]:
    """Return the declared arguments of a class, by their names, in its order."""
    return {field.encode_name: _field_of(field) for field in _declared(args)}


def require_args(owner: str, args: object) -> None:
    """Raise `ConfigError` if what a tool or command is declared with is no class of arguments.

    Args:
        owner: what is declared, such as `the tool dice.roll`.
        args: the annotation of its parameter `args`; None without one.
    """
    if isinstance(args, type) and issubclass(args, Args):
        return
    how = "derive it from bubbot.arguments.fields.Args, with Annotated[..., Meta(description=...)] for its fields"
    if not isinstance(args, type):
        raise ConfigError(f"{owner} needs a parameter `args` annotated with its class of arguments: {how}")
    raise ConfigError(f"{owner} takes {args.__module__}.{args.__qualname__}, which is no class of arguments: {how}")


def _field_of(field: msgspec.structs.FieldInfo) -> ArgumentField:
    annotation, marks = _split_marks(field.type)
    if get_origin(annotation) in (Union, UnionType):  # what is not said is `UNSET`; limits stand beside `None`
        kinds = [_split_marks(kind) for kind in get_args(annotation) if kind is not msgspec.UnsetType]
        annotation = Union[tuple([kind for kind, _ in kinds])]  # noqa: UP007 - of a computed tuple
        marks = (*marks, *[mark for _, inner in kinds for mark in inner])
    described = [mark.description for mark in marks if isinstance(mark, Meta) and mark.description]
    is_required = field.default is NODEFAULT and field.default_factory is NODEFAULT
    return ArgumentField(field.encode_name, annotation, is_required, described[0] if described else "", marks)


def _split_marks(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    marks: tuple[Any, ...] = ()
    while hasattr(annotation, "__metadata__"):
        annotation, marks = get_args(annotation)[0], (*annotation.__metadata__, *marks)
    return annotation, marks


def strip_optional(annotation: Any) -> Any:
    """Return the type below `| None`."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    others = [kind for kind in kinds if kind is not NoneType]
    return others[0] if len(others) == 1 and len(others) < len(kinds) else annotation


# Reading


def parse_args(kind: type[Args], values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[ArgumentProblem, ...]]:
    """Read texts or JSON values as the fields of a class; return them, and what is wrong, unknown arguments last.

    Each field is converted alone, since msgspec stops at the first error.
    """
    try:
        values = kind.normalize(values)
    except ValueError as error:
        return {}, (ArgumentProblem("", "rule", dict(values), reason=str(error)),)
    fields, problems = fields_of(kind), list[ArgumentProblem]()
    names = {field.encode_name: field for field in _declared(kind)}
    parsed: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in values:
            problems += [ArgumentProblem(name, "missing", dict(values))] if field.is_required else []
            continue
        value = _read_text(values[name], field)
        try:
            parsed[names[name].name] = msgspec.convert(value, names[name].type, strict=False)
        except msgspec.ValidationError:
            problems.append(_explain(field, value))
            continue
        texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
        problems += filter(None, [_check_text(name, text) for text in texts])
    problems += [ArgumentProblem(name, "extra_forbidden", values[name]) for name in values if name not in fields]
    if not problems and (reason := kind(**parsed).find_problem()):
        problems.append(ArgumentProblem("", "rule", dict(values), reason=reason))
    return parsed, tuple(problems)


_YES_NO = {"yes": True, "y": True, "on": True, "t": True, "no": False, "n": False, "off": False, "f": False}


def _read_text(value: Any, field: ArgumentField) -> Any:
    """Read what people write for yes and no and for numbers, and lists with commas."""
    if not isinstance(value, str):
        return value
    kind = strip_optional(field.annotation)
    if kind is bool:
        return _YES_NO.get(value.strip().lower(), value.strip())
    if kind in (int, float):
        return value.strip()
    separator = "\n" if ONE_A_LINE in field.marks else ","
    return [item.strip() for item in value.split(separator) if item.strip()] if field.is_list else value


def _check_text(name: str, value: str) -> ArgumentProblem | None:
    """Return what is wrong with a text that no tape accepts; JSON can spell such texts."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        reason = f"character {error.start} is half of a surrogate pair: it is not valid text"
        return ArgumentProblem(name, "text", value, reason=reason)
    return None


_LIMITS: Mapping[str, tuple[str, str, Callable[[Any, Any], bool]]] = {
    "ge": ("greater_than_equal", "ge", operator.lt),
    "gt": ("greater_than", "gt", operator.le),
    "le": ("less_than_equal", "le", operator.gt),
    "lt": ("less_than", "lt", operator.ge),
    "min_length": ("string_too_short", "too_short", lambda value, limit: len(value) < limit),
    "max_length": ("string_too_long", "too_long", lambda value, limit: len(value) > limit),
    "pattern": ("string_pattern_mismatch", "", lambda value, limit: not re.search(limit, value)),
}
"""For each limit of `Meta` the problem of a value, that of a list for lengths, and what breaks it."""
_WRONG: Mapping[Any, str] = {str: "string_type", int: "int_parsing", float: "float_parsing", bool: "bool_parsing"}


def _explain(field: ArgumentField, value: Any) -> ArgumentProblem:
    """Find what is wrong with a value, by its declaration; a library's words are not parsed."""
    kind = strip_optional(field.annotation)
    if field.is_list and isinstance(value, (list, tuple)):
        item_kind = get_args(kind)[0]
        for item in value:
            try:
                msgspec.convert(item, item_kind, strict=False)
            except msgspec.ValidationError:
                return _explain(ArgumentField(field.name, item_kind, is_required=True), item)
    if get_origin(kind) is Literal:
        expected = " or ".join(repr(choice) for choice in get_args(kind))
        return ArgumentProblem(field.name, "literal_error", value, {"expected": expected})
    try:
        read = msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return ArgumentProblem(field.name, _WRONG.get(kind, "wrong"), value)
    for mark in (mark for mark in field.marks if isinstance(mark, Meta)):
        for name, (problem, of_list, is_broken) in _LIMITS.items():
            if (limit := getattr(mark, name)) is not None and is_broken(read, limit):
                if name == "pattern":
                    limits = {"form": (mark.extra or {}).get("form", "")}
                    return ArgumentProblem(field.name, problem if limits["form"] else "wrong", value, limits)
                is_list = not isinstance(read, str) and name.endswith("length")
                return ArgumentProblem(field.name, of_list if is_list else problem, value, {name: limit})
    return ArgumentProblem(field.name, "wrong", value)


# Writing


def dump_args(args: Args) -> dict[str, Any]:
    """Return all arguments as JSON values, those with their default, too: the digest of a call is made of this."""
    dumped: dict[str, Any] = msgspec.to_builtins(args.values if isinstance(args, JsonArgs) else args, enc_hook=thaw)
    return dumped


def dump_given(args: Args) -> dict[str, Any]:
    """Return the arguments that differ from their default as JSON values."""
    if isinstance(args, JsonArgs):
        return dump_args(args)
    default = {field.encode_name: field.default for field in _declared(type(args))}
    return {
        name: value for name, value in dump_args(args).items() if default[name] is NODEFAULT or value != default[name]
    }


def write_given(args: Args, *, indent: int = 0) -> str:
    """Write the arguments that were given as JSON: what is stored of a call, and what people are shown of one."""
    text = encode(dump_given(args))
    return msgspec.json.format(text, indent=indent) if indent else text


# Forms


def form_fields(form: str) -> Sequence[str]:
    """Return the names of the arguments in a form such as `<source> to <reader> [role]`."""
    return [word.strip("<>[]") for word in form.split() if word[0] in "<["]


def drop_joining_words(form: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as people type them without the words that a form has before them, such as `to`."""
    found, words = dict(values), form.split()
    for before, word in pairwise(words):
        name = word.strip("<>[]")
        if before[0] not in "<[" and isinstance(found.get(name), str):
            found[name] = found[name].removeprefix(f"{before} ").strip()
    return found


# The schema


_LEFT_OUT = {"title", "default", "minLength", "maxLength", "pattern"}
"""What a call is written without. It is checked when the call comes, and the error says what to fix."""


@cache
def build_schema(args: type[Args]) -> JsonObject:
    """Build the JSON schema of a class as a model sees it. Every request has it, so it has only what a call is written by."""
    (reference,), types = msgspec.json.schema_components([args], ref_template="#/$defs/{name}")
    own = types.pop(reference["$ref"].removeprefix("#/$defs/"))
    properties = {name: _trim(own["properties"][name], field.annotation) for name, field in fields_of(args).items()}
    rest = {"required": own["required"], "type": "object", "$defs": types}
    return {"properties": properties, **{key: part for key, part in rest.items() if part}}


_SCHEMA_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}


def fields_of_schema(schema: JsonObject) -> Mapping[str, ArgumentField]:
    """Return the arguments that a JSON Schema of an object declares, by their names. Lists and tables are typed as JSON."""
    properties, required = schema.get("properties"), schema.get("required") or ()
    return {
        name: ArgumentField(
            name, _SCHEMA_TYPES.get(str(_part(each, "type")), str), name in required, str(_part(each, "description"))
        )
        for name, each in (properties if isinstance(properties, Mapping) else {}).items()
    }


def read_json_texts(schema: JsonObject, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with the texts read as JSON for which a JSON Schema wants another type, as people and some models write them."""
    properties = schema.get("properties")
    found = {}
    for name, value in values.items():
        wanted = _part(properties.get(name), "type") if isinstance(properties, Mapping) else ""
        found[name] = _read_json(value) if isinstance(value, str) and wanted and "string" not in wanted else value
    return found


def _part(schema: object, key: str) -> Any:
    return schema.get(key, "") if isinstance(schema, Mapping) else ""


def _read_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return text  # the schema says what is wrong with it


def _trim(schema: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    kind = strip_optional(kind)
    if schema.get("anyOf", ())[1:] == [{"type": "null"}]:  # what may be left out need not be null as well
        return _trim({key: part for key, part in schema.items() if key != "anyOf"} | schema["anyOf"][0], kind)
    kept = {key: part for key, part in schema.items() if key not in _LEFT_OUT}
    if get_origin(kind) is Literal:  # in the declared order; an empty text means the default
        kept |= {"enum": [choice for choice in get_args(kind) if choice != ""], "type": "string"}
    elif isinstance(items := kept.get("items"), dict):
        kept["items"] = _trim(items, get_args(kind)[0])
    elif kept.get("type") == "object":
        kept.setdefault("additionalProperties", True)
    return dict(sorted(kept.items()))
