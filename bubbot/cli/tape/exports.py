"""Chats exported by other programs, recognised to help a person who takes one for a tape."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEAD_BYTES = 64_000
_FIRST_LINES = 20
_NAMES = re.compile(r'"(\w+)"\s*:')
_JSON_EXPORTS = (
    ("Telegram Desktop", "{", {"type", "id", "messages", "from_id"}),
    ("Telegram Desktop", "{", {"about", "personal_information"}),
    ("Telegram Desktop", "{", {"about", "chats", "list"}),
    ("DiscordChatExporter", "{", {"guild", "channel", "dateRange"}),
    ("ChatGPT", "[", {"mapping", "create_time"}),
    ("Claude", "[", {"chat_messages", "uuid"}),
)
"""Programs, the first character of their files, and names near the beginning of each file."""
_WHATSAPP = re.compile(
    r"[\u200e\u200f\ufeff]*\[?\d{1,4}[/.-]\d{1,2}[/.-]\d{2,4},? \d{1,2}[:.]\d{2}([:.]\d{2})?([ \u202f]?[AaPp]\.?[Mm]\.?)?(\]| -) .+"
)
_TELEGRAM_PAGE = re.compile(r"<!DOCTYPE html>.*<title>Exported Data</title>", re.DOTALL)


def name_export(lines: Sequence[bytes]) -> str | None:
    """Return the program that exported these lines; None if uncertain."""
    head = b"".join(lines[:_HEAD_BYTES])[:_HEAD_BYTES].decode(errors="replace").lstrip("\ufeff \t\r\n")
    names = set(_NAMES.findall(head))
    for program, sign, needed in _JSON_EXPORTS:
        if head.startswith(sign) and needed <= names:
            return program
    if _TELEGRAM_PAGE.match(head):
        return "Telegram Desktop"
    first = [line for line in head.split("\n")[:_FIRST_LINES] if line.strip()]
    return "WhatsApp" if first and _WHATSAPP.match(first[0]) else None
