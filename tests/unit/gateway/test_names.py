"""Names of chats and people on the page, and that an id stays where none is known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.gateway.names import NameBook
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.boundary import OWNER, TapeBoundary, Viewer
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.store import Batch
from bubbot.texts import Texts
from tests.unit.features.trace.test_pages import look, pages_of


def received(session: str, name: str, number: str, *, direct: bool = True, **more: str) -> TapeEntry:
    """A message on an inbox."""
    channel, chat, *_ = session.split(":")
    sender = {"id": number, "name": name}
    return event(
        "inbox/received",
        {"channel": channel, "chat": chat, "session": session, "sender": sender, "direct": direct, **more},
    )


FACTS: Mapping[str, tuple[TapeEntry, ...]] = {
    "bubbot/inbox/telegram": (
        received("telegram:42", "Old name", "42"),
        received("telegram:42", "Alice", "42"),
        received("telegram:42:7", "Alice", "42", thread="7"),
        received("telegram:1002", "Bob", "1002"),
        received("telegram:1003", "Bob", "1003"),
        received("telegram:-100", "Carl\n the\tfirst", "4", direct=False),
        event("inbox/called", {"channel": "telegram", "chat": "-100", "space": "", "title": "Family"}),
        received("telegram:-200", "Alice", "42", direct=False),
        received("telegram:-200", "Dora", "5", direct=False),
        *(received("telegram:-300", f"P{number}", f"9{number}", direct=False) for number in range(5)),
    ),
    "bubbot/inbox/discord": (received("discord:8", "Eve", "6", direct=False, space="77"),),
    "bubbot/access": (event("access/group", {"channel": "discord", "group": "77", "audience": "known", "title": "Our server"}),),
    "bubbot/inbox/stdin": (received("stdin:work", "owner", "0"),),
}  # fmt: skip
CHATS = {
    "telegram:42": "Alice on Telegram",
    "telegram:42:7": "Alice on Telegram, thread 7",
    "telegram:1002": "Bob (1002) on Telegram",
    "telegram:1003": "Bob (1003) on Telegram",
    "telegram:-100": "Family (group on Telegram)",
    "telegram:-200": "Dora, Alice (group on Telegram)",
    "telegram:-300": "P4, P3, P2, … (group on Telegram)",
    "discord:8": "Our server (group on Discord)",
    "stdin:work": "stdin:work",
    "telegram:404": "telegram:404",
}


@pytest.fixture
async def store(memory_store: InMemoryStore) -> InMemoryStore:
    await memory_store.append([Batch(tape, facts) for tape, facts in FACTS.items()])
    return memory_store


def boundary(store: InMemoryStore, viewer: Viewer = OWNER) -> TapeBoundary:
    return TapeBoundary(store, viewer, workspace="home", references=OWN_REFERENCES)


async def test_a_chat_has_its_title_or_the_names_of_those_who_speak(store: InMemoryStore) -> None:
    names = await NameBook.read(boundary(store), Texts())
    assert {session: names.find_chat(session) for session in CHATS} == CHATS
    assert names.find_person("telegram:4") == "Carl the first"
    assert names.find_person("telegram:1002") == "Bob (1002)"
    assert names.find_person("telegram:404") == "telegram:404"


async def test_two_of_one_name_are_told_apart(memory_store: InMemoryStore) -> None:
    """Two groups may have one title, and a person on each platform one name."""
    called = [
        event("inbox/called", {"channel": "telegram", "chat": chat, "space": "", "title": "Family"})
        for chat in ("-1", "-2")
    ]
    spoken = [received(f"telegram:{chat}", "Bob", "7", direct=False) for chat in ("-1", "-2")]
    await memory_store.append([Batch("bubbot/inbox/telegram", (*called, *spoken))])
    await memory_store.append([Batch("bubbot/inbox/discord", (received("discord:5", "Bob", "8"),))])
    names = await NameBook.find(memory_store, Texts(), ["telegram:-1", "discord:5", "stdin:default"])
    assert names.name_chats({"telegram:-2": 2, "telegram:-1": 1, "discord:5": 5}) == {
        "Family (group on Telegram) (telegram:-2)": 2,
        "Family (group on Telegram) (telegram:-1)": 1,
        "Bob on Discord": 5,
    }
    assert names.name_people({"telegram:7": 1, "discord:8": 2, "telegram:9": 3}) == {
        "Bob (telegram:7)": 1,
        "Bob (discord:8)": 2,
        "telegram:9": 3,
    }


async def test_one_channel_is_read_for_the_page_of_a_session(store: InMemoryStore) -> None:
    names = await NameBook.read(boundary(store), Texts(), "discord:8")
    assert names.chats == {"discord:8": CHATS["discord:8"]}


async def test_an_auditor_is_told_no_name_of_a_chat(store: InMemoryStore) -> None:
    names = await NameBook.read(boundary(store, Viewer("ann", frozenset({"telegram:42"}))), Texts())
    assert (names.chats, names.people) == ({}, {})


async def test_pages_and_panels_show_names_with_the_id_where_people_type_it(store: InMemoryStore) -> None:
    start = TapeEntry(
        id=0, kind="anchor", payload={"name": "session/start", "state": {}}, meta={"session": "telegram:-100"}, date=""
    )
    await store.append([Batch("home", (start, message("user", "hello")))])

    async def read(_reader: PanelReader, _query: PanelQuery) -> str:
        return "telegram:42"

    pages = pages_of(store, Panel("all", "All", "deployment", read, "tests.trace:names.html"))
    panel = await look(pages, "/panel/all")
    cells = [
        " ".join(re.sub("<[^>]+>", "", cell).split()) for cell in re.findall("<td[^>]*>(.*?)</td>", panel, re.DOTALL)
    ]
    # Words of people stay what they are, whatever they look like.
    assert cells[:5] == ["Family (group on Telegram)", "Alice", "telegram:404", "#1", "telegram:42"]
    for address in ("/", "/session/home"):
        page = await look(pages, address)
        assert "<bdi>Family (group on Telegram)</bdi>" in page
        assert '<span class="id"><bdi>telegram:-100</bdi></span>' in page


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"session": 1, "sender": []},
        {"session": "telegram:1", "sender": {"name": 5}},
        {"session": "telegram:1", "sender": {"name": " \n"}, "channel": {}},
    ],
)
async def test_a_fact_may_be_of_any_form(memory_store: InMemoryStore, data: Mapping[str, Any]) -> None:
    await memory_store.append(
        [Batch("bubbot/inbox/telegram", (event("inbox/received", data), event("inbox/called", data)))]
    )
    assert (await NameBook.read(boundary(memory_store), Texts())).chats == {}
