"""People inside texts: what is replaced, what stays, and that both are the same each time."""

from __future__ import annotations

import json

import pytest

from bubbot.features.otel.content import Exposure
from bubbot.features.otel.feature import OtelConfig
from bubbot.features.otel.people import PeopleRedactor, Person, find_people
from bubbot.ports.model import ToolCall
from bubbot.tape.entry import message
from tests.made_settings import make_settings

ANN, BO = (
    Person("81450002", "Ann-Marie Summers"),
    Person("7", "\N{CJK UNIFIED IDEOGRAPH-738B}\N{CJK UNIFIED IDEOGRAPH-660E}"),
)


def redactor() -> PeopleRedactor:
    """One whose pseudonyms can be read."""
    return PeopleRedactor(
        lambda what, name: f"<{name}>", session="telegram:-1001234567", people=[ANN, BO], channels=["tg", "family"]
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("I am 81450002.", "I am [person <telegram:81450002>]."),
        ("user_81450002 and x81450002y", "user_[person <telegram:81450002>] and x[person <telegram:81450002>]y"),
        ("Ann-Marie Summers (#81450002): hi", "[person <telegram:81450002>] (#[person <telegram:81450002>]): hi"),
        ("a stranger (#42): hi", "a stranger (#[person <telegram:42>]): hi"),
        ("thanks, Marie!", "thanks, [person <telegram:81450002>]!"),
        (f"hello{BO.name}!", "hello[person <telegram:7>]!"),
        ("see <@!123456789012345678>", "see <@![person <telegram:123456789012345678>]>"),
        ("in telegram:-1001234567 or tg:42:7.", "in [chat <telegram:-1001234567>] or [chat <tg:42:7>]."),
        ("in family:42", "in [chat <family:42>]"),
        ("write to ann@mail.example.org,", "write to [mail],"),
        ("ask @ann_summers", "ask [name]"),
        ("+49 (170) 555-0123 or 0170/5550123", "[phone] or [phone]"),
        ("call 555-123-4567 now", "call [phone] now"),
    ],
)
def test_what_tells_who_somebody_is_is_replaced(text: str, shown: str) -> None:
    assert redactor()(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-24T10:00:00.123456+00:00 lasted 12345 ms",
        "http://localhost:6006/v1/traces",
        "turn 0123456789abcdef0123456789abcdef, entry 123456",
        "3.14159265 and 1,234,567",
        "mail at noon, Summersville, (#) and @",
        "telegram: hello",
        "the anchor session/start (#6), 7 entries since",
        "192.168.178.20",
    ],
)
def test_what_is_nobody_stays(text: str) -> None:
    assert redactor()(text) == text


def test_pseudonyms_inside_texts_are_those_of_the_span() -> None:
    plain = Exposure("redacted", str, b"key")
    exposure = plain.of_turn("telegram:42", [ANN])
    assert exposure.text("Marie") == f"[person {plain.identify('user', 'telegram:81450002')}]"
    assert exposure.text("telegram:42") == f"[chat {plain.identify('session', 'telegram:42')}]"
    assert Exposure("full", str, b"key").of_turn("telegram:42", [ANN]).text("Marie") == "Marie"


def test_chats_of_each_channel_of_the_settings_are_known_by_its_name() -> None:
    channels = OtelConfig.of(make_settings(channels={"family": {"kind": "telegram"}})).channels
    shown = Exposure("redacted", str, b"key", channels=channels).text("family:42, stdin:x1, discord:7 and other:42")
    assert shown.count("[chat ") == 3
    assert shown.endswith("and other:42")


def test_arguments_stay_json_and_numbers_in_them_are_replaced() -> None:
    exposure = Exposure("redacted", str, b"key").of_turn("telegram:42", [ANN])
    arguments = {"to": int(ANN.id), "names": ["Marie", 3, True, None, 1.5], "telegram:42": "x"}
    shown = json.dumps(exposure.arguments(ToolCall("", "", json.dumps(arguments))))
    assert "81450002" not in shown
    assert "Marie" not in shown
    assert "telegram:42" not in shown
    assert "3, true, null, 1.5]" in shown
    assert "81450002" not in str(exposure.arguments(ToolCall("", "", f"broken {ANN.id}")))


def test_the_people_of_entries_are_their_senders_and_those_they_quote() -> None:
    quote = {"text": "x", "sender": {"id": "8", "name": "Cy"}}
    entries = [
        message("user", "hi", sender={"id": "7", "name": "Bo"}, quote=quote),
        message("user", "hi", sender={"id": "9", "name": "Robot", "bot": True}),
        message("assistant", "hi"),
    ]
    assert find_people(entries) == [Person("7", "Bo"), Person("8", "Cy")]


@pytest.mark.parametrize("text", ["a" * 400_000, "1 " * 200_000, "+1-" * 130_000, "a." * 200_000 + "@", "@a" * 200_000])
def test_a_long_text_of_almost_matches_comes_back(text: str) -> None:
    """A pattern that tries again at each character would not end within the day."""
    assert redactor()(text)
