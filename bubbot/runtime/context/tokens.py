"""Estimates of tokens, without a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from bubbot.runtime.context.attachments import find_images
from bubbot.runtime.context.selectors import HAS_PARTS, ContextMessage

BYTES_PER_TOKEN = 3
"""A conservative estimate: English has about 4 bytes per token, Chinese, Japanese and code about 3."""

MESSAGE_TOKENS = 5
"""The overhead of a message."""
IMAGE_TOKENS = 1_600
"""The cost of an image at providers that publish it; most count less."""

_SIZE: Callable[[ContextMessage], int] = attrgetter("size")


def estimate_tokens(text: str) -> int:
    return estimate_size(text.encode(errors="replace"))


def estimate_size(text: bytes) -> int:
    return len(text) // BYTES_PER_TOKEN + 1


def estimate_message_tokens(message: ContextMessage) -> int:
    """Estimate the tokens of a chat message, its overhead included."""
    text = message.size // BYTES_PER_TOKEN + MESSAGE_TOKENS
    return text + IMAGE_TOKENS * len(find_images(message.message)) if message.has_parts else text


def estimate_context_tokens(messages: Sequence[ContextMessage]) -> int:
    """Return the sum of `estimate_message_tokens`."""
    texts = sum([size // BYTES_PER_TOKEN for size in map(_SIZE, messages)]) + MESSAGE_TOKENS * len(messages)
    if not any(map(HAS_PARTS, messages)):
        return texts
    return texts + IMAGE_TOKENS * sum(len(find_images(item.message)) for item in messages if item.has_parts)
