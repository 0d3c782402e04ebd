"""Summaries: hints that cite their sources and delete nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.views.quoting import quoted
from bubbot.views.selectors import ContextMessage

LINE = 80
"""Characters of one cited message."""
LINES = 20
"""The number of newest messages that are cited."""


def hint_at(cut: Sequence[ContextMessage]) -> tuple[ContextMessage, ...]:
    """Build a user message that cites the cut messages of people, each with its entry id.

    It only points: the model reads the entries if it needs more. Equal cuts give equal hints.
    """
    messages = [message for message in cut if message.message["role"] == "user" and message.ids]
    if not messages:
        return ()
    lines = [f"#{message.ids[-1]} {quoted(_shorten(message.message['content']))}" for message in messages[-LINES:]]
    before = f" and {len(messages) - LINES} before them" if len(messages) > LINES else ""
    text = "\n".join([f"[Earlier in this window, not shown in full{before}; tape_search finds them:", *lines]) + "]"
    return (ContextMessage({"role": "user", "content": text}, tuple(message.ids[-1] for message in messages[-LINES:])),)


def _shorten(content: object) -> str:
    text = " ".join(content.split()) if isinstance(content, str) else "(attachments)"
    return text if len(text) <= LINE else text[: LINE - 1] + "…"
