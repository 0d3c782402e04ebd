"""The types of the settings in the sections of the core."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator, SecretStr

from bubbot.ports.settings import blank_to_none, refuse_bool
from bubbot.ports.text import did_you_mean
from bubbot.runtime.context.view import SELECTORS, is_selector

AUTO_SELECTOR = "auto"
"""The selector that depends on the features of the model."""
DAY_SECONDS = 86400.0
"""The longest time limit, in seconds."""


def _split_items(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _to_lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        names = {zone.lower(): zone for zone in available_timezones()}
        if not names:
            raise ValueError("a time zone, but this system has no list of them: install the package tzdata") from None
        close = get_close_matches(name.lower(), names, n=1, cutoff=0.4)
        hint = f"; the nearest is {names[close[0]]!r}" if close else ""
        raise ValueError(f"the IANA name of a time zone, such as 'Europe/Berlin'{hint}") from None
    return name


def _check_selector(name: str) -> str:
    if name != AUTO_SELECTOR and not is_selector(name):
        names = (AUTO_SELECTOR, *SELECTORS)
        raise ValueError(f"one of {', '.join(names)}{did_you_mean(name, names, before='; ')}")
    return name


def _matches(pattern: str, description: str) -> AfterValidator:
    """Build a validator that raises unless all of a text matches; a value that is not set passes."""

    def check(text: str | None) -> str | None:
        if text is not None and not re.fullmatch(pattern, text):
            raise ValueError(description)
        return text

    return AfterValidator(check)


OptionalWhole = Annotated[int | None, BeforeValidator(refuse_bool), BeforeValidator(blank_to_none)]
OptionalPath = Annotated[Path | None, BeforeValidator(blank_to_none)]
Secret = Annotated[SecretStr | None, BeforeValidator(blank_to_none)]
Address = Annotated[
    str | None,
    _matches(r"https?://[^/\s]\S*", "a web address that begins with http:// or https://"),
    BeforeValidator(blank_to_none),
]
Name = Annotated[str, _matches(r"\S([^\x00-\x1f\x7f]{0,62}\S)?", "a text of one line, 1 to 64 characters")]
Label = Annotated[Name, "label"]
"""The name of a table that people choose."""
Selector = Annotated[Name, AfterValidator(_check_selector)]
Names = Annotated[list[str], BeforeValidator(_split_items)]
Zone = Annotated[str, AfterValidator(_check_zone)]
Language = Annotated[str, _matches(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", "a language tag, such as 'en' or 'pt-BR'")]
Level = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_to_lower)]
LogForm = Annotated[Literal["auto", "text", "keyvalue", "json"], BeforeValidator(_to_lower)]
