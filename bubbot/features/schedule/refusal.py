"""Refusals of a schedule, in the language of the chat."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from bubbot.errors import ScheduleRefused
from bubbot.records import dataclass
from bubbot.texts import Texts


@dataclass(frozen=True)
class _EnglishSentence:
    """A sentence that reads its catalogue only if somebody asks for its text: chats show it in their own language."""

    name: str
    values: Mapping[str, object]

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return _say(self.name, self.values, Texts())


def build_refusal(sentence: str, **values: object) -> ScheduleRefused:
    """Make the error with the sentence of this name; `refusal_text` translates it."""
    return ScheduleRefused(_EnglishSentence(sentence, values), sentence, values)


def refusal_text(error: ScheduleRefused, texts: Texts) -> str:
    """Return the error as a sentence in this language."""
    return _say(error.sentence, error.values, texts)


def _say(sentence: str, values: Mapping[str, object], texts: Texts) -> str:
    """Return a sentence, and after it the readings that can be typed instead, if there are any."""
    text, nearest = texts.say(sentence, **values), values.get("nearest")
    if not isinstance(nearest, tuple):
        return text
    return texts.say("when_nearest", refusal=text, nearest="\n".join(nearest))
