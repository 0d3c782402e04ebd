"""What clients and the running bot agree on: version, paths, limits, and messages of JSON."""

from __future__ import annotations

import json

from bubbot.errors import ConfigError, ControlError
from bubbot.server.codec import JsonObject

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
    """Return the message that a text is. Raise `ControlError` if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ControlError("a message was not JSON") from error
    if not isinstance(value, dict):
        raise ControlError("a message was not a JSON object")
    return value
