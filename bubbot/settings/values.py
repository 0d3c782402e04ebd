"""The kinds of values settings take, and the phrases with which errors and the reference name them."""

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

AUTO = "auto"
"""The selector that follows from what is known of the model."""
DAY_SECONDS = 86400.0
"""The longest time limit, in seconds."""

_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    SecretStr: "a secret text",
}


def no_bool(value: object) -> object:
    """Refuses true and false where a number is wanted."""
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - pydantic wants this one; the sentence is made from the field
    return value


def blank_is_unset(value: object) -> object:
    """An empty text, as the environment has it, is no value."""
    return None if value == "" else value


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        names = {zone.lower(): zone for zone in available_timezones()}
        if not names:
            raise ValueError("a time zone, but this system has no list of them: install the package tzdata") from None
        near = get_close_matches(name.lower(), names, n=1, cutoff=0.4)
        hint = f"; the nearest is {names[near[0]]!r}" if near else ""
        raise ValueError(f"the IANA name of a time zone, such as 'Europe/Berlin'{hint}") from None
    return name


def _selector(name: str) -> str:
    if name != AUTO and not is_selector(name):
        near = get_close_matches(name, (AUTO, *SELECTORS), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"one of {', '.join((AUTO, *SELECTORS))}{hint}")
    return name


def _like(pattern: str, wanted: str) -> AfterValidator:
    """Raises unless a text matches the whole pattern; a value that is not set passes."""

    def check(text: str | None) -> str | None:
        if text is not None and not re.fullmatch(pattern, text):
            raise ValueError(wanted)
        return text

    return AfterValidator(check)


Whole = Annotated[int, BeforeValidator(no_bool)]
OptionalWhole = Annotated[int | None, BeforeValidator(no_bool), BeforeValidator(blank_is_unset)]
Number = Annotated[float, BeforeValidator(no_bool)]
OptionalPath = Annotated[Path | None, BeforeValidator(blank_is_unset)]
Secret = Annotated[SecretStr | None, BeforeValidator(blank_is_unset)]
Address = Annotated[
    str | None,
    _like(r"https?://[^/\s]\S*", "a web address that begins with http:// or https://"),
    BeforeValidator(blank_is_unset),
]
Name = Annotated[str, _like(r"\S([^\x00-\x1f\x7f]{0,62}\S)?", "a text of one line, 1 to 64 characters")]
Label = Annotated[Name, "label"]
"""The name of a table that people choose."""
Selector = Annotated[Name, AfterValidator(_selector)]
Names = Annotated[list[str], BeforeValidator(_split)]
Id = Annotated[str, "id"]
Ids = list[Id]
"""Numeric ids as text; who takes them checks them."""
Zone = Annotated[str, AfterValidator(_zone)]
Language = Annotated[str, _like(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", "a language tag, such as 'en' or 'pt-BR'")]
Level = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)]
LogForm = Annotated[Literal["auto", "text", "keyvalue", "json"], BeforeValidator(_lower)]


def wanted(field: FieldInfo) -> str:
    """The type and bounds of a setting as a phrase."""
    options = get_args(field.annotation)
    if get_origin(field.annotation) is Literal:
        return f"one of {', '.join(options)}"
    if get_origin(field.annotation) is dict:
        return "tables by name" if options[0] == Label else "tables by numeric id"
    if get_origin(field.annotation) is list:
        return "a list of numeric ids" if options[0] == Id else "a list of texts"
    words = next(words for kind, words in _WORDS.items() if kind in (field.annotation, *options))
    for mark in field.metadata:
        match mark:
            case Ge(ge=bound):
                words += f" from {bound:.12g}"
            case Gt(gt=bound):
                words += f" above {bound:.12g}"
            case Le(le=bound):
                words += f"{', at most' if 'above' in words else ' to'} {bound:.12g}"
    return words
