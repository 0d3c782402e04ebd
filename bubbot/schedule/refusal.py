"""Refusals of a schedule, in the language of the chat."""

from __future__ import annotations

from bubbot.errors import ScheduleRefused
from bubbot.texts import Texts


def build_refusal(sentence: str, **values: object) -> ScheduleRefused:
    """Make the error with the sentence of this name; `refusal_text` translates it."""
    return ScheduleRefused(Texts().say(sentence, **values), sentence, values)


def refusal_text(error: ScheduleRefused, texts: Texts) -> str:
    """Return the error as a sentence in this language."""
    return texts.say(error.sentence, **error.values)
