"""The types of the settings in the sections of the core."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator, SecretStr

from bubbot.ports.settings import blank_to_none, matches

DAY_SECONDS = 86400.0
"""The longest time limit, in seconds."""


def _to_lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        names = {zone.lower(): zone for zone in available_timezones()}
        if not names:
            raise ValueError("a time zone, but this system has no list of them: install the package tzdata") from None
        # Imported here: most zones are known.
        from difflib import get_close_matches

        close = get_close_matches(name.lower(), names, n=1, cutoff=0.6)
        hint = f"; the nearest is {names[close[0]]!r}" if close else ""
        raise ValueError(f"the IANA name of a time zone, such as 'Europe/Berlin'{hint}") from None
    return name


def _check_host(address: str | None) -> str | None:
    try:
        urlsplit(address or "").port  # noqa: B018 - it is read here
    except ValueError:
        raise ValueError("a web address with a host and, if it has one, a port up to 65535") from None
    return address


OptionalPath = Annotated[Path | None, BeforeValidator(blank_to_none)]
Secret = Annotated[SecretStr | None, BeforeValidator(blank_to_none)]
Address = Annotated[
    str | None,
    matches(r"https?://[^/\s]\S*", "a web address that begins with http:// or https://"),
    AfterValidator(_check_host),
    BeforeValidator(blank_to_none),
]
Zone = Annotated[str, AfterValidator(_check_zone)]
Language = Annotated[
    str, matches(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", "the tag of a language, such as 'de', 'en' or 'zh'")
]
Level = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_to_lower)]
ModelPath = Annotated[Literal["auto", "litellm"], BeforeValidator(_to_lower)]
LogForm = Annotated[Literal["auto", "text", "keyvalue", "json"], BeforeValidator(_to_lower)]
