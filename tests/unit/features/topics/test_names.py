"""The names of topics: what is the same topic, and what no name may hold."""

from __future__ import annotations

import pytest

from bubbot.features.topics.names import parse_topic
from bubbot.models.scripted import ScriptedModel
from bubbot.runtime.router import parse_command
from bubbot.texts import Texts
from tests.turns import toolbox


@pytest.mark.parametrize(
    ("typed", "key", "title"),
    [
        ("Trip", "trip", "Trip"),
        ("  Trip   to\tRome ", "trip to rome", "Trip to Rome"),
        ("ＴＲＩＰ", "trip", "TRIP"),
        ("Straße", "strasse", "Straße"),
        ("罗马之行", "罗马之行", "罗马之行"),
        ("a/b/../c", "a/b/../c", "a/b/../c"),
        ("two\nlines\x00\x1b[2J", "two lines _2j", "two lines _2J"),
        ("\u202eevil\u202c", "evil", "evil"),
        ("<memory>", "_memory_", "_memory_"),
        ("👍", "👍", "👍"),
    ],
)
def test_a_name_is_folded_to_a_key_and_cleaned_for_people(typed: str, key: str, title: str) -> None:
    name = parse_topic(typed)
    assert name is not None
    assert (name.key, name.title) == (key, title)


@pytest.mark.parametrize("typed", ["", "  ", "\x00\x01", "\u202e", "x" * 65, "bind", "Bind it"])
def test_an_empty_or_long_name_or_one_that_binds_is_refused(typed: str) -> None:
    assert parse_topic(typed) is None
    assert parse_topic("x" * 64) is not None


@pytest.mark.parametrize("typed", ["-", "off", " OFF ", "－"])
def test_the_main_line_has_words_of_its_own(typed: str) -> None:
    name = parse_topic(typed)
    assert name is not None
    assert (name.key, name.is_main_line) == ("-", True)


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("Trip to Rome", ",topic Trip to Rome"),
        ('say "hi"', ',topic name="say ""hi"""'),
        ("a=b", ',topic name="a=b"'),
        ('key="a b" 50% \\', ',topic name="key=""a b"" 50% \\"'),
        ("off", ",topic -"),
    ],
)
def test_the_command_names_the_topic_whatever_signs_it_has(typed: str, command: str) -> None:
    name = parse_topic(typed)
    assert name is not None
    assert name.command == command
    tool, args = parse_command(command, toolbox(ScriptedModel()), Texts())
    assert tool.name == "topic.open"
    assert parse_topic(getattr(args, "name")) == name  # noqa: B009 - the arguments of any command
