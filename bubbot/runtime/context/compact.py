"""Compaction: reading less of a window, without deleting anything."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.runtime.context.attachments import find_images
from bubbot.runtime.context.selectors import ContextMessage

BYTES_PER_TOKEN = 3
"""An estimate on the safe side: English has about 4 bytes per token, Chinese, Japanese and code about 3."""

IMAGE_TOKENS = 1_600
"""The cost of an image at the providers that publish one; most count less."""


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text without a tokenizer."""
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN + 1


def estimate_message_tokens(message: ContextMessage) -> int:
    """Estimate the tokens of a chat message, its frame included."""
    text = len(message.text) // BYTES_PER_TOKEN + 5
    return text if type(message.message["content"]) is str else text + IMAGE_TOKENS * len(find_images(message.message))


def find_cut(messages: Sequence[ContextMessage], budget: int) -> int | None:
    """Return the entry id from which the rest fits into half the budget; None if everything fits.

    Whole exchanges are cut, oldest first: the rest begins with a user message. Half the budget, so that the cut holds
    for a while and consecutive requests keep extending each other. The newest exchange always stays.
    """
    sizes = [estimate_message_tokens(message) for message in messages]
    if sum(sizes) <= budget:
        return None
    starts = [place for place, message in enumerate(messages) if message.message["role"] == "user" and message.ids]
    if not starts:
        return None
    fitting = [place for place in starts if sum(sizes[place:]) <= budget // 2]
    return messages[fitting[0] if fitting else starts[-1]].ids[-1]
