"""Whose words a turn may have: of those who wrote here, of those who are quoted, and of those who wrote elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Quote, Sender
from bubbot.ports.people import Account
from bubbot.runtime.rerun import UNKNOWN_SENDER, SpeakerFinder
from bubbot.runtime.turns import TurnRecord
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import JsonObject, TapeEntry, event, message, text_field
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.service import TapeService
from tests.doubles import START
from tests.family import GROUP, MEMBER, OWNER, Family, family
from tests.turns import says

ANN, BEN, UNKNOWN = ("tg", OWNER), ("tg", MEMBER), ("tg", UNKNOWN_SENDER)


def list_jobs(**arguments: Any) -> Mapping[str, Any]:
    call = {"calls": [{"name": "schedule_list", "arguments": arguments}]}
    return {"rules": [{"when": "Which jobs", "steps": [call, says("Those.")]}], "default": [says("Well.")]}


async def find_people(bench: Family, chat: str) -> list[set[Account] | None]:
    """Return the people of each turn of a chat."""
    turns: dict[str, list[TapeEntry]] = {}
    for entry in await bench.entries(chat):
        turns.setdefault(text_field(entry.meta, "turn"), []).append(entry)
    finder = SpeakerFinder(bench.daemon.bot.tape(f"tg:{chat}"))
    return [await finder.find(TurnRecord.of(entries)) for entries in turns.values()]


async def test_nobody_knows_whose_words_an_owner_is_told_of_other_chats(tmp_path: Path) -> None:
    async with family(tmp_path, ScriptedModel(list_jobs(every=True)), agents={}) as bench:
        await bench.say(',schedule.add "tomorrow at 9" text="Feed the fish"', MEMBER, MEMBER)
        for text in ("Hello", ",schedules every=true", "Which jobs are there?", "And now?"):
            await bench.say(text, OWNER, OWNER)
        assert await find_people(bench, OWNER) == [{ANN}, None, None, None]


async def test_an_owner_is_told_of_own_jobs_in_other_chats(tmp_path: Path) -> None:
    async with family(tmp_path, ScriptedModel(list_jobs(every=True)), agents={}) as bench:
        await bench.say(',schedule.add "tomorrow at 9" text="Feed the fish"', OWNER, GROUP)
        for text in (",schedules every=true", "Which jobs are there?"):
            await bench.say(text, OWNER, OWNER)
        assert await find_people(bench, OWNER) == [{ANN}, {ANN}]


async def test_who_only_typed_commands_has_words_in_results(tmp_path: Path) -> None:
    async with family(tmp_path, ScriptedModel(list_jobs()), agents={}) as bench:
        await bench.say(',schedule.add "tomorrow at 9" text="Feed the fish"', OWNER)
        await bench.say("Which jobs are there?", MEMBER)
        assert await find_people(bench, GROUP) == [{ANN}, {ANN, BEN}]


async def test_what_is_passed_on_without_its_author_is_of_somebody_unknown(tmp_path: Path) -> None:
    quotes = [Quote("q1", Sender("", "Eve"), "Nine."), Quote("q2", Sender("77", "Eve"), "Ten.")]
    async with family(tmp_path, ScriptedModel({"default": [says("Well.")]}), agents={}) as bench:
        await bench.say("Is that so?", OWNER, OWNER, quote=quotes[0])
        await bench.say("Is that so?", MEMBER, MEMBER, quote=quotes[1])
        await bench.say("[forwarded from Eve] Eleven.", OWNER, GROUP, provenance="world")
        assert await find_people(bench, OWNER) == [{ANN, UNKNOWN}]
        assert await find_people(bench, MEMBER) == [{BEN, ("tg", "77")}]
        assert await find_people(bench, GROUP) == [{ANN, UNKNOWN}]


async def test_an_approval_is_passed_on_by_nobody(tmp_path: Path) -> None:
    post = {"calls": [{"name": "post_send", "arguments": {"to": "bob", "text": "hello"}}]}
    script = {"rules": [{"when": "Send it", "steps": [post, says("Sent.")]}], "default": [says("Well.")]}
    async with family(tmp_path, ScriptedModel(script), agents={}) as bench:
        await bench.say("Send it", OWNER, OWNER)
        await bench.say(f",approve {bench.cards[-1]}", OWNER, OWNER)
        people = await find_people(bench, OWNER)
        assert len(people) >= 3
        assert [*filter(None, people)] == [{ANN}] * len(people)


async def test_a_finder_that_goes_on_in_a_fork_finds_whom_the_whole_tape_has(tmp_path: Path) -> None:
    search = {"calls": [{"name": "tape_search", "arguments": {"query": "garden"}}]}
    script = {"rules": [{"when": "Look", "steps": [search, says("Found.")]}], "default": [says("Well.")]}
    async with family(tmp_path, ScriptedModel(script), agents={}) as bench:
        await bench.say("The garden is green", MEMBER)
        await bench.say(",new")
        await bench.say("Look for the garden")
        entries = await bench.entries()
        turn = TurnRecord.of([each for each in entries if each.meta.get("turn") == entries[-1].meta["turn"]])
        tape = bench.daemon.bot.tape(f"tg:{GROUP}")
        before = SpeakerFinder(await bench.daemon.bot.features._kernel.open_copy(tape.name))
        await before.find_before(turn.entries[0].id - 1)
        assert await before.go_on(tape).find(turn) == await SpeakerFinder(tape).find(turn) == {ANN, BEN}


@pytest.mark.parametrize(
    ("facts", "people"), [({"shown": [[1, 1]]}, {BEN}), ({"shown": "all"}, None), ({"step": 1}, None)]
)
async def test_nobody_knows_whose_words_a_step_was_shown_that_does_not_say(
    memory_store: InMemoryStore, facts: JsonObject, people: set[Account] | None
) -> None:
    tape = TapeService(memory_store, "chat", now=lambda: START, new_id=str, session="tg:5")
    found = await tape.append([message("user", "Hello", sender={"id": MEMBER}), event(STEP_EVENT, facts, turn="t")])
    assert await SpeakerFinder(tape).find(TurnRecord.of(found[1:])) == people
