"""Refusals of a schedule, in the language of the chat."""

from __future__ import annotations

from bubbot.errors import ScheduleRefused
from bubbot.texts import Texts


def refusal_text(error: ScheduleRefused, texts: Texts) -> str:
    """Say a refusal, and after it the readings that can be typed instead, if there are any."""
    text, nearest = texts.say(error.sentence, **error.values), error.values.get("nearest")
    if not isinstance(nearest, tuple):
        return text
    return texts.say("when_nearest", refusal=text, nearest="\n".join(nearest))
