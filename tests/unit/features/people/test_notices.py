"""What owners hear of people who were forgotten."""

from __future__ import annotations

import asyncio

from bubbot.features.people.facts import ForgettingFinished, PersonForgetting, PersonForgotten
from bubbot.features.people.notices import ForgettingNotices
from bubbot.gateway.requests import WriteNotice
from bubbot.tape.entry import TapeEntry
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from tests.doubles import CountingIds, SteppingClock

PEOPLE = "bubbot/people"


class Owner:
    """An owner, who has a direct chat or none yet."""

    def __init__(self, tape: TapeService, *, has_chat: bool = True) -> None:
        self.tape, self.has_chat = tape, has_chat
        self.heard: list[str] = []

    async def notify(self, tape: str, key: str, write: WriteNotice, fact: TapeEntry) -> bool:
        assert (tape, fact.key) == (PEOPLE, key)
        if self.has_chat:
            self.heard.append(write(Texts())[0])
            await self.tape.append([fact])
        return self.has_chat


def people_tape(store: TapeStore) -> TapeService:
    return TapeService(store, PEOPLE, now=SteppingClock(), new_id=CountingIds())


def forgotten(wish: int, mentions: dict[str, tuple[tuple[int, int], ...]] | None = None) -> list[TapeEntry]:
    told = PersonForgotten(wish, 7, 3, 1, mentions or {}, (), is_in_settings=False)
    return [told.to_entry(), ForgettingFinished(wish).to_entry()]


async def tell(tape: TapeService, owner: Owner) -> list[str]:
    """What an owner hears at a start."""
    notices = ForgettingNotices(tape, owner.notify)
    await notices.load()
    async with asyncio.timeout(60):
        await notices.run()
    return owner.heard


async def test_an_owner_hears_once_who_asked_what_went_and_which_command_lists_what_stays(store: TapeStore) -> None:
    tape = people_tape(store)
    await tape.append([PersonForgetting(("bubbot/inbox/tg", 1), "person").to_entry(), *forgotten(1, {"a": ((2, 3),)})])
    await tape.append([PersonForgetting(("bubbot/inbox/tg", 2), "owner").to_entry(), *forgotten(4)])
    assert await tell(tape, Owner(tape)) == [
        (
            "Somebody asked to be forgotten, and is: 7 entries on 3 tape(s) and 1 file(s) are gone. 2 entries of others in "
            "1 chat(s) may speak of the person; you decide about them. ,access.forgotten lists what went, and what stays."
        ),
        (
            "A person is forgotten, as an owner asked: 7 entries on 3 tape(s) and 1 file(s) are gone. "
            ",access.forgotten lists what went, and what stays."
        ),
    ]
    assert await tell(tape, Owner(tape)) == [], "at the next start"


async def test_an_owner_without_a_direct_chat_hears_it_after_the_turn_that_opens_one(store: TapeStore) -> None:
    tape = people_tape(store)
    await tape.append([PersonForgetting(("bubbot/inbox/tg", 1), "person").to_entry(), *forgotten(1)])
    owner = Owner(tape, has_chat=False)
    notices = ForgettingNotices(tape, owner.notify)
    await notices.load()
    running = asyncio.create_task(notices.run())
    notices.retry()
    await asyncio.sleep(0)
    owner.has_chat = True
    notices.retry()
    async with asyncio.timeout(60):
        await running
    assert len(owner.heard) == 1


async def test_a_start_that_could_not_forget_is_told_once_and_so_is_the_one_that_could(store: TapeStore) -> None:
    tape = people_tape(store)
    await tape.append([PersonForgetting(("bubbot/inbox/tg", 1), "person").to_entry()])
    for expected in (1, 0):
        heard = await tell(tape, Owner(tape))
        assert [text.partition(",")[0] for text in heard] == ["Somebody is to be forgotten"] * expected
    await tape.append(forgotten(1))
    assert [text.partition(",")[0] for text in await tell(tape, Owner(tape))] == ["Somebody asked to be forgotten"]


async def test_a_wish_of_this_run_is_not_taken_for_a_failed_one(store: TapeStore) -> None:
    tape, owner = people_tape(store), Owner(people_tape(store))
    notices = ForgettingNotices(tape, owner.notify)
    await notices.load()
    await tape.append([PersonForgetting(("bubbot/inbox/tg", 1), "person").to_entry()])
    async with asyncio.timeout(60):
        await notices.run()
    assert owner.heard == []
