"""Checks of single answers: each returns the value to write, or raises `ConfigError`.

Errors after which `init` asks again are in the language of its questions.
"""

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
from bubbot.models.catalogue import names as litellm_names
from bubbot.models.catalogue import sizes
from bubbot.models.local import model
from bubbot.ports.settings import describe_expected
from bubbot.settings.loader import BotSettings, ModelSettings
from bubbot.settings.sources import MAX_SECRET_BYTES
from bubbot.texts import Texts

MODELS_GROUP = "bubbot.models"
"""The entry-point group of models."""
LITELLM = "litellm"
"""The plugin in that group that is not a model itself."""
PROVIDERS_BY_MODEL = ("openai", "anthropic", "gemini", "deepseek", "mistral", "xai")
"""The providers whose models are known without their provider's name, such as `gpt-5`."""

_PAIRS = (("<", ">"), ('"', '"'), ("'", "'"), ("`", "`"), ("[", "]"))
_PREFIX = re.compile(r"(bot|bearer|token)[ \t:=]+", re.IGNORECASE)


def parse_bot_name(text: str) -> str:
    """Check the name of the bot."""
    return str(_validate(BotSettings, "name", text))


def parse_language(text: str) -> str:
    """Check a language tag; one without a translation is allowed."""
    return str(_validate(BotSettings, "language", text.strip()))


def parse_address(text: str) -> str:
    """Check the web address of a provider; empty for none."""
    return str(_validate(ModelSettings, "api_base", text.strip().rstrip("/")) or "")


def parse_zone(text: str, texts: Texts | None = None) -> str:
    """Check the IANA name of a time zone, in any case; the error for a wrong name suggests similar ones."""
    name, zones = text.strip(), {name.lower(): name for name in available_timezones()}
    canonical = zones.get(name.lower(), name)
    try:
        ZoneInfo(canonical)
    except (KeyError, ValueError, OSError):
        similar = _similar_zones(name, zones)
        say = (texts or Texts()).say
        if similar:
            raise ConfigError(say("init_zone_like", name=name, zones=say("or").join(similar))) from None
        raise ConfigError(say("init_zone_unknown", name=name)) from None
    return str(_validate(BotSettings, "timezone", canonical))


def _similar_zones(name: str, zones: dict[str, str]) -> list[str]:
    """Return up to three zones: of the city of that name, else with a similar name."""
    word = name.lower().replace(" ", "_").rpartition("/")[2]
    cities: dict[str, str] = {}
    for lower, zone in sorted(zones.items()):
        if "/" in zone and not lower.startswith(("etc/", "posix/", "right/", "systemv/")):
            cities.setdefault(lower.rpartition("/")[2], zone)
    matches = [cities[city] for city in get_close_matches(word, cities, n=2, cutoff=0.7)] if word else []
    matches += [zones[near] for near in get_close_matches(name.lower(), zones, n=3, cutoff=0.6)]
    return list(dict.fromkeys(matches))[:3]


def parse_model_name(text: str) -> str:
    """Check the name of a model: one of ours, or `provider/model`; empty for none. `gpt-5` is `openai/gpt-5`."""
    name = text.strip()
    if not name:
        return ""
    ours = {*plugins.list_names(MODELS_GROUP)} - {LITELLM}
    if name not in ours and (provider := sizes.find_provider(name, PROVIDERS_BY_MODEL)):
        name = f"{provider}/{name}"
    if name.partition("/")[0] not in ours:
        litellm_names.check_model_name(name, "The name", ours)
    elif name.partition("/")[0] == "local" and not model.is_available():
        raise ConfigError(
            "The demonstration model is not installed: `bubbot model install` does that. Name another model."
        )
    return name


def parse_token(text: str, texts: Texts | None = None) -> str:
    """Check a pasted token; strip what people often copy with it: quotes, brackets, the word Bot."""
    value = text.strip()
    before = ""
    while value != before:
        before = value
        value = _PREFIX.sub("", value, count=1) if _PREFIX.match(value) else value
        for left, right in _PAIRS:
            if value.startswith(left) and value.endswith(right):
                value = value[1:-1].strip()
    return parse_secret(value, texts)


def parse_secret(text: str, texts: Texts | None = None) -> str:
    """Check a key or token of one word; no error shows it."""
    value, say = text.strip(), (texts or Texts()).say
    if not value:
        raise ConfigError(say("init_empty"))
    if not value.isprintable() or any(char.isspace() for char in value):
        raise ConfigError(say("init_not_one_word"))
    if len(value.encode()) > MAX_SECRET_BYTES:
        raise ConfigError(say("init_too_long"))
    return value


def parse_person(text: str, texts: Texts | None = None) -> int | None:
    """Check the numeric id of a person; None for an empty answer."""
    if not text.strip():
        return None
    number = int(numeric_id(text))
    if number <= 0:
        raise ConfigError((texts or Texts()).say("init_not_a_person", number=number))
    return number


def parse_owner(text: str, channels: Iterable[str]) -> tuple[str, int]:
    """Parse `telegram:42` into a channel and an id."""
    name, colon, number = text.strip().partition(":")
    names = sorted(channels)
    if not colon or name not in names:
        raise ConfigError(
            f"{text!r} has to be a channel and a numeric id, such as telegram:42; channels: {', '.join(names)}."
        )
    person_id = parse_person(number)
    if person_id is None:
        raise ConfigError(f"{text!r} has no id after the colon: use the number of the account, such as {name}:42.")
    return name, person_id


def find_system_zone(variable: str, localtime: Path, timezone: Path) -> str:
    """Find the time zone of this system: by the variable `TZ`, /etc/localtime or /etc/timezone; else UTC."""
    link = str(localtime.resolve()).rpartition("/zoneinfo/")[2] if localtime.is_symlink() else ""
    try:
        content = timezone.read_text(encoding="utf-8").strip() if timezone.is_file() else ""
    except (OSError, ValueError):
        content = ""
    for name in (variable.removeprefix(":"), link, content):
        if name in available_timezones():
            return (
                "UTC"
                if name in ("Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu")
                else name
            )
    return "UTC"


def _validate(section: type[BotSettings | ModelSettings], key: str, text: str) -> Any:
    """Validate the value of a setting and return it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{text!a} is not UTF-8 text.") from None
    try:
        return getattr(section.model_validate({key: text}), key)
    except ValidationError as error:
        [detail] = error.errors()
        reason = describe_expected(detail, section.model_fields[key])
        raise ConfigError(f"{text!r} is not accepted: it has to be {reason}.") from None
