"""Refusals of a time, in the language of the reader."""

from __future__ import annotations

from bubbot.errors import ValueInvalid
from bubbot.texts import Texts
from bubbot.times.refusal import TimeRefused


def refusal_text(error: TimeRefused, texts: Texts) -> str:
    """Say a refusal, and after it the readings that can be typed instead, if there are any."""
    text, nearest = texts.say(error.code, **error.values), error.values.get("nearest")
    if not isinstance(nearest, tuple):
        return text
    return texts.say("when_nearest", refusal=text, nearest="\n".join(nearest))


def build_command_refusal(error: TimeRefused, texts: Texts) -> ValueInvalid:
    """Make the refusal of a command of that of a time; readings that can be typed instead come with it."""
    nearest = error.values.get("nearest")
    if not isinstance(nearest, tuple):
        return ValueInvalid(error.code, **error.values)
    return ValueInvalid("when_nearest", refusal=texts.say(error.code, **error.values), nearest="\n".join(nearest))
