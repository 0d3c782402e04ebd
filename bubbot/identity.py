"""Ids of people and chats: the platform's number in one spelling."""

from __future__ import annotations

import re

from bubbot.errors import ConfigError

_ID = re.compile(r"0|-?[1-9][0-9]{0,19}")  # [0-9] and not \d: that takes the digits of every script
_USERINFO = re.compile(r"//\S*@")
"""User and password of a web address, which somebody may put into the wrong setting."""


def is_id(text: str) -> bool:
    """Return true if a text is an id: digits 0 to 9, at most 20, no leading zero; chats may have a minus.

    One number has one spelling, so that ids can be compared as text.
    """
    return _ID.fullmatch(text) is not None


def numeric_id(value: object) -> str:
    """Return the id of a whole number or a text of digits, as text. Raise `ConfigError` with the reason."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**20:
        return str(value)
    text = value.strip() if isinstance(value, str) else ""
    if is_id(text):
        return text
    raise ConfigError(f"{_cut(value)} {_reason(text)}")


def _cut(value: object) -> str:
    text = str(value) if isinstance(value, int) and abs(value) >= 10**20 else _USERINFO.sub("//***@", repr(value))
    return text if len(text) <= 40 else f"{text[:40]}..."


def _reason(text: str) -> str:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        return "is not a platform id: those have at most 20 digits and no leading 0"
    if digits.isnumeric():
        return "is written in digits of another script: write it with 0 to 9"
    if text:
        return "is not a numeric id (anybody can take a username): use the number of the account"
    return "is not a numeric id: use the number of the account"
