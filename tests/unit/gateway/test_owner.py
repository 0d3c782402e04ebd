"""The names of owners, for those who may know them."""

from __future__ import annotations

import pytest

from bubbot.gateway.inbox import Inbox
from bubbot.gateway.owner import OwnerNames
from bubbot.ports.channel import Inbound, Sender
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock

TIME = "2026-11-22T12:00:00+00:00"


@pytest.fixture
async def names(store: TapeStore) -> OwnerNames:
    """Of a channel on which owners and a member wrote in a group and in direct chats."""

    clock = SteppingClock()

    def open_tape(name: str) -> TapeService:
        return TapeService(store, name, now=clock, new_id=CountingIds())

    inbox = Inbox(open_tape("bubbot/inbox/tg"), CountingIds())
    for number, (chat, person, name) in enumerate(
        [("1", "1", "Ben old"), ("-5", "1", "*Ben*"), ("2", "2", "Zoe"), ("-5", "9", "Ann"), ("3", "3", "")]
    ):
        await inbox.accept(Inbound("tg", f"m{number}", chat, Sender(person, name), "hello", TIME))
    return OwnerNames(lambda channel: {"1", "2", "3", "4"} if channel == "tg" else (), open_tape)


async def test_all_owners_who_wrote_are_named_as_they_are_called_now(names: OwnerNames) -> None:
    assert await names.find("tg") == ("3", "Zoe", r"\*Ben\*")


async def test_somebody_learns_the_names_of_those_only_who_wrote_in_the_same_chats(names: OwnerNames) -> None:
    assert await names.find("tg", ["tg:-5", "tg:9"]) == (r"\*Ben\*",)
    assert await names.find("tg", []) == ()


async def test_a_channel_without_owners_has_no_names(names: OwnerNames) -> None:
    assert await names.find("other") == ()
