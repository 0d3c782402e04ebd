"""Two programs with one token: each is shown that the other is there, and nobody is suspected who runs alone."""

from __future__ import annotations

import logging

import pytest

from bubbot.ports.channel import MessagePart
from channels.discord.duplicates import DuplicateMonitor
from tests.fakes.discord_channel import receiving
from tests.fakes.discordapi.server import Server


async def test_two_programs_with_one_token_are_shown_to_each_other(caplog: pytest.LogCaptureFixture) -> None:
    async with Server(limits=None) as server, receiving(server) as (first, heard), receiving(server) as (second, _):
        ada = server.user("Ada")
        room = server.dm(ada)
        for number in range(3):
            for name, channel in (("first", first), ("second", second)):
                await channel.send(MessagePart(str(room.id), f"{name} {number}", key=f"{name}{number}"))
        told = "another program sends messages with this bot's token"
        await server.until(lambda: all(one.health().is_ready and told in one.health().note for one in (first, second)))
        room.say(ada, "still there?")
        await heard.until("still there?")
    warnings = [one for one in caplog.records if getattr(one, "action", "") == "discord.duplicate"]
    assert [one.levelno for one in warnings] == [logging.WARNING] * 2


async def test_a_bot_alone_is_not_suspected() -> None:
    async with Server(limits=None) as server, receiving(server) as (channel, heard):
        ada = server.user("Ada")
        room = server.dm(ada)
        for number in range(6):
            key = f"key{number}" if number % 2 else ""
            receipt = await channel.send(MessagePart(str(room.id), f"answer {number}", key=key))
            await channel.edit(receipt.external_id, MessagePart(str(room.id), f"better {number}"))
            room.delete(room.messages[-1])
        server.gateway.drop()
        await server.until(lambda: not channel.health().is_ready)
        await channel.send(MessagePart(str(room.id), "while away", key="away"))
        room.say(ada, "done?")
        await heard.until("done?")
        assert channel.health().note == ""


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def message(nonce: str | None, **more: object) -> dict[str, object]:
    """A message of the bot's as the gateway tells it."""
    return {"id": "1", "author": {"id": "7"}, "nonce": nonce, **more}


def monitor() -> tuple[DuplicateMonitor, Clock]:
    """One that is connected since second 0, with a grace of 60 seconds."""
    clock = Clock()
    found = DuplicateMonitor("dc", monotonic=clock, grace_seconds=60.0)
    found.start_session()
    return found, clock


def test_requests_that_a_killed_process_had_under_way_are_not_counted() -> None:
    found, clock = monitor()
    clock.now = 59.0
    for number in range(20):
        found.check_message("7", message(f"old{number}"))
    clock.now = 100.0
    assert found.warning == ""


@pytest.mark.parametrize(
    "more", [{"webhook_id": "7"}, {"interaction_metadata": {"id": "1"}}, {"author": {"id": "8"}}, {"nonce": None}]
)
def test_what_says_nothing_of_another_program_is_not_counted(more: dict[str, object]) -> None:
    found, clock = monitor()
    clock.now = 100.0
    for number in range(20):
        found.check_message("7", {**message(str(number)), **more})
    assert found.warning == ""


def test_the_note_goes_away_when_the_other_program_does() -> None:
    found, clock = monitor()
    clock.now = 100.0
    for number in range(3):
        assert found.warning == ""
        found.check_message("7", message(f"theirs{number}"))
    assert found.warning
    clock.now += 601.0
    assert found.warning == ""
    found.check_message("7", message("one more"))
    assert found.warning == ""
