"""What a program is shown of granted tapes, and that nothing of any other reaches it: each guard alone keeps something back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.mcp_serve import FeatureViews
from bubbot.errors import AccessError, BubbotError, ToolRetry
from bubbot.features.mcp.serve import reading
from bubbot.features.mcp.serve.reading import GrantedTapes
from bubbot.features.mcp.serve.tools import TOOLS
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.boundary import TapeBoundary, Viewer
from tests.isolation.boundaries import ShowsAllTapes
from tests.mcp.granted import ALSO_GRANTED, CANARY, GRANTED, REFUSED, granted_batches

WORKSPACE = "home"
BY_NAME = {tool.name: tool for tool in TOOLS}
SESSIONS = (
    "",
    GRANTED,
    ALSO_GRANTED,
    REFUSED,
    "telegram:77",
    "bubbot/access",
    "bubbot/memory/telegram/1",
    f"{GRANTED}x",
    "../x",
)
FURTHER: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "search": ({"query": CANARY}, {"query": "pine"}, {"query": "oak"}, {"query": "pine", "person": "canary-name"}, {"query": "canary-anwser"}),
    "read": ({}, {"before": 8}, {"before": 3, "limit": 1}, {"cursor": "9"}),
    "anchors": ({}, {"cursor": "12", "limit": 1}),
    "memory": ({},),
    "why": ({}, {"turn": "a1b2"}),
    "topics": ({},),
}  # fmt: skip


@pytest.fixture
async def store(memory_store: InMemoryStore) -> InMemoryStore:
    await memory_store.append(granted_batches(WORKSPACE))
    return memory_store


def open_tapes(store: InMemoryStore, *sessions: str, boundary: type[TapeBoundary] = TapeBoundary) -> GrantedTapes:
    viewer = Viewer("the program editor", frozenset(sessions))
    bounded = boundary(store, viewer, workspace=WORKSPACE, references=OWN_REFERENCES)
    return GrantedTapes(bounded, FeatureViews(ZoneInfo("UTC")), sessions)


async def call(tapes: GrantedTapes, tool: str, **arguments: Any) -> Any:
    return json.loads(json.dumps(await BY_NAME[tool].call(tapes, arguments)))


async def tell_all(tapes: GrantedTapes) -> str:
    """Return everything that all tools answer to all arguments, errors included, without what was asked for."""
    told = []
    for tool in TOOLS:
        for session in SESSIONS:
            for more in FURTHER[tool.name]:
                try:
                    told.append(json.dumps(await tool.call(tapes, {**more, "session": session})))
                except BubbotError as error:
                    told.append(str(error).replace(session, ""))
    return "\n".join(told)


async def test_no_word_of_another_tape_is_shown_by_any_tool(store: InMemoryStore) -> None:
    told = await tell_all(open_tapes(store, GRANTED, ALSO_GRANTED))
    assert CANARY not in told.replace("canary-free/model", "")
    assert REFUSED not in told
    assert "__" not in told  # no name of a tape
    for word in (
        "the pine is green",
        "the last pine",
        "a pine in the second chat",
        "the pine of memory",
        "a pine note",
    ):
        assert word in told


async def test_of_two_chats_a_program_that_was_granted_one_sees_nothing_of_the_other(store: InMemoryStore) -> None:
    told = await tell_all(open_tapes(store, ALSO_GRANTED))
    assert "a pine in the second chat" in told
    assert "is green" not in told
    assert "a copy of a pine" not in told  # it rests on the first


@pytest.mark.parametrize("guard", ["boundary", "copies", "copies of copies", "the choice of a chat", "hidden"])
async def test_without_a_guard_words_of_others_are_shown(
    store: InMemoryStore, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    async def withhold_nothing(*_: object) -> tuple[int, ...]:
        return ()

    boundary = ShowsAllTapes if guard == "boundary" else TapeBoundary
    if guard == "copies":
        monkeypatch.setattr(reading, "list_withheld", withhold_nothing)
        monkeypatch.setattr(GrantedTapes, "_find_withheld_among", lambda *_: _nothing())
    elif guard == "copies of copies":
        monkeypatch.setattr(GrantedTapes, "_find_withheld_among", lambda *_: _nothing())
    elif guard == "the choice of a chat":
        monkeypatch.setattr(GrantedTapes, "_choose", lambda _self, named: named or GRANTED)
        boundary = ShowsAllTapes
    elif guard == "hidden":
        monkeypatch.setattr(reading, "_is_shown", lambda _: True)
    told = await tell_all(open_tapes(store, GRANTED, ALSO_GRANTED, boundary=boundary))
    assert CANARY in told.replace("canary-free/model", "")


async def _nothing() -> frozenset[tuple[str, int]]:
    return frozenset()


async def test_a_tape_that_is_not_granted_and_one_that_does_not_exist_are_refused_alike(store: InMemoryStore) -> None:
    tapes = open_tapes(store, GRANTED, ALSO_GRANTED)
    for tool in TOOLS:
        reasons = set()
        for session in (REFUSED, "telegram:7", "bubbot/inbox/telegram"):
            with pytest.raises(AccessError) as caught:
                await tool.call(tapes, {**FURTHER[tool.name][0], "session": session})
            reasons.add(str(caught.value).replace(session, "X"))
        assert reasons == {
            f"session is 'X', which is not one of the chats that this program may read: {GRANTED}, {ALSO_GRANTED}"
        }


async def test_the_boundary_refuses_what_the_choice_of_a_chat_lets_through(
    store: InMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GrantedTapes, "_choose", lambda _self, named: named)
    tapes = open_tapes(store, GRANTED)
    for tool in TOOLS:
        with pytest.raises(AccessError, match="may not see the tape"):
            await tool.call(tapes, {**FURTHER[tool.name][0], "session": REFUSED})


class TestReading:
    async def test_pages_lead_from_the_newest_message_to_the_first(self, store: InMemoryStore) -> None:
        tapes, seen, cursor = open_tapes(store, GRANTED), list[str](), ""
        while True:
            page = await call(tapes, "read", limit=1, cursor=cursor)
            seen += [message["text"] for message in page["messages"]]
            if not (cursor := page["next_cursor"]):
                break
        assert seen == ["the last pine", "older pine, corrected", "", "the pine is green"]

    async def test_a_message_has_its_chat_id_date_and_author(self, store: InMemoryStore) -> None:
        page = await call(open_tapes(store, GRANTED), "read", before=4)
        assert page["session"] == GRANTED
        (message,) = page["messages"]
        assert (message["id"], message["author"], message["role"]) == (3, "Ann (#1)", "user")

    async def test_what_rests_on_another_chat_is_named_and_left_out(self, store: InMemoryStore) -> None:
        page = await call(open_tapes(store, GRANTED), "read", before=8)
        withheld = [each for each in page["messages"] if each["is_withheld"]]
        assert [(each["id"], each["text"]) for each in withheld] == [(7, "")]

    async def test_it_is_shown_once_that_chat_is_granted_too(self, store: InMemoryStore) -> None:
        page = await call(open_tapes(store, GRANTED, REFUSED), "read", session=GRANTED, before=8)
        assert page["messages"][-1]["text"].startswith("canary-answer")

    async def test_long_texts_and_pages_are_cut(self, memory_store: InMemoryStore) -> None:
        from bubbot.tape.entry import message
        from bubbot.tape.service import session_tape
        from bubbot.tape.store import Batch

        long = tuple([message("user", f"{number} " + "x" * 20_000) for number in range(20)])
        await memory_store.append([Batch(session_tape(WORKSPACE, GRANTED), long)])
        page = await call(open_tapes(memory_store, GRANTED), "read", limit=100)
        assert len(json.dumps(page)) < 60_000
        assert all(each["is_cut"] for each in page["messages"])
        assert page["next_cursor"] == str(page["messages"][0]["id"])


class TestSearching:
    async def test_hits_name_their_chat_and_come_in_pages(self, store: InMemoryStore) -> None:
        tapes, found, cursor = open_tapes(store, GRANTED, ALSO_GRANTED), list[tuple[str, int]](), ""
        while True:
            page = await call(tapes, "search", query="pine", limit=2, cursor=cursor)
            assert len(page["hits"]) <= 2
            found += [(hit["session"], hit["id"]) for hit in page["hits"]]
            if not (cursor := page["next_cursor"]):
                break
        assert len(found) == len(set(found))
        assert {(GRANTED, 3), (ALSO_GRANTED, 2)} <= set(found)
        assert (GRANTED, 7) not in found

    async def test_a_wrong_date_is_named(self, store: InMemoryStore) -> None:
        with pytest.raises(BubbotError, match="'blah' is not a date"):
            await call(open_tapes(store, GRANTED), "search", query="pine", since="blah")


class TestWhy:
    async def test_an_answer_is_explained_without_other_tapes(self, store: InMemoryStore) -> None:
        told = await call(open_tapes(store, GRANTED), "why")
        assert (told["turn"], told["first"], told["last"], told["answer"]) == ("a1b2c3d4", 2, 8, 7)
        (step,) = told["steps"]
        assert (step["shown"], step["shown_elsewhere"]) == ([[1, 5]], 1)
        assert told["tools"] == [{"id": 4, "name": "chat_read"}]
        assert (told["foreign"], told["foreign_elsewhere"]) == ([3], 1)

    async def test_an_unknown_turn_is_named(self, store: InMemoryStore) -> None:
        with pytest.raises(BubbotError, match="turn is 'ffff', and no turn"):
            await call(open_tapes(store, GRANTED), "why", turn="ffff")


async def test_anchors_tell_their_own_sources_and_count_the_others(store: InMemoryStore) -> None:
    listed = {each["name"]: each for each in (await call(open_tapes(store, GRANTED), "anchors"))["anchors"]}
    assert listed["phase/two"] | {"date": ""} == listed["phase/two"] | {
        "date": "", "summary": "", "sources": [], "parents": [], "elsewhere": 2, "is_withheld": True,
    }  # fmt: skip
    assert listed["phase/three"]["is_withheld"]
    assert (listed["phase/four"]["summary"], listed["phase/four"]["sources"]) == ("the pine stands", [3])


async def test_a_memory_is_that_of_the_chat(store: InMemoryStore) -> None:
    told = await call(open_tapes(store, GRANTED), "memory")
    assert (told["version"], told["long_term"]) == (1, "the pine of memory")
    assert told["notes"] == [{"date": "2026-11-20", "text": "a pine note"}]


async def test_topics_are_named_without_what_they_rest_on_elsewhere(store: InMemoryStore) -> None:
    (topic,) = (await call(open_tapes(store, GRANTED), "topics"))["topics"]
    assert (topic["name"], topic["summary"], topic["is_withheld"]) == ("Trip", "", True)


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("read", {"limit": -3}, "limit is -3, but must be at least 1"),
        ("read", {"limit": 10**9}, "limit is 1000000000, but must be at most 100"),
        ("read", {"before": -1}, "before is -1, but must be at least 0"),
        ("read", {"cursor": "-1"}, "cursor is '-1': send next_cursor"),
        ("read", {"cursor": "x' OR 1=1"}, "cursor is"),
        ("read", {"sesion": "telegram:1"}, "there is no sesion"),
        ("search", {}, "query"),
        ("search", {"query": ""}, "query"),
        ("search", {"query": {"$ne": 1}}, "query"),
        ("search", {"query": "\ud800"}, "half of a surrogate pair"),
        ("anchors", {"limit": "many"}, "limit is \"many\", but must be a whole number"),
    ],
)  # fmt: skip
async def test_wrong_arguments_are_named(
    store: InMemoryStore, tool: str, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ToolRetry) as caught:
        await call(open_tapes(store, GRANTED), tool, **arguments)
    assert reason in str(caught.value)
