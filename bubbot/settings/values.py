"""The types of settings, and the phrases that name them in errors and the reference."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin
from zoneinfo import ZoneInfo, available_timezones

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from bubbot.views.context import SELECTORS, is_selector

AUTO_SELECTOR = "auto"
"""The selector that depends on the features of the model."""
DAY_SECONDS = 86400.0
"""The longest time limit, in seconds."""

_TYPE_PHRASES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    SecretStr: "a secret text",
}


def refuse_bool(value: object) -> object:
    """Refuse true and false for a number."""
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - pydantic wants this one; the sentence is made from the field
    return value


def blank_to_none(value: object) -> object:
    """Replace an empty text, which the environment may hold, by None."""
    return None if value == "" else value


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
        close = get_close_matches(name, (AUTO_SELECTOR, *SELECTORS), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"one of {', '.join((AUTO_SELECTOR, *SELECTORS))}{hint}")
    return name


def _matches(pattern: str, description: str) -> AfterValidator:
    """Build a validator that raises unless all of a text matches; a value that is not set passes."""

    def check(text: str | None) -> str | None:
        if text is not None and not re.fullmatch(pattern, text):
            raise ValueError(description)
        return text

    return AfterValidator(check)


Whole = Annotated[int, BeforeValidator(refuse_bool)]
OptionalWhole = Annotated[int | None, BeforeValidator(refuse_bool), BeforeValidator(blank_to_none)]
Number = Annotated[float, BeforeValidator(refuse_bool)]
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
Id = Annotated[str, "id"]
Ids = list[Id]
"""Numeric ids as text; the code that uses them checks them."""
Zone = Annotated[str, AfterValidator(_check_zone)]
Language = Annotated[str, _matches(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", "a language tag, such as 'en' or 'pt-BR'")]
Level = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_to_lower)]
LogForm = Annotated[Literal["auto", "text", "keyvalue", "json"], BeforeValidator(_to_lower)]


def describe_type(field: FieldInfo) -> str:
    """Describe the type and bounds of a setting as a phrase."""
    options = get_args(field.annotation)
    if get_origin(field.annotation) is Literal:
        return f"one of {', '.join(options)}"
    if get_origin(field.annotation) is dict:
        return "tables by name" if options[0] == Label else "tables by numeric id"
    if get_origin(field.annotation) is list:
        return "a list of numeric ids" if options[0] == Id else "a list of texts"
    phrase = next(phrase for kind, phrase in _TYPE_PHRASES.items() if kind in (field.annotation, *options))
    for constraint in field.metadata:
        match constraint:
            case Ge(ge=bound):
                phrase += f" from {bound:.12g}"
            case Gt(gt=bound):
                phrase += f" above {bound:.12g}"
            case Le(le=bound):
                phrase += f"{', at most' if 'above' in phrase else ' to'} {bound:.12g}"
    return phrase
