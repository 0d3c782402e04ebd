"""Lengths of time in words."""

from __future__ import annotations

from bubbot.texts import Texts


def format_length(seconds: int, texts: Texts) -> str:
    """Format a length of time, in its two largest units."""
    parts: list[str] = []
    units = (("weeks", 604800), ("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
    for unit, size in units:
        if seconds >= size and len(parts) < 2:
            parts.append(texts.say(f"w_{unit}", count=seconds // size))
            seconds %= size
    return " ".join(part.strip() for part in parts) or texts.say("w_seconds", count=0).strip()
