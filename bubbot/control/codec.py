"""Values of the ports as JSON and back, and errors with their class."""

from __future__ import annotations

import types
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from bubbot.errors import BubbotError, ControlError

JsonObject: TypeAlias = dict[str, Any]
TAG = "is"
MOST_SECONDS = 10.0**9
"""The largest number that an error may carry; nobody waits for thirty years."""
T = TypeVar("T")


def encode(value: Any) -> JsonObject:
    """A dataclass as JSON, tagged with the name of its class."""
    return {TAG: type(value).__name__, **_plain(value)}


def decode(data: object, *classes: type[T]) -> T:
    """The value of one of these classes. Raises `ControlError` for anything that `encode` would not have written."""
    named = data.get(TAG) if isinstance(data, Mapping) else None
    wanted = next((one for one in classes if one.__name__ == named), None)
    if wanted is None or not isinstance(data, Mapping):
        raise ControlError(f"{named!r} is none of {', '.join(one.__name__ for one in classes)}")
    made: T = _made(wanted, {key: value for key, value in data.items() if key != TAG}, wanted.__name__)
    return made


def encode_error(error: BubbotError) -> JsonObject:
    """An error as JSON: kind, text, and what else its class carries."""
    extra = {name: _carried(getattr(error, name)) for name in _attributes(type(error))}
    return {**extra, "kind": error.kind, "text": str(error)}


def decode_error(data: object) -> BubbotError:
    """Build the error that the other end reports: of the same class, or of the base class if the kind is unknown.

    It has every attribute of its class. An attribute that is missing, or does not fit its type, keeps the default of the
    class. The text can be stored: it has no lone surrogates.
    """
    if not isinstance(data, Mapping):
        return ControlError("the other end failed and did not say how")
    kind, text = data.get("kind"), data.get("text")
    wanted = next((one for one in _classes(BubbotError) if one.kind == kind), BubbotError)
    made = wanted.__new__(wanted)
    # Some classes write their text themselves, from other arguments.
    Exception.__init__(made, text.encode(errors="replace").decode() if isinstance(text, str) else "")
    for name, hint in _attributes(wanted).items():
        with suppress(ControlError):
            setattr(made, name, _attribute(hint, data[name], name) if name in data else getattr(wanted, name))
    return made


def _attributes(kind: type[BubbotError]) -> dict[str, Any]:
    """The attributes that an error class declares besides its kind, with their types."""
    return {name: hint for name, hint in get_type_hints(kind).items() if hasattr(kind, name)}


def _carried(value: object) -> object:
    """An attribute of an error as JSON; texts stand for what JSON cannot hold."""
    if isinstance(value, Mapping):
        return {str(key): _carried(inner) for key, inner in value.items()}
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _attribute(hint: Any, value: Any, name: str) -> Any:
    """The value if it fits the type. Numbers are seconds and counts: finite, and not below 0."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value <= MOST_SECONDS:  # also refuses what is not a number
            raise ControlError(f"{name} is {value!r}, which does not fit")
        value = float(value) if hint is float or float in get_args(hint) else value
    return _made(hint, value, name)


def _classes(root: type[BubbotError]) -> list[type[BubbotError]]:
    return [root, *(found for one in root.__subclasses__() for found in _classes(one))]


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return value


def _made(wanted: Any, data: Any, where: str) -> Any:
    """The value of this type, or `ControlError`."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if is_dataclass(wanted):
        return _dataclass(wanted, data, where)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        return _made(next(one for one in arguments if one is not type(None)), data, where)
    if origin is tuple and isinstance(data, list):
        return tuple(_made(arguments[0], inner, f"{where}[{place}]") for place, inner in enumerate(data))
    if origin is Literal and data in arguments:
        return data
    if origin is not None and isinstance(data, dict) and issubclass(origin, Mapping):
        return data
    if wanted is bytes and isinstance(data, str):
        return _bytes(data, where)
    if wanted in (str, int, bool, float) and type(data) is wanted:
        return data
    raise ControlError(f"{where} is {type(data).__name__}, which does not fit")


def _dataclass(wanted: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise ControlError(f"{where} is {type(data).__name__}, not an object")
    known = {one.name: one for one in fields(wanted)}
    if strange := sorted(set(data) - set(known)):
        raise ControlError(f"{where} has {strange[0]!r}, which this version does not know: restart the bot")
    needed = [one.name for one in known.values() if one.default is MISSING and one.default_factory is MISSING]
    if missing := [name for name in needed if name not in data]:
        raise ControlError(f"{where} lacks {missing[0]!r}")
    hints = get_type_hints(wanted)
    return wanted(**{name: _made(hints[name], value, f"{where}.{name}") for name, value in data.items()})


def _bytes(data: str, where: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except ValueError as error:
        raise ControlError(f"{where} is not base64") from error
