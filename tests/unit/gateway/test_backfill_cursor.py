"""What an adapter is told is durable, and what it is told of each event."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from bubbot import plugins
from bubbot.app.daemon import open_daemon
from bubbot.errors import DeliveryFailed
from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import BackfillCursor, ChannelOptions, Inbound, Role, Sender
from bubbot.ports.inbox import done_entry
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.query import parse_moment
from bubbot.tape.service import TapeService
from tests.callers import by, run
from tests.doubles import CountingIds, SteppingClock
from tests.gateways import TIME, Stage, admitting, deletion_of, edit_of, reaction_to
from tests.turns import Options, Played, running, says
from tests.virtual import virtual


def inbox(store: InMemoryStore) -> Inbox:
    return Inbox(TapeService(store, inbox_tape("test"), now=SteppingClock(), new_id=CountingIds()), CountingIds())


def said(number: int, chat: str, thread: str = "", *, time: str = TIME) -> Inbound:
    return Inbound("test", f"e{number}", chat, Sender("1"), "hi", time, thread, message=str(number))


async def test_nothing_is_known_of_a_channel_that_begins() -> None:
    assert await inbox(InMemoryStore()).read_cursor() == BackfillCursor()


async def test_the_newest_message_of_each_chat_and_thread_is_known() -> None:
    box = inbox(InMemoryStore())
    accepted = None
    for number, (chat, thread) in enumerate([("a", ""), ("a", "7"), ("b", ""), ("a", "")], 1):
        accepted = await box.accept(said(number, chat, thread))
    assert accepted is not None
    await box.append(done_entry([accepted.id], outcome="answered"))
    assert (await box.read_cursor()).newest_ids == {("a", ""): "4", ("a", "7"): "2", ("b", ""): "3"}


async def test_what_is_only_heard_counts_and_what_is_changed_does_not() -> None:
    box = inbox(InMemoryStore())
    await box.record_change(said(5, "a"))
    await box.record_change(edit_of("9", "other", chat="a"))
    await box.record_change(deletion_of("10", chat="b"))
    await box.record_change(reaction_to("11", "x", chat="c"))
    await box.record_refused("e12", "test:home")
    assert await box.read_cursor() == BackfillCursor({("a", ""): "5"}, TIME)


async def test_the_newest_time_is_that_of_sending_whatever_came_last() -> None:
    box = inbox(InMemoryStore())
    times = ["2026-11-22T10:00:00+00:00", "2026-11-22T12:30:00+01:00", "2026-11-21T00:00:00Z"]
    for number, time in enumerate(times):
        await box.accept(said(number, "a", time=time))
    assert (await box.read_cursor()).last_message_at == times[1]


async def test_a_channel_is_told_what_is_durable_and_who_may_speak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[ChannelOptions] = []

    def make(options: ChannelOptions) -> Stage:
        given.append(options)
        stage = Stage()
        stage.name = options.name
        return stage

    load = plugins.load
    monkeypatch.setattr("bubbot.plugins.load", lambda group, name: make if name == "stage" else load(group, name))
    table = {"kind": "stage", "owners": ["1"], "members": ["2"]}
    settings = Settings(model=ModelSettings(name="scripted"), channels={"mine": table})
    async with open_daemon(settings, Home(tmp_path / "home")) as daemon:
        began = await given[0].load_cursor()
        assert (began.newest_ids, began.allowed_ids) == ({}, ("1", "2"))
        assert parse_moment(began.last_message_at) is not None
        await run(daemon.access.grant, by("terminal"), "3", "mine", "member")
        await daemon.bot.channel_runtimes["mine"].inbox.accept(structs.replace(said(7, "42"), channel="mine"))
        assert await given[0].load_cursor() == BackfillCursor({("42", ""): "7"}, began.last_message_at, ("1", "2", "3"))
    async with open_daemon(settings, Home(tmp_path / "home")):
        assert (await given[1].load_cursor()).last_message_at == began.last_message_at  # it began once


class Announcing(Stage):
    """Shows at once that an answer is on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.dismissed: list[tuple[str, str, str]] = []

    async def dismiss(self, chat: str, thread: str, message: str) -> None:
        """See `AcknowledgesInteractions`."""
        self.dismissed.append((chat, thread, message))
        if message == "broken":
            raise DeliveryFailed("offline")


@pytest.mark.parametrize("message", ["m1", "broken"])
@virtual
async def test_where_nothing_is_said_what_announced_an_answer_is_taken_away(message: str) -> None:
    stage = Announcing()
    async with running(
        InMemoryStore(), Played(says("[SILENT]"), says("done")), Options(rules=admitting(InMemoryStore(), owners={"1"})),
        channel=stage,
    ) as bench:  # fmt: skip
        assert await bench.gate.receive(bench.inbound("hush", message=message)) is True
        await bench.quiet()
        assert stage.dismissed == [("home", "", message)]
        await bench.gate.receive(bench.inbound("speak", message="m2"))
        await bench.quiet()
        assert (stage.dismissed[1:], stage.texts) == ([], ["done"])


class TestWhatReceiveSays:
    @virtual
    async def test_whether_something_will_be_said(self) -> None:
        store = InMemoryStore()
        options = Options(rules=admitting(store, owners={"1"}, record_only={"-5"}))
        async with running(store, ScriptedModel(), options, channel=Stage()) as bench:
            message = bench.inbound("hello")
            assert await bench.gate.receive(message) is True
            assert await bench.gate.receive(message) is False  # it came before
            stranger = bench.inbound("hello", sender="9", chat="9")
            assert await bench.gate.receive(stranger) is False
            assert await bench.gate.receive(structs.replace(bench.inbound("a"), direct=False, addressed=False)) is False
            heard = structs.replace(bench.inbound("a", chat="-5"), direct=False, addressed=False)
            assert await bench.gate.receive(heard) is None
            await bench.quiet()

    @virtual
    async def test_a_stop_that_overtakes_says_nothing_itself(self) -> None:
        store = InMemoryStore()
        options = Options(rules=admitting(store, owners={"1"}))
        async with running(store, Played({"text": "slow", "delay": 5}), options, channel=Stage()) as bench:
            await bench.post("first")
            await asyncio.sleep(1)
            assert await bench.gate.receive(bench.inbound(",status")) is True
            assert await bench.gate.receive(bench.inbound(",stop")) is None
            await bench.quiet()


TOLD = ["telegram: fine"]


class TestStatus:
    async def test_what_is_told_of_the_whole_bot_follows_what_is_told_of_the_chat(self) -> None:
        asked: list[tuple[Role, bool, int]] = []

        async def report(role: Role, *, direct: bool, own: int = 0, texts: object = None) -> list[str]:
            asked.append((role, direct, own))
            return TOLD

        async with running(InMemoryStore(), ScriptedModel(), Options(role=Role.ADMIN, report=report)) as bench:
            first, *rest = (await bench.say(",status")).text.splitlines()
            await bench.say(",status", direct=False)
        assert first.startswith("I am listening.")
        assert rest == TOLD
        assert asked == [(Role.ADMIN, True, 1), (Role.ADMIN, False, 1)]

    @virtual
    async def test_the_same_is_told_while_a_turn_is_under_way(self) -> None:
        async def report(role: Role, *, direct: bool, own: int = 0, texts: object = None) -> list[str]:
            return [f"{role} {direct} {own}"]

        store = InMemoryStore()
        options = Options(rules=admitting(store, owners={"1"}), report=report)
        async with running(store, Played({"text": "slow", "delay": 5}), options, channel=Stage()) as bench:
            await bench.post("first")
            await asyncio.sleep(3)
            await bench.gate.receive(bench.inbound(",status"))
            await bench.deliverer.wait_until_idle()
            (told,) = bench.channel.texts
            first, report_line = told.splitlines()
            assert first.startswith("I am answering (asking the model, 3 seconds so far); nothing waits behind that.")
            assert report_line == "owner True 0"
            await bench.quiet()
