"""Estimates of tokens, without a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.runtime.context.attachments import find_images
from bubbot.runtime.context.selectors import ContextMessage

BYTES_PER_TOKEN = 3
"""An estimate on the safe side: English has about 4 bytes per token, Chinese, Japanese and code about 3."""

MESSAGE_TOKENS = 5
"""The frame of a message."""
IMAGE_TOKENS = 1_600
"""The cost of an image at the providers that publish one; most count less."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text without a tokenizer."""
    return estimate_size(text.encode(errors="replace"))


def estimate_size(text: bytes) -> int:
    """Estimate the tokens of a text in UTF-8."""
    return len(text) // BYTES_PER_TOKEN + 1


def estimate_message_tokens(message: ContextMessage) -> int:
    """Estimate the tokens of a chat message, its frame included."""
    text = message.size // BYTES_PER_TOKEN + MESSAGE_TOKENS
    return text if type(message.message["content"]) is str else text + IMAGE_TOKENS * len(find_images(message.message))


def estimate_context_tokens(messages: Sequence[ContextMessage]) -> int:
    """Estimate the tokens of chat messages: the sum of `estimate_message_tokens`."""
    texts = sum([message.size // BYTES_PER_TOKEN + MESSAGE_TOKENS for message in messages])
    nested = [message.message for message in messages if type(message.message["content"]) is not str]
    return texts + IMAGE_TOKENS * sum(len(find_images(message)) for message in nested)
