"""The nearest readings of a time that was refused: what its words can be, written so that they are read. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from bubbot.times.refusal import TimeRefused

MAX_NEAREST = 3
MAX_TRIED_CHARS = 200
_KEPT = frozenset({"when_vague", "when_over", "when_far", "when_zero", "at_past"})
"""What was understood, and cannot be: there is no other reading."""
_AMOUNT = r"(?:\d+(?:[.,]\d+)?|an?|one|two|three|four|five|six|ten|half|eine?[rnms]?|zwei|drei|vier|fünf|zehn)"
_UNIT = r"(?:s|m|h|d|w|se[ck]\w*|min\w*|h(?:ou)?rs?|stunden?|std|days?|tage?n?|we?e?ks?|wochen?|months?|monate?n?|y(?:ea)?rs?|jahre?n?)"
_REWRITES: tuple[tuple[str, tuple[str, ...]], ...] = (
    # A length of time alone, or with a word that leaves open when.
    (rf"^(?:for\s+|within\s+|next\s+|innerhalb\s+von\s+|binnen\s+)?(?={_AMOUNT}\s*{_UNIT}\b)", ("in ", "every ")),
    (r"^((?:[\d一二两三四五六七八九十半]+个?半?(?:分钟|小时|钟头|天|周|星期|礼拜|个月|年))+)(?:(?:之|以)?[内內])?(?!之?后)", (r"\1后",)),
    (r"^([\d一二两三四五六七八九十]+日)(?:之|以)?[内內]", (r"\1后",)),
    (r"^(?=(?:sun|mon|tue|wed|thu|fri|sat)\w*\s)", ("every ",)),
    # A time of day.
    (r"(?<![\d.])(\d{1,2})\.(\d{2})(?![\d.])", (r"\1:\2",)),
    (r"\b(\d{1,2})\s+([0-5]\d)(?=\s*$)", (r"\1:\2",)),
    (r"^(?=\d{1,2}$)", ("at ",)),
    (r"\b(?:midnight|mitternacht)\b|半夜|午夜", ("00:00", "23:59")),
    (r"\s(\d{1,2})$", (r" at \1", r" 20\1")),
    (r"\s(\d{1,2})\s+(?=\D)", (r" at \1: ",)),
    # What limits or changes the time beside it.
    (r"\b(?:around|about|approximately|roughly|circa|ca\.|gegen|etwa|ungefähr|early|late|sharp|früh|spät)\b\s*|~|(?<=\d)ish\b|左右|大概|大约", ("",)),
    (r"\bbetween\s+(\S+)\s+(?:and|to)\s+\S+(?:\s*[ap]\.?m\b)?|\b(?:before|after)\s+(?=\d)(\d\S*)", (r"at \1\2",)),
    (r"(\d(?::\d\d)?)\s*(?:[-–]|\b(?:to|bis|or|oder)\b)\s*\d[\d:.]*", (r"\1",)),
    (r"(点半?|:\d\d)\s*(?:[到至或]\s*[\d一二两三四五六七八九十]+点?半?(?::\d\d)?|(?:之|以)?前)", (r"\1",)),
    (r"\s+(?:until|till|except|bis|außer)\b.*$", ("",)),
    (r"[\[\]\"“”„]|'$|^'", ("",)),
)  # fmt: skip
_TRIED = tuple((re.compile(pattern, re.IGNORECASE), forms) for pattern, forms in _REWRITES)


def add_nearest(error: TimeRefused, source: str, read: Callable[[str], object]) -> TimeRefused:
    """Return a refusal with the nearest readings of what was refused, as they can be typed.

    `read` raises `TimeRefused` for what is no reading.
    """
    if error.code in _KEPT or len(source) > MAX_TRIED_CHARS:
        return error
    found: list[str] = []
    for candidate in dict.fromkeys(_candidates(error, source)):
        if len(found) == MAX_NEAREST:
            break
        try:
            read(candidate)
        except TimeRefused:
            continue
        found.append(candidate)
    if not found:
        return error
    return TimeRefused(error.code, **{**error.values, "nearest": tuple(found)})


def _candidates(error: TimeRefused, source: str) -> Iterator[str]:
    """Yield what may have been meant, the nearest first."""
    values = {name: str(value) for name, value in error.values.items()}
    if error.code.startswith("cron_"):  # what other crons have: `?`, a fifth day of the week, seconds
        yield source.replace("?", "*")
        yield source.replace("#5", "L")
        yield re.sub(r"^0\s+(?=(?:\S+\s+){4}\S+)", "", source)
    match error.code:
        case "zone_ambiguous" | "zone_word":
            yield from (_without(source, values["given"], zone) for zone in values["zones"].split(", "))
            before, _, after = source.partition(values["given"])
            yield f"{before.strip()}: {values['given']}{after}"
            return
        case "date_order":
            date = re.compile(r"\d{1,2}[/-]\d{1,2}(?:[/-]\d{2,4})?")
            yield from (date.sub(values[name], source, count=1) for name in ("first", "second"))
            return
        case "when_two_times":
            first, second = values["first"], values["second"]
            rest = _bare(_without(_without(source, first), second))
            if not re.search(r"\d|day|tag", rest):
                yield from (f"{first} {second}: {rest}", f"{second} {first}: {rest}")
            if not re.match(r"(?:on|at|and|to|um|am|und|bis)\b", rest := _bare(_without(source, first)), re.IGNORECASE):
                yield f"{first}: {rest}"
    rewritten = source
    for pattern, forms in _TRIED:
        for form in forms:
            if (changed := _tidy(pattern.sub(form, source, count=1))) != source:
                yield changed
        rewritten = pattern.sub(forms[0], rewritten, count=1)
    yield _tidy(rewritten)
    if error.code == "when_middle" and not re.search(r"\d", rest := _without(source, values["part"])):
        yield f"{values['part']}: {_bare(rest)}"


def _without(text: str, part: str, instead: str = "") -> str:
    return _tidy(re.sub(re.escape(part), lambda _: instead, text, count=1, flags=re.IGNORECASE))


def _bare(text: str) -> str:
    """Return the text of a request without the words that led to its time."""
    text = re.sub(
        r"^(?:(?:please|bitte)\s+)?(?:remind\s+)?(?:me|us|mich|uns)\b\s*(?:(?:to|that)\b\s*)?",
        "",
        text,
        flags=re.IGNORECASE,
    )
    return re.sub(r"\s+(?:at|on|in|by|um|am|im)$", "", text, flags=re.IGNORECASE)


def _tidy(text: str) -> str:
    return " ".join(text.split()).strip(" ,，")
