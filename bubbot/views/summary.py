"""Summaries: hints that cite their sources and delete nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.views.quoting import quoted
from bubbot.views.selectors import ContextMessage

LINE = 80
"""Characters of one cited message."""
LINES = 20
"""Messages cited, the newest ones."""


def hint_at(cut: Sequence[ContextMessage]) -> tuple[ContextMessage, ...]:
    """One user message that names what people said in the messages that were cut, each with its entry id.

    It only points: whoever needs more reads the entries. Equal cuts give equal hints.
    """
    asked = [one for one in cut if one.message["role"] == "user" and one.ids]
    if not asked:
        return ()
    lines = [f"#{one.ids[-1]} {quoted(_short(one.message['content']))}" for one in asked[-LINES:]]
    more = f" and {len(asked) - LINES} before them" if len(asked) > LINES else ""
    text = "\n".join([f"[Earlier in this window, not shown in full{more}; tape_search finds them:", *lines]) + "]"
    return (ContextMessage({"role": "user", "content": text}, tuple(one.ids[-1] for one in asked[-LINES:])),)


def _short(content: object) -> str:
    text = " ".join(content.split()) if isinstance(content, str) else "(attachments)"
    return text if len(text) <= LINE else text[: LINE - 1] + "…"
