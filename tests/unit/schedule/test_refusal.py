"""Refusals of a schedule: a text in English, and a sentence in the language of the chat."""

from __future__ import annotations

import pytest

from bubbot.schedule.refusal import build_refusal, refusal_text
from bubbot.texts import Texts


def test_its_english_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    error = build_refusal("zone_unknown", name="Mars/Base")
    first = str(error)
    monkeypatch.delattr(Texts, "say")
    assert str(error) == first
    assert "Mars/Base" in first


def test_a_chat_is_told_in_its_language() -> None:
    error, chinese = build_refusal("zone_unknown", name="Mars/Base"), Texts("zh")
    assert refusal_text(error, chinese) == chinese.say("zone_unknown", name="Mars/Base") != str(error)
