"""Refusals of a schedule, in the language of the chat."""

from __future__ import annotations

from bubbot.errors import ScheduleRefused, ValueInvalid
from bubbot.texts import Texts


def refusal_text(error: ScheduleRefused, texts: Texts) -> str:
    """Say a refusal, and after it the readings that can be typed instead, if there are any."""
    text, nearest = texts.say(error.sentence, **error.values), error.values.get("nearest")
    if not isinstance(nearest, tuple):
        return text
    return texts.say("when_nearest", refusal=text, nearest="\n".join(nearest))


def build_command_refusal(error: ScheduleRefused, texts: Texts) -> ValueInvalid:
    """Make the refusal of a command of that of a schedule; readings that can be typed instead come with it."""
    nearest = error.values.get("nearest")
    if not isinstance(nearest, tuple):
        return ValueInvalid(error.sentence, **error.values)
    return ValueInvalid("when_nearest", refusal=texts.say(error.sentence, **error.values), nearest="\n".join(nearest))
