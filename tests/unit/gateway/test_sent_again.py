"""A part that is sent again and may have arrived before says so in the chat; nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from msgspec import structs

from bubbot.errors import DeliveryFailed
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import MessagePart, Outbound, OutboundFile
from bubbot.stores.inmemory import InMemoryStore
from bubbot.texts import Texts
from bubbot.texts.catalogue import list_languages
from channels.discord import text as discord_text
from channels.markdown.marked_text import count_utf16_units
from channels.telegram import text as telegram_text
from tests.gateways import SearchedStage, Stage, failing, rules
from tests.turns import Options, running
from tests.virtual import virtual

SENTENCE = Texts().say("sent_again")
TIMEOUT = DeliveryFailed("no answer in time", maybe=True)
REFUSED = DeliveryFailed("offline")
Mark: TypeAlias = Callable[[MessagePart, str], MessagePart]
ADAPTERS: dict[str, tuple[Mark, Callable[[Outbound], list[MessagePart]], int]] = {
    "telegram": (telegram_text.mark_repeat, telegram_text.make_parts, telegram_text.TELEGRAM_MESSAGE_LIMIT),
    "discord": (discord_text.mark_repeat, discord_text.split_answer, discord_text.DISCORD_MESSAGE_LIMIT),
}


class MarkingStage(Stage):
    """A channel without keys and search, as Telegram is."""

    def mark_repeat(self, part: MessagePart, sentence: str) -> MessagePart:
        """See `MarksRepeats`."""
        return structs.replace(part, text=f"{part.text} {sentence}")


class SearchedMarkingStage(SearchedStage, MarkingStage):
    """One whose history can be searched."""


@virtual
@pytest.mark.parametrize(("error", "marked"), [(TIMEOUT, True), (REFUSED, False)])
async def test_a_part_is_marked_if_the_try_before_may_have_arrived(
    memory_store: InMemoryStore, error: DeliveryFailed, marked: bool
) -> None:
    stage = MarkingStage()
    if marked:
        stage.lose_response = failing("send", error)
    else:
        stage.fail = failing("send", error)
    async with running(memory_store, ScriptedModel(), Options(rules=rules()), channel=stage) as bench:
        await bench.gate.receive(bench.inbound("hi"))
        await bench.quiet(1000)
    said = ["You said: hi", f"You said: hi {SENTENCE}"] if marked else ["You said: hi"]
    assert [part.text for part in stage.sent] == said


@virtual
@pytest.mark.parametrize("lost", [False, True])
async def test_after_a_kill_only_what_had_begun_is_marked(memory_store: InMemoryStore, lost: bool) -> None:
    """The first of three messages waits for an outcome; a process sends one message of a chat after another."""
    stage = MarkingStage()
    stage.hang = {"response"} if lost else {"send"}
    async with running(memory_store, ScriptedModel(), Options(rules=rules()), channel=stage) as bench:
        for text in ("one", "two", "three"):
            await bench.gate.receive(bench.inbound(text))
            await bench.app.wait_idle()
    stage.hang = set()
    before = len(stage.sent)
    assert before == int(lost)
    async with running(memory_store, ScriptedModel(), Options(rules=rules()), channel=stage, life="second") as bench:
        await bench.resume()
        await bench.quiet(1000)
    said = [part.text for part in stage.sent[before:]]
    assert said == [f"You said: one {SENTENCE}", "You said: two", "You said: three"]


@virtual
async def test_what_a_search_does_not_find_is_not_marked(memory_store: InMemoryStore) -> None:
    stage = SearchedMarkingStage()
    stage.hang = {"send"}
    async with running(memory_store, ScriptedModel(), Options(rules=rules()), channel=stage) as bench:
        await bench.gate.receive(bench.inbound("hi"))
        await bench.app.wait_idle()
    stage.hang = set()
    async with running(memory_store, ScriptedModel(), Options(rules=rules()), channel=stage, life="second") as bench:
        await bench.resume()
        await bench.quiet(1000)
    assert [part.text for part in stage.sent] == ["You said: hi"]


@pytest.mark.parametrize("language", list_languages("bubbot.texts"))
@pytest.mark.parametrize("platform", ADAPTERS)
def test_the_sentence_fits_below_every_part_of_an_answer_and_changes_nothing_above_it(
    platform: str, language: str
) -> None:
    mark, split, limit = ADAPTERS[platform]
    sentence = Texts(language).say("sent_again")
    answers = [
        "x" * 10_000,
        "a *b* `c`\n\n```python\nprint(1)\n```",
        "> quoted",
        "- one\n- two",
        "**bold**",
        "𝒳" * 5_000,
    ]
    files = (OutboundFile("a.txt", text="x"),)
    for answer in answers:
        for part in split(Outbound("c", "1", answer, files=files)):
            marked = mark(part, sentence)
            assert marked.text.startswith(part.text)
            assert marked.text.endswith(sentence)
            assert count_utf16_units(marked.text) <= limit
            assert structs.replace(marked, text=part.text) == part, "entities, file, reply and key are the same"


@pytest.mark.parametrize("platform", ADAPTERS)
def test_a_part_of_an_earlier_version_that_leaves_no_room_goes_as_it_is(platform: str) -> None:
    mark, _, limit = ADAPTERS[platform]
    part = MessagePart("1", "x" * limit)
    assert mark(part, SENTENCE) == part
