"""The protocol between clients and the running bot: version, paths, limits, and JSON messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar, get_type_hints

import msgspec

from bubbot.errors import BubbotError, ConfigError, ControlError
from bubbot.tape.entry import thaw

JsonObject: TypeAlias = dict[str, Any]
T = TypeVar("T", bound=msgspec.Struct)
CLASS_KEY = "is"
MAX_ERROR_NUMBER = 10.0**9
"""The largest number that an error may carry; nobody waits for thirty years."""

PROTOCOL = 3
"""The version; both ends must have the same."""
PROTOCOL_HEADER = "Bubbot-Protocol"
HELLO_PATH, CHAT_PATH, COMMAND_PATH = "/api/hello", "/api/chat", "/api/do/"
MESSAGE_LIMIT = 256 * 2**20
"""Bytes of one request, answer, or message of a chat."""
CONNECTION_LOST = (
    "The other end of the control connection is gone. A bot answers what it had accepted after its next start; "
    "before a change is repeated, look whether it was made."
)


def describe_mismatch(client: object) -> str:
    """Return the sentence for a client that speaks another version."""
    return (
        f"the running bot speaks version {PROTOCOL} of the control protocol and this command {client!r}: "
        "restart the bot after an update"
    )


def encode_message(message: JsonObject) -> str:
    """Return a message as text. Raise `ConfigError` if it is too large to be sent."""
    text = json.dumps(message, separators=(",", ":"))  # ASCII, so that characters are bytes and any text survives
    if len(text) > MESSAGE_LIMIT:
        raise ConfigError(
            f"this is {len(text) // 2**20} MiB, and the running bot is handed at most {MESSAGE_LIMIT // 2**20}: "
            "stop the bot first, then run the command again"
        )
    return text


def parse_message(text: str | bytes) -> JsonObject:
    """Parse a message. Raise `ControlError` if the text is not one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ControlError("a message was not JSON") from error
    if not isinstance(value, dict):
        raise ControlError("a message was not a JSON object")
    return value


def encode(value: msgspec.Struct) -> JsonObject:
    """Return a value as JSON, tagged with the name of its class."""
    return {CLASS_KEY: type(value).__name__, **msgspec.to_builtins(value, enc_hook=thaw)}


def decode(data: object, *classes: type[T]) -> T:
    """Return the value of one of these classes. Raise `ControlError` for any other text."""
    class_name = data.get(CLASS_KEY) if isinstance(data, Mapping) else None
    value_class = next((each for each in classes if each.__name__ == class_name), None)
    if value_class is None or not isinstance(data, Mapping):
        raise ControlError(f"{class_name!r} is none of {', '.join(each.__name__ for each in classes)}")
    try:
        return msgspec.convert({key: item for key, item in data.items() if key != CLASS_KEY}, value_class)
    except (msgspec.ValidationError, UnicodeError) as error:
        raise ControlError(f"{class_name} is not as this version knows it ({error}): restart the bot") from error


def encode_error(error: BubbotError) -> JsonObject:
    """Return an error as JSON: kind, text, and the attributes of its class. Text replaces what JSON cannot hold."""
    extra = {name: getattr(error, name) for name in _attributes(type(error))}
    carried: JsonObject = msgspec.to_builtins(extra, enc_hook=str, str_keys=True)
    return {**carried, "kind": error.kind, "text": str(error)}


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
        setattr(error, name, getattr(error_class, name))
        with suppress(msgspec.ValidationError, UnicodeError):
            if name in data and _is_fitting(data[name]):
                setattr(error, name, msgspec.convert(data[name], hint))
    return error


def _attributes(kind: type[BubbotError]) -> dict[str, Any]:
    """Return the attributes that an error class declares besides its kind, with their types."""
    return {name: hint for name, hint in get_type_hints(kind).items() if hasattr(kind, name)}


def _is_fitting(value: object) -> bool:
    """Return true unless it is a number out of range: they are seconds and counts, finite and not below 0."""
    return not isinstance(value, int | float) or 0 <= value <= MAX_ERROR_NUMBER  # false for NaN, too


def _classes(root: type[BubbotError]) -> list[type[BubbotError]]:
    return [root, *(below for child in root.__subclasses__() for below in _classes(child))]
