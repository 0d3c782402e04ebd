"""What single answers must be: each check gives the value as it is to be written, or raises `ConfigError`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import ValidationError

from bubbot import plugins
from bubbot.errors import ConfigError
from bubbot.identity import numeric_id
from bubbot.models.litellm import names as litellm_names
from bubbot.models.local import model
from bubbot.settings.loader import BotSettings, ModelSettings
from bubbot.settings.sources import SECRET_LIMIT
from bubbot.settings.values import wanted

MODELS_GROUP = "bubbot.models"
"""The entry-point group of models."""
LITELLM = "litellm"
"""The plugin in it that is no model of its own."""

_PAIRS = (("<", ">"), ('"', '"'), ("'", "'"), ("`", "`"), ("[", "]"))
_PREFIX = re.compile(r"(bot|bearer|token)[ \t:=]+", re.IGNORECASE)


def bot_name(text: str) -> str:
    """The name of the bot."""
    return str(_setting(BotSettings, "name", text))


def language(text: str) -> str:
    """A language tag; one that is not translated is allowed."""
    return str(_setting(BotSettings, "language", text.strip()))


def address(text: str) -> str:
    """The web address of a provider; empty for none."""
    return str(_setting(ModelSettings, "api_base", text.strip().rstrip("/")) or "")


def zone(text: str) -> str:
    """The IANA name of a time zone, in any case; a wrong one is refused with those that are near."""
    name, zones = text.strip(), {one.lower(): one for one in available_timezones()}
    known = zones.get(name.lower(), name)
    try:
        ZoneInfo(known)
    except (KeyError, ValueError, OSError):
        near = _near_zones(name, zones)
        hint = f"did you mean {' or '.join(near)}?" if near else "it has to be a name such as Europe/Berlin."
        raise ConfigError(f"{name!r} is no time zone: {hint}") from None
    return str(_setting(BotSettings, "timezone", known))


def _near_zones(name: str, zones: dict[str, str]) -> list[str]:
    """Up to three: zones of a city that is called so, else so or nearly so."""
    word = name.lower().replace(" ", "_").rpartition("/")[2]
    cities: dict[str, str] = {}
    for lower, one in sorted(zones.items()):
        if "/" in one and not lower.startswith(("etc/", "posix/", "right/", "systemv/")):
            cities.setdefault(lower.rpartition("/")[2], one)
    found = [cities[city] for city in get_close_matches(word, cities, n=2, cutoff=0.7)] if word else []
    found += [zones[near] for near in get_close_matches(name.lower(), zones, n=3, cutoff=0.6)]
    return list(dict.fromkeys(found))[:3]


def model_name(text: str) -> str:
    """The name of a model: one of ours, or `provider/model`; empty for none."""
    name = text.strip()
    if not name:
        return ""
    ours = {*plugins.names(MODELS_GROUP)} - {LITELLM}
    if name.partition("/")[0] not in ours:
        litellm_names.check(name, "The name", ours)
    elif name.partition("/")[0] == "local" and not model.available():
        raise ConfigError("The demonstration model is not installed: `make chat` installs it. Name another model.")
    return name


def token(text: str) -> str:
    """A token as it was pasted, without what often stands around it: quotes, brackets, the word Bot."""
    found = text.strip()
    before = ""
    while found != before:
        before = found
        found = _PREFIX.sub("", found, count=1) if _PREFIX.match(found) else found
        for left, right in _PAIRS:
            if len(found) > 1 and found.startswith(left) and found.endswith(right):
                found = found[1:-1].strip()
    return secret(found)


def secret(text: str) -> str:
    """A key or token of one word. It is shown in no error."""
    found = text.strip()
    if not found:
        raise ConfigError("It is empty.")
    if not found.isprintable() or any(char.isspace() for char in found):
        raise ConfigError("It has a space, a line break or an invisible character in it: copy it whole, and it alone.")
    if len(found.encode()) > SECRET_LIMIT:
        raise ConfigError("It is too long to be right.")
    return found


def person(text: str) -> int | None:
    """The numeric id of a person; None for an empty answer."""
    if not text.strip():
        return None
    found = int(numeric_id(text))
    if found <= 0:
        raise ConfigError(f"{found} is no id of a person: those of groups begin with a minus.")
    return found


def owner(text: str, channels: Iterable[str]) -> tuple[str, int]:
    """Channel and id out of `telegram:42`."""
    name, colon, number = text.strip().partition(":")
    names = sorted(channels)
    if not colon or name not in names:
        raise ConfigError(
            f"{text!r} has to be a channel and a numeric id, such as telegram:42; channels: {', '.join(names)}."
        )
    found = person(number)
    if found is None:
        raise ConfigError(f"{text!r} has no id behind the colon: write the number of the account, such as {name}:42.")
    return name, found


def system_zone(variable: str, localtime: Path, timezone: Path) -> str:
    """The time zone of this system: by the variable `TZ`, the link /etc/localtime or the file /etc/timezone; else UTC."""
    link = str(localtime.resolve()).rpartition("/zoneinfo/")[2] if localtime.is_symlink() else ""
    try:
        written = timezone.read_text(encoding="utf-8").strip() if timezone.is_file() else ""
    except (OSError, ValueError):
        written = ""
    for name in (variable.removeprefix(":"), link, written):
        if name in available_timezones():
            return (
                "UTC"
                if name in ("Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu")
                else name
            )
    return "UTC"


def _setting(section: type[BotSettings | ModelSettings], key: str, text: str) -> Any:
    """The value of a setting as the settings take it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{text!a} is not UTF-8 text.") from None
    try:
        return getattr(section.model_validate({key: text}), key)
    except ValidationError as error:
        [found] = error.errors()
        reason = str(found["ctx"]["error"]) if found["type"] == "value_error" else wanted(section.model_fields[key])
        raise ConfigError(f"{text!r} cannot be taken: it has to be {reason}.") from None
