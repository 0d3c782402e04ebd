"""How much of what a server sends is taken. A server that goes beyond costs its own call, in words."""

from __future__ import annotations

from typing import Any

from bubbot.formatting import clean, replace_controls

MAX_MESSAGE_BYTES = 4_000_000
"""Bytes of one message, in the form that is sent."""
MAX_TEXT_BYTES = 1_000_000
"""Bytes of the text of a reply; those of its structured part."""
MAX_TOOLS = 2_000
MAX_PAGES = 200
MAX_LIST_BYTES = 8_000_000
"""Bytes of all tools of a server, as they are told to the daemon."""
MAX_NAME_CHARS = 256
MAX_DEPTH = 64
"""Values within values, in schemas and structured replies."""
MAX_QUESTIONS = 20
MAX_FORM_BYTES = 64_000
"""Bytes of the schema of a question, and of the state that is to be given back with its answer."""
MAX_URL_CHARS = 4_000
"""Characters of an address to open: one that is cut leads elsewhere."""
MAX_UNASKED_MESSAGES = 5_000
"""Notifications and broken messages since the last call began."""
MAX_ROUNDS = 50
"""How often a server may say within a call that it needs another request and no input."""
MAX_REASON_CHARS = 300


def shorten(text: str) -> str:
    """Write words of a server on one line, without controls, cut."""
    line = " ".join(replace_controls(clean(text)).split())
    return line if len(line) <= MAX_REASON_CHARS else f"{line[: MAX_REASON_CHARS - 1]}…"


def cut_text(text: str) -> str:
    """Cut a text to `MAX_TEXT_BYTES` and say so."""
    data = text.encode(errors="replace")
    if len(data) <= MAX_TEXT_BYTES:
        return clean(text)
    return f"{clean(data[:MAX_TEXT_BYTES].decode(errors='ignore'))}\n… [{len(data) - MAX_TEXT_BYTES} bytes left out]"


def is_deep(value: Any) -> bool:
    """Return true if a JSON value has values more than `MAX_DEPTH` deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
