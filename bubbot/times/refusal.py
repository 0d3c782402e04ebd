"""Refusals of a time: the name of a sentence and its values. Who shows one says it in the language of the reader."""

from __future__ import annotations

from bubbot.errors import ScheduleRefused


def build_refusal(sentence: str, **values: object) -> ScheduleRefused:
    """Make the error with the sentence of this name."""
    return ScheduleRefused(sentence, sentence, values)
