"""Chat messages as providers take them. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bubbot.ports.model import ModelRequest
from bubbot.tape.entry import JsonObject, thaw

MESSAGE_KEYS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"})
"""The keys of a message that a provider is sent; strict providers refuse a request with other keys."""
CALL_KEYS = ("extra_content", "provider_specific_fields")
"""The keys of a call that its provider wants back with it, such as Google's signature of the thought before it."""
SERVER_KEYS = frozenset({"calls", "reasoning_details"})
"""The keys of `replay` that only the server which sent them can read."""
PROTOCOLS = frozenset(
    {"azure", "hosted_vllm", "litellm_proxy", "llamafile", "lm_studio", "ollama", "ollama_chat", "openai", "openrouter"}
)
"""Providers whose models are of different makers: what one of them wants back, another may refuse."""
_REPLAY_KEYS = ("reasoning_content", "thinking_blocks", "reasoning_details")
_NO_EMPTY_TEXT = frozenset({"anthropic", "azure", "bedrock", "gemini", "litellm_proxy", "vertex_ai"})
"""Providers that are sent no text beside calls if it is empty. Some of them, or those behind them, refuse an empty one.

Servers of one's own are sent the empty text, because several of them refuse a missing one; what they want is learned.
"""
_ADDRESSES = frozenset({"url", "uri", "image_url", "video_url", "audio_url", "file_url", "file_uri", "file_id"})
"""Keys whose text is an address that litellm or the provider would fetch."""
MAX_ADDRESS_CHARS = 500
"""Characters of an address that its description shows."""


def provider_of(name: str) -> str:
    return name.partition("/")[0]


def build_messages(request: ModelRequest, name: str, server: str = "") -> list[dict[str, Any]]:
    """Build the chat messages, system prompt first, with the reasoning that the provider wants back. See `build_message`."""
    system = [{"role": "system", "content": request.system}] if request.system.strip() else []
    return [*system, *(build_message(message, name, server) for message in request.messages)]


def build_message(message: JsonObject, name: str, server: str = "") -> dict[str, Any]:
    """Build one message of a request to a model.

    Args:
        name: the model, `provider/model`.
        server: host and port of its configured address; empty for the usual one.
    """
    provider = provider_of(name)
    sent = {key: thaw(value) for key, value in message.items() if key in MESSAGE_KEYS}
    if isinstance(sent.get("content"), list):
        sent["content"] = [_describe_address(part) for part in sent["content"]]
    replay = message.get("replay")
    if isinstance(replay, Mapping) and replay.get("provider") == provider and replay.get("model", name) == name:
        # No other provider can read it: the blocks are signed by the provider that sent them.
        is_of_server = replay.get("server", "") == server
        keys = [key for key in _REPLAY_KEYS if key in replay and (is_of_server or key not in SERVER_KEYS)]
        sent |= {key: thaw(replay[key]) for key in keys}
        extras = replay.get("calls") if is_of_server else None
        if extras and len(extras) == len(calls := sent.get("tool_calls") or ()):
            sent["tool_calls"] = [{**call, **thaw(extra)} for call, extra in zip(calls, extras, strict=True)]
    if lacks_text(sent) and takes_no_empty_text(provider, server):
        sent["content"] = None
    return sent


def lacks_text(message: JsonObject) -> bool:
    """Return true if a message holds calls and no text."""
    return bool(message.get("tool_calls")) and not message.get("content")


def takes_no_empty_text(provider: str, server: str) -> bool:
    """Return true if this provider accepts calls only without an empty text. OpenAI documents that; its imitators vary."""
    return provider in _NO_EMPTY_TEXT or (provider == "openai" and not server)


def holds_address(message: JsonObject) -> bool:
    """Return true if `build_message` would replace a part of the message."""
    content = message.get("content")
    return isinstance(content, list | tuple) and any(_describe_address(part) is not part for part in content)


def _describe_address(part: Any) -> Any:
    """Replace a part that holds an address by a text about it, so that neither litellm nor the provider fetches it."""
    address = _find_address(part) if isinstance(part, Mapping) and part.get("type") != "text" else None
    if address is None:
        return part
    kind = str(part.get("type", "file")).removesuffix("_url")
    return {"type": "text", "text": f"[{kind}, not fetched: {' '.join(address.split())[:MAX_ADDRESS_CHARS]}]"}


def _find_address(value: Any, key: str = "") -> str | None:
    """Return the first text under an address key that is not a `data:` URL; None if there is none."""
    if isinstance(value, str):
        return value if key in _ADDRESSES and not value.startswith("data:") else None
    inner: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        inner = ((str(name), item) for name, item in value.items())
    elif isinstance(value, list | tuple):
        inner = ((key, item) for item in value)
    return next((address for name, item in inner if (address := _find_address(item, name)) is not None), None)
