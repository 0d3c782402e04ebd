"""Compacting: reading less of a window, without deleting anything."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.views.attachments import images_in
from bubbot.views.selectors import ContextMessage

BYTES_PER_TOKEN = 3
"""An estimate on the safe side: English is near 4 bytes a token, Chinese and Japanese near 3, code near 3."""

IMAGE_TOKENS = 1_600
"""About what an image costs at the providers that say so, and more than most do."""


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has; an honest guess where no tokenizer is at hand."""
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN + 1


def message_tokens(shown: ContextMessage) -> int:
    """About how many tokens a chat message has, its frame included."""
    text = len(shown.text) // BYTES_PER_TOKEN + 5
    return text if type(shown.message["content"]) is str else text + IMAGE_TOKENS * len(images_in(shown.message))


def cut_at(shown: Sequence[ContextMessage], budget: int) -> int | None:
    """The entry id from which to read so that the rest fits into half the budget; None where all of it fits.

    Whole exchanges are cut, oldest first: what is left begins with a user message. Half the budget, so that the
    cut holds for a while and consecutive requests keep extending each other. The newest exchange always stays.
    """
    sizes = [message_tokens(one) for one in shown]
    if sum(sizes) <= budget:
        return None
    starts = [place for place, one in enumerate(shown) if one.message["role"] == "user" and one.ids]
    if not starts:
        return None
    fitting = [place for place in starts if sum(sizes[place:]) <= budget // 2]
    return shown[fitting[0] if fitting else starts[-1]].ids[-1]
