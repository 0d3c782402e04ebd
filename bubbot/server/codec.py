"""Convert values of the ports and errors to JSON and back."""

from __future__ import annotations

import types
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from bubbot.errors import BubbotError, ControlError
from bubbot.records import json_data

JsonObject: TypeAlias = dict[str, Any]
CLASS_KEY = "is"
MAX_ERROR_NUMBER = 10.0**9
"""The largest number that an error may carry; nobody waits for thirty years."""
T = TypeVar("T")


def encode(value: Any) -> JsonObject:
    """Return a dataclass as JSON, tagged with the name of its class."""
    return {CLASS_KEY: type(value).__name__, **json_data(value)}


def decode(data: object, *classes: type[T]) -> T:
    """Return the value of one of these classes. Raise `ControlError` for anything that `encode` would not write."""
    class_name = data.get(CLASS_KEY) if isinstance(data, Mapping) else None
    value_class = next((each for each in classes if each.__name__ == class_name), None)
    if value_class is None or not isinstance(data, Mapping):
        raise ControlError(f"{class_name!r} is none of {', '.join(each.__name__ for each in classes)}")
    value: T = _build(value_class, {key: item for key, item in data.items() if key != CLASS_KEY}, value_class.__name__)
    return value


def encode_error(error: BubbotError) -> JsonObject:
    """Return an error as JSON: kind, text, and the attributes of its class."""
    extra = {name: _json_attribute(getattr(error, name)) for name in _attributes(type(error))}
    return {**extra, "kind": error.kind, "text": str(error)}


def decode_error(data: object) -> BubbotError:
    """Build the error that the other end reports: of the same class, or of the base class if the kind is unknown.

    It has every attribute of its class. An attribute that is missing, or does not fit its type, keeps the default of
    the class. The text can be stored: it has no lone surrogates.
    """
    if not isinstance(data, Mapping):
        return ControlError("the other end failed and did not say how")
    kind, text = data.get("kind"), data.get("text")
    error_class = next((each for each in _classes(BubbotError) if each.kind == kind), BubbotError)
    error = error_class.__new__(error_class)
    # Some classes write their text themselves, from other arguments.
    Exception.__init__(error, text.encode(errors="replace").decode() if isinstance(text, str) else "")
    for name, hint in _attributes(error_class).items():
        with suppress(ControlError):
            setattr(error, name, _attribute(hint, data[name], name) if name in data else getattr(error_class, name))
    return error


def _attributes(kind: type[BubbotError]) -> dict[str, Any]:
    """Return the attributes that an error class declares besides its kind, with their types."""
    return {name: hint for name, hint in get_type_hints(kind).items() if hasattr(kind, name)}


def _json_attribute(value: object) -> object:
    """Return an attribute of an error as JSON; text replaces what JSON cannot hold."""
    if isinstance(value, Mapping):
        return {str(key): _json_attribute(inner) for key, inner in value.items()}
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _attribute(hint: Any, value: Any, name: str) -> Any:
    """Return the value if it fits the type. Numbers are seconds and counts: finite, and not below 0."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value <= MAX_ERROR_NUMBER:  # also rejects NaN
            raise ControlError(f"{name} is {value!r}, which does not fit")
        value = float(value) if hint is float or float in get_args(hint) else value
    return _build(hint, value, name)


def _classes(root: type[BubbotError]) -> list[type[BubbotError]]:
    return [root, *(below for child in root.__subclasses__() for below in _classes(child))]


def _build(value_type: Any, data: Any, path: str) -> Any:
    """Return `data` as a value of type `wanted`, or raise `ControlError`."""
    origin, arguments = get_origin(value_type), get_args(value_type)
    if is_dataclass(value_type):
        return _dataclass(value_type, data, path)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        return _build(next(each for each in arguments if each is not type(None)), data, path)
    if origin is tuple and isinstance(data, list):
        return tuple(_build(arguments[0], inner, f"{path}[{index}]") for index, inner in enumerate(data))
    if origin is Literal and data in arguments:
        return data
    if origin is not None and isinstance(data, dict) and issubclass(origin, Mapping):
        return data
    return _scalar(value_type, data, path)


def _scalar(value_type: Any, data: Any, path: str) -> Any:
    if value_type is bytes and isinstance(data, str):
        return _bytes(data, path)
    if isinstance(value_type, type) and issubclass(value_type, StrEnum) and data in list(value_type):
        return value_type(data)
    if value_type in (str, int, bool, float) and type(data) is value_type:
        return data
    raise ControlError(f"{path} is {type(data).__name__}, which does not fit")


def _dataclass(value_type: Any, data: Any, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise ControlError(f"{path} is {type(data).__name__}, not an object")
    known_fields = {field.name: field for field in fields(value_type)}
    if unknown := sorted(set(data) - set(known_fields)):
        raise ControlError(f"{path} has {unknown[0]!r}, which this version does not know: restart the bot")
    required = [
        field.name for field in known_fields.values() if field.default is MISSING and field.default_factory is MISSING
    ]
    if missing := [name for name in required if name not in data]:
        raise ControlError(f"{path} lacks {missing[0]!r}")
    hints = get_type_hints(value_type)
    return value_type(**{name: _build(hints[name], value, f"{path}.{name}") for name, value in data.items()})


def _bytes(data: str, path: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError as error:
        raise ControlError(f"{path} is not base64") from error
