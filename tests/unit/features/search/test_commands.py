"""What people and models find on the whole tape, and what a search leaves out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bubbot.errors import ConfigError, ToolRetry
from bubbot.features.search.feature import search_feature
from bubbot.features.search.view import ECHOES
from bubbot.features.topics.view import find_visits
from bubbot.ports.turn import Turn
from bubbot.shell_command import CommandContext, CommandResult
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import event, message, tool_call, tool_result
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from tests.all_tools import all_tools
from tests.callers import run_shell
from tests.doubles import SteppingClock

(tape_search,) = search_feature().tools


async def use(turn: Turn, /, **arguments: object) -> str:
    answer = await tape_search.run(turn, tape_search.parse(json.dumps(arguments)))
    assert isinstance(answer, str)
    return answer


def test_the_tool_and_its_name() -> None:
    assert (tape_search.name, tape_search.commands) == ("tape.search", ("search",))
    assert "$ref" not in json.dumps(dict(tape_search.spec().as_json())), "some providers refuse references"


async def test_search_cites_and_marks(chat: TapeService, begin: Callable[..., Any]) -> None:
    await chat.append([message("user", "Volcano\ntour"), message("user", "volcanoe trip")])
    await chat.correct(1, "tour cancelled")
    turn = await begin()
    assert await use(turn, query="volcano") == (
        'Found 2 for "volcano" on the whole tape, whole words first:\n'
        "#1 2026-11-21 21:21 message [superseded by #3]: Volcano tour\n"
        "#2 2026-11-21 21:21 message: volcanoe trip"
    )
    assert "#1 2026-11-21 21:21 message (approximate) [superseded by #3]: Volcano tour" in await use(
        turn, query="volcnao"
    )
    assert (await use(turn, query="volcano", limit=1)).count("\n") == 1


async def test_search_says_what_it_left_out(chat: TapeService, begin: Callable[..., Any]) -> None:
    zones = [
        entry
        for text in ("tea", "coffee")
        for entry in (anchor("memory/open"), event("memory.long_term", {"content": text}), anchor("memory/seal"))
    ]
    await chat.append([*zones, message("user", "tea")])
    await chat.hide(7)
    turn = await begin()
    search = {"id": "c", "function": {"name": "tape_search", "arguments": '{"query":"tea"}'}}
    await turn.tape.append([tool_call([search]), tool_result([{"tool_call_id": "c", "content": "tea"}])])
    assert await use(turn, query="tea") == (
        'Nothing found for "tea" on the whole tape.\n'
        "Left out: 1 own output of earlier searches, 1 hidden, 1 in older versions of the memory."
    )


async def test_search_names_its_bounds(chat: TapeService, begin: Callable[..., Any]) -> None:
    turn = await begin()
    assert await use(turn, query="x", kinds=["message"], since="2026-11-21", until="2026-11-22") == (
        'Nothing found for "x" on the whole tape from 2026-11-21 until 2026-11-22 (only message).'
    )


async def test_search_takes_one_sided_dates_in_the_chats_zone(chat: TapeService, begin: Callable[..., Any]) -> None:
    at = ["2026-11-20T22:59:00+00:00", "2026-11-20T23:01:00+00:00"]
    await chat.append([replace(message("user", "tea"), date=date) for date in at])
    turn = await begin()
    assert "#1" not in await use(turn, query="tea", since="2026-11-21")
    assert "#2" not in await use(turn, query="tea", until="2026-11-20")
    assert "#2" in await use(turn, query="tea", since="2026-11-21")
    assert "Found 2" in await use(turn, query="tea", since="0001-01-01", until="9999-12-31")


async def test_search_takes_kinds_as_text(chat: TapeService, begin: Callable[..., Any]) -> None:
    await chat.append([message("user", "tea"), event("note", {"text": "tea"}), anchor("tea")])
    turn = await begin()
    assert "Found 2" in await use(turn, query="tea", kinds="message, anchor")
    assert "Found 3" in await use(turn, query="tea", kinds="")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"query": "  "}, "query is empty"),
        ({}, "query is missing"),
        ({"query": "x", "since": "the other day"}, "2026-11-21"),
        ({"query": "x", "since": "2026-11-22", "until": "2026-11-21"}, "is after until"),
        ({"query": "x", "kinds": "messages"}, "must be message, tool_call"),
        ({"query": "x", "limit": 0}, "limit"),
    ],
)
async def test_search_says_what_to_mend(begin: Callable[..., Any], arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ToolRetry, match=says):
        await use(await begin(), **arguments)


async def test_the_question_itself_is_no_answer(chat: TapeService, begin: Callable[..., Any]) -> None:
    turn = await begin()
    await turn.tape.append([message("user", "what did I say about bananas?")])
    turn.message_ids.append(1)
    assert "Nothing found" in await use(turn, query="bananas")


async def test_a_topic_bounds_the_search(chat: TapeService, begin: Callable[..., Any]) -> None:
    await chat.append([
        anchor("topic/rome", {"title": "Rome"}), message("user", "green tea"), anchor("topic-left/rome"),
        message("user", "black tea"), anchor("topic/rome", {"title": "Rome"}, window=False), message("user", "white tea"),
    ])  # fmt: skip
    turn = await begin()
    (of_topics,) = search_feature(find_visits).tools
    found = await of_topics.run(turn, of_topics.parse('{"query": "tea", "topic": "ROME"}'))
    assert str(found).splitlines()[0] == 'Found 2 for "tea" on the whole tape in the topic ROME, whole words first:'
    assert re.findall("^#([0-9]+)", str(found), re.MULTILINE) == ["6", "2"]
    for tool, topic in ((of_topics, "Mars"), (of_topics, "[x]"), (tape_search, "Rome")):
        with pytest.raises(ToolRetry, match=r"topic: there is no topic"):
            await tool.run(turn, tool.parse(json.dumps({"query": "tea", "topic": topic})))


async def test_a_person_and_days_as_people_say_them_bound_the_search(
    chat: TapeService, begin: Callable[..., Any]
) -> None:
    ann = {"id": "1001", "name": "Ann Lee"}
    said = [("2026-11-16", "tea on monday"), ("2026-11-20", "tea on friday"), ("2026-11-21", "tea today")]
    await chat.append([replace(message("user", text, sender=ann), date=f"{day}T12:00:00+00:00") for day, text in said])
    await chat.append([message("user", "tea of Bob", sender={"id": "1002", "name": "Bob"})])
    turn = await begin()
    found = await use(turn, query="tea", person="@ann", since="yesterday", until="friday")
    assert found.splitlines() == [
        'Found 1 for "tea" on the whole tape by @ann from yesterday until friday, whole words first:',
        "#2 2026-11-20 13:00 message: Ann Lee (1001): tea on friday",
    ]
    assert "Found 1" in await use(turn, query="tea", person="1002")
    assert "Nothing found" in await use(turn, query="tea", person='"*:^')


def test_commands_that_repeat_the_tape_are_commands_of_the_bot() -> None:
    names = {tool.name for tool in all_tools()}
    assert names >= ECHOES, "their outputs would be hits"


async def in_shell(store: TapeStore, words: str, language: str = "en", **options: str) -> CommandResult:
    context = CommandContext(store, "", SteppingClock(), str, texts=Texts(language))
    return await run_shell("tape search", context, tape="chat", words=words, **options)


async def test_a_shell_searches_any_tape_and_programs_get_the_hits(chat: TapeService, store: TapeStore) -> None:
    await chat.append([message("user", "green\ntea"), message("user", "black tea")])
    found = await in_shell(store, "tea")
    assert (found.text, found.code) == (
        "#2 2026-11-21 20:21 message: black tea\n#1 2026-11-21 20:21 message: green tea\n",
        0,
    )
    assert found.data is not None
    assert (found.data["exact"], [hit["id"] for hit in found.data["hits"]]) == (2, [2, 1])
    assert [hit["id"] for hit in (await in_shell(store, "tea", since="today", person="")).data["hits"]] == [2, 1]  # type: ignore[index]
    assert (await in_shell(store, "tea", person="Ann")).code == 1
    nothing = await in_shell(store, "coffee")
    assert (nothing.text, nothing.code) == ('Nothing found for "coffee".\n', 1)
    assert (await in_shell(store, "coffee", "de")).text == "Kein Treffer für „coffee“.\n"


@pytest.mark.parametrize(
    ("words", "options", "says"),
    [
        (" ", {}, "such as `bubbot tape search default tea`"),
        ("tea", {"since": "the other day"}, "'the other day' is not a date"),
        ("tea", {"since": "2026-11-22", "until": "2026-11-21"}, "--since 2026-11-22 is after --until 2026-11-21"),
    ],
)
async def test_a_shell_is_told_what_to_mend(
    chat: TapeService, store: TapeStore, words: str, options: dict[str, str], says: str
) -> None:
    await chat.append([message("user", "tea")])
    with pytest.raises(ConfigError, match=says):
        await in_shell(store, words, **options)
