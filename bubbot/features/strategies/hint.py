"""Hints that cite what was cut."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.runtime.context.quoting import quote_text
from bubbot.runtime.context.selectors import ContextMessage

MAX_CITED_CHARS = 80
"""Characters of one cited message."""
MAX_CITED_MESSAGES = 20
"""The number of newest messages that are cited."""


def build_hint(cut_messages: Sequence[ContextMessage]) -> tuple[ContextMessage, ...]:
    """Build a user message that cites the cut messages of people, each with its entry id.

    It only points: the model reads the entries if it needs more. Equal cuts give equal hints.
    """
    messages = [message for message in cut_messages if message.message["role"] == "user" and message.ids]
    if not messages:
        return ()
    lines = [
        f"#{message.ids[-1]} {quote_text(_shorten(message.message['content']))}"
        for message in messages[-MAX_CITED_MESSAGES:]
    ]
    before = f" and {len(messages) - MAX_CITED_MESSAGES} before them" if len(messages) > MAX_CITED_MESSAGES else ""
    text = "\n".join([f"[Earlier in this window, not shown in full{before}; tape_search finds them:", *lines]) + "]"
    return (
        ContextMessage(
            {"role": "user", "content": text}, tuple(message.ids[-1] for message in messages[-MAX_CITED_MESSAGES:])
        ),
    )


def _shorten(content: object) -> str:
    text = " ".join(content.split()) if isinstance(content, str) else "(attachments)"
    return text if len(text) <= MAX_CITED_CHARS else text[: MAX_CITED_CHARS - 1] + "…"
