"""The channels by name: what features and other channels may do with them, and that one may be gone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from bubbot.arguments.fields import NoArguments
from bubbot.errors import ConfigError, DeliveryFailed
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.directory import ChannelDirectory
from bubbot.gateway.migrations import ChatMigrations
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Button, ButtonSet, MessagePart, Outbound, Receipt, Role
from bubbot.ports.outbox import intent_from
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event
from bubbot.texts import Texts
from bubbot.tool import tool
from tests.turns import HOME, Bench, Options, running

NOTES = "test/notes"


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running(InMemoryStore(), ScriptedModel(), Options(role=Role.MEMBER)) as made:
        yield made


@pytest.fixture
def runtimes(bench: Bench) -> dict[str, ChannelRuntime]:
    return {bench.channel.name: bench.line}


@pytest.fixture
def directory(runtimes: dict[str, ChannelRuntime]) -> ChannelDirectory:
    return ChannelDirectory(runtimes, Texts())


async def test_a_session_by_the_current_id_of_its_chat(bench: Bench, directory: ChannelDirectory) -> None:
    bench.line.migrations = ChatMigrations(lambda: {"-1": "-1001"})
    name = bench.channel.name
    sessions = (f"{name}:-1", f"{name}:-1:7", f"{name}:2", "gone:-1", "odd")
    assert [*map(directory.current_session, sessions)] == [
        f"{name}:-1001", f"{name}:-1001:7", f"{name}:2", "gone:-1", "odd",
    ]  # fmt: skip


async def notes(bench: Bench) -> list[str | None]:
    return [entry.name for entry in await bench.entries(NOTES)]


async def test_a_role_is_that_of_the_channel_and_strangers_come_from_unknown_ones(
    bench: Bench, directory: ChannelDirectory, runtimes: dict[str, ChannelRuntime]
) -> None:
    inbound = bench.inbound("hello")
    assert directory.role_of(inbound) is Role.MEMBER
    runtimes.clear()
    assert directory.role_of(inbound) is Role.STRANGER


async def test_a_link_is_found_as_long_as_its_channel_runs(
    bench: Bench, directory: ChannelDirectory, runtimes: dict[str, ChannelRuntime]
) -> None:
    assert directory.find_link("test") is bench.line.link
    assert directory.find_link("gone") is None
    del runtimes["test"]
    assert directory.find_link("test") is None


async def test_an_inbound_is_accepted_once_with_its_facts(bench: Bench, directory: ChannelDirectory) -> None:
    inbound = bench.inbound("hello", external_id="m1")
    fact = event("noted", {}, key="m1")
    assert await directory.accept(inbound, {NOTES: [fact]})
    assert not await directory.accept(inbound, {NOTES: [fact]})
    await bench.quiet()
    assert bench.channel.texts == ["You said: hello"]
    assert await notes(bench) == ["noted"]


async def test_a_message_is_durable_with_its_facts_and_sent(bench: Bench, directory: ChannelDirectory) -> None:
    await directory.send(HOME, "key", Outbound("test", "home", "ding"), {NOTES: [event("noted", {})]})
    await bench.quiet()
    assert bench.channel.texts == ["ding"]
    assert await notes(bench) == ["noted"]
    assert await bench.outbox.pending() == ()


async def test_a_message_that_does_not_arrive_stays_owed(bench: Bench, directory: ChannelDirectory) -> None:
    bench.channel.failures = [DeliveryFailed("no connection")]
    await directory.send(HOME, "key", Outbound("test", "home", "ding"), {})
    assert [message.session for message in await bench.outbox.pending()] == [HOME]


async def test_a_notice_is_on_no_tape_and_nobody_is_told_where_there_is_no_channel(
    bench: Bench, directory: ChannelDirectory
) -> None:
    await directory.notify("test", Outbound("test", "home", "wait"))
    await directory.notify("gone", Outbound("gone", "home", "wait"))
    assert bench.channel.texts == ["wait"]
    assert await bench.entries(bench.outbox.name) == ()


async def test_what_must_not_be_lost_needs_a_channel(bench: Bench, directory: ChannelDirectory) -> None:
    with pytest.raises(ConfigError, match=r"^no channel gone runs here$"):
        await directory.send("gone:home", "key", Outbound("gone", "home", "ding"), {NOTES: [event("noted", {})]})
    with pytest.raises(ConfigError, match=r"^no channel gone runs here$"):
        await directory.accept(bench.inbound("hello", channel="gone"), {NOTES: [event("noted", {})]})
    assert await notes(bench) == []


async def test_channels_that_joined_know_each_other_and_report_chats_that_are_gone(
    bench: Bench, directory: ChannelDirectory, runtimes: dict[str, ChannelRuntime]
) -> None:
    told: list[tuple[str, str, str]] = []

    async def note(channel: str, chat: str, reason: str) -> None:
        told.append((channel, chat, reason))

    assert bench.line.link.find_channel("test") is None
    directory.join(bench.line, note)
    assert bench.line.link.find_channel("test") is bench.line.link
    bench.channel.failures = [DeliveryFailed("chat not found", permanent=True, gone=True)]
    await directory.send(HOME, "key", Outbound("test", "home", "ding"), {})
    assert told == [("test", "home", "chat not found")]
    runtimes.clear()
    assert bench.line.link.find_channel("test") is None


async def test_a_message_besides_the_answer_is_merged_and_sent_with_its_turn() -> None:
    runtimes: dict[str, ChannelRuntime] = {}
    directory = ChannelDirectory(runtimes, Texts())
    buttons = ButtonSet((Button("Yes", ",yes"),))

    @tool("card")
    async def card(turn: Turn, args: NoArguments) -> str:
        """Stage a card here and one on a channel that is gone."""
        outbound = Outbound("test", "home", "a card", buttons=buttons)
        return str(
            [directory.stage(turn, "card", structs.replace(outbound, channel=name)) for name in ("test", "gone")]
        )

    async with running(InMemoryStore(), ScriptedModel(), Options(tools=[card])) as bench:
        runtimes["test"] = bench.line
        assert (await bench.say(",card")).text == "[True, False]"
        await bench.quiet()
        assert sorted(bench.channel.texts) == ["[True, False]", "a card"]
        (intent,) = [one for one in await bench.entries(bench.outbox.name) if one.key == "card:0"]
        receipt = await bench.outbox.receipt_of(intent_from(intent), 0)
        assert receipt
        assert await directory.find_sent(HOME, "test", "card") == receipt
        for session, channel, key in (("test:other", "test", "card"), (HOME, "gone", "card"), (HOME, "test", "none")):
            assert await directory.find_sent(session, channel, key) is None


@pytest.mark.parametrize("key", ["card", "k" * 100, "für alle"])  # platforms take no button with the last two
async def test_of_a_message_in_parts_the_one_with_the_buttons_is_found_once_it_was_sent(
    bench: Bench, directory: ChannelDirectory, key: str
) -> None:
    parts = (MessagePart("home", "long"), MessagePart("home", "end", buttons=ButtonSet((Button("Yes", ",yes"),))))
    message = await bench.outbox.enqueue(HOME, key, parts, {})
    assert await directory.find_sent(HOME, "test", key) is None
    for place in (0, 1):
        await bench.outbox.record_receipt(message, place, Receipt(f"m{place}"))
    assert await directory.find_sent(HOME, "test", key) == "m1"
