"""Refusals of a schedule: a sentence in the language of the chat."""

from __future__ import annotations

from bubbot.features.schedule.refusal import refusal_text
from bubbot.texts import Texts
from bubbot.times.refusal import TimeRefused


def test_a_chat_is_told_in_its_language() -> None:
    error, english, chinese = TimeRefused("zone_unknown", name="Mars/Base"), Texts(), Texts("zh")
    assert "Mars/Base" in refusal_text(error, english)
    assert refusal_text(error, chinese) == chinese.say("zone_unknown", name="Mars/Base") != refusal_text(error, english)
