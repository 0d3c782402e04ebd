"""The channel whose adapters are elsewhere: who is shown an answer, whose receipt counts, and what waits."""

from __future__ import annotations

import asyncio
import json
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import ConfigError, ControlError, DeliveryFailed, EntryNotFound
from bubbot.ports.channel import (
    Attachment,
    Channel,
    ChannelEvent,
    CommandInfo,
    Inbound,
    MessagePart,
    Outbound,
    Preview,
    Receipt,
    Receive,
    Sender,
    ShowsPreviews,
    StopRequest,
    TextStreamed,
    TurnFinished,
    TurnStarted,
    UnparsedUpdate,
)
from bubbot.ports.turn import TurnResult
from bubbot.server.api import Api
from bubbot.server.chat import RemoteChat
from bubbot.server.client import connect_chat
from bubbot.server.local import serve_socket
from bubbot.server.peer import ChatPeer, ignore_notice
from bubbot.server.protocol import encode
from bubbot.server.remote import AskResult, ChatService, RemoteChannel
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock

WAIT = 60.0
HOME = "stdin:home"


class Screen:
    """An adapter at a client that keeps what it is shown."""

    name = "stdin"

    def __init__(self, failure: DeliveryFailed | None = None) -> None:
        self.shown: asyncio.Queue[str] = asyncio.Queue()
        self.previews: asyncio.Queue[Preview] = asyncio.Queue()
        self.failure = failure
        self.stuck = False

    async def run(self, receive: Receive) -> None:
        """Reads nothing."""

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """See `Channel`."""
        return [MessagePart(outbound.chat, outbound.text)]

    async def send(self, part: MessagePart) -> Receipt:
        """Shows it, or fails, or never returns."""
        if self.failure:
            raise self.failure
        if self.stuck:
            await asyncio.get_running_loop().create_future()
        self.shown.put_nowait(part.text)
        return Receipt("r1")

    def preview(self, session: str, event: Preview) -> None:
        """Keeps it."""
        assert session == HOME
        self.previews.put_nowait(event)


class Bench:
    """A remote channel behind a real server, and a bot that does nothing by itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.remote = RemoteChannel("stdin")
        self.events: list[ChannelEvent] = []
        self.accepted: asyncio.Queue[tuple[Inbound, asyncio.Future[TurnResult]]] = asyncio.Queue()
        self.quiet, self.sent = asyncio.Event(), asyncio.Event()
        self.sent.set()
        self.left = asyncio.Event()
        store = InMemoryStore()
        self.tape = TapeService(store, "t", now=SteppingClock(), new_id=CountingIds("id"), session=HOME)

    async def receive(self, found: ChannelEvent) -> None:
        """What the gate does."""
        self.events.append(found)

    async def accept(self, inbound: Inbound) -> asyncio.Future[TurnResult] | None:
        """Accepts everything but what says "again"."""
        if inbound.text == "again":
            return None
        result: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self.accepted.put_nowait((inbound, result))
        return result

    def forget(self, client: Any) -> None:
        """Passes on that a client has gone."""
        self.remote.forget_client(client)
        self.left.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serves until the block ends."""

        async def notice(session: str) -> str:
            return f"this is {session}"

        async def owed(_session: str) -> int:
            await self.remote.send(MessagePart("home", "owed"))
            return 2

        async def idle(_session: str) -> None:
            await self.quiet.wait()

        async def delivered(_chat: str) -> None:
            await self.sent.wait()

        commands = [CommandInfo("help", "says")]
        doors = ChatService(self.accept, notice, owed, idle, delivered, lambda: commands, lambda _: self.tape)
        running = asyncio.create_task(self.remote.run(self.receive))
        api = Api({}, self.remote.handlers(doors), self.forget)
        async with asyncio.timeout(WAIT), serve_socket(api, self.path):
            yield
        running.cancel()

    @asynccontextmanager
    async def chat(self, screen: Screen | None = None) -> AsyncIterator[tuple[RemoteChat, Screen]]:
        """A client that has opened the session."""
        end, screen = RemoteChat(HOME), screen or Screen()
        async with end.connect(str(self.path), screen):
            assert await end.open() == "this is stdin:home"
            yield end, screen

    @asynccontextmanager
    async def asker(self, shown: list[dict[str, Any]]) -> AsyncIterator[ChatPeer]:
        """A client such as `bubbot ask`."""

        async def answer(_name: str, body: dict[str, Any]) -> dict[str, Any]:
            shown.append(body)
            return {}

        async with connect_chat(str(self.path), answer, ignore_notice) as peer:
            yield peer


def said(text: str, external_id: str = "1") -> Inbound:
    """A message of the session."""
    return Inbound("stdin", external_id, "home", Sender("0", "owner"), text, "2026-11-21T20:21:00Z")


def answer_to(external_id: str, text: str = "hello") -> MessagePart:
    """What answers a message."""
    return MessagePart("home", text, reply_to=external_id, key=f"p{external_id}")


@pytest.fixture
def path() -> Iterator[Path]:
    """A socket in a private folder with a short name."""
    folder = Path(tempfile.mkdtemp())
    yield folder / "s"
    rmtree(folder)


@pytest.fixture
async def bot(path: Path) -> AsyncIterator[Bench]:
    made = Bench(path)
    async with made.running():
        yield made


def test_it_is_a_channel_with_previews() -> None:
    made: Channel = RemoteChannel("stdin")
    assert isinstance(made, ShowsPreviews)
    text = "x" * 100_000
    assert list(made.parts(Outbound("stdin", "home", text, reply_to="1"))) == [
        structs.replace(answer_to("1", text), key="")
    ]


async def test_what_a_client_receives_is_accepted_here_and_the_answer_is_shown_there(bot: Bench) -> None:
    async with bot.chat() as (end, screen):
        assert end.commands == (CommandInfo("help", "says"),)
        assert await end.deliver_pending() == 2
        events: list[ChannelEvent] = [
            said("hi"),
            UnparsedUpdate("stdin", "2", "home", b"\xff", "why"),
            StopRequest("stdin", "home"),
        ]
        for one in events:
            await end.receive(one)
        assert bot.events == events
        assert await bot.remote.send(answer_to("1")) == Receipt("r1")
        assert [screen.shown.get_nowait() for _ in range(2)] == ["owed", "hello"]
        idle = asyncio.create_task(end.wait_until_idle())
        bot.quiet.set()
        await idle


async def test_without_a_client_it_waits_and_is_no_permanent_failure(bot: Bench) -> None:
    for _ in range(2):
        with pytest.raises(DeliveryFailed, match="nobody has this chat open") as failed:
            await bot.remote.send(answer_to("1"))
        assert not failed.value.permanent
        async with bot.chat() as (end, screen):
            await end.receive(said("hi"))
            await bot.remote.send(answer_to("1", "late"))
            assert screen.shown.get_nowait() == "late"
            with pytest.raises(DeliveryFailed, match="nobody"):
                await bot.remote.send(MessagePart("elsewhere", "x", reply_to="1"))
        await bot.left.wait()
        bot.left.clear()


async def test_of_two_clients_the_one_that_asked_gives_the_receipt_and_the_other_gets_a_copy(bot: Bench) -> None:
    async with bot.chat() as (asking, first), bot.chat(Screen(DeliveryFailed("no"))) as (_, second):
        await asking.receive(said("hi"))
        await bot.remote.send(answer_to("1"))
        assert first.shown.get_nowait() == "hello"
        second.failure = None
        await bot.remote.send(answer_to("1", "more"))
        assert await second.shown.get() == "more"
        await bot.remote.send(MessagePart("home", "unasked"))
        assert (await second.shown.get(), await first.shown.get(), await first.shown.get()) == (
            "unasked",
            "more",
            "unasked",
        )


async def test_where_the_one_that_asked_is_gone_another_gets_the_answer(bot: Bench) -> None:
    async with bot.chat() as (_, screen):
        async with bot.asker([]) as peer:
            asking = asyncio.create_task(peer.request("ask", {"inbound": encode(said("hi"))}))
            _, result = await bot.accepted.get()
        await asyncio.gather(asking, return_exceptions=True)
        with suppress(DeliveryFailed):  # if the server has not noticed yet
            await bot.remote.send(answer_to("1"))
        await bot.remote.send(answer_to("1"))
        assert screen.shown.get_nowait() == "hello"
        result.set_result(TurnResult("t1", "silent"))


async def test_what_a_client_cannot_show_stays_open(bot: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bot.chat(Screen(DeliveryFailed("the pipe is gone"))):
        with pytest.raises(DeliveryFailed, match="the pipe is gone"):
            await bot.remote.send(answer_to("1"))
    monkeypatch.setattr("bubbot.server.remote.RECEIPT_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr("bubbot.server.routes.RECEIPT_TIMEOUT_SECONDS", 0.5)
    stuck = Screen()
    stuck.stuck = True
    async with bot.chat(stuck):
        with pytest.raises(DeliveryFailed, match="no answer within") as failed:
            await bot.remote.send(answer_to("1"))
        assert not failed.value.permanent
        with pytest.raises(DeliveryFailed, match="nobody"):
            await bot.remote.send(answer_to("1"))


async def test_previews_go_to_every_client_in_order(bot: Bench) -> None:
    bot.remote.preview(HOME, TurnStarted())
    async with bot.chat() as (_, first), bot.chat() as (_, second):
        shown: list[Preview] = [TurnStarted(), TextStreamed("a"), TextStreamed("b"), TurnFinished("answered")]
        for one in shown:
            bot.remote.preview(HOME, one)
            bot.remote.preview("stdin:other", one)
        for screen in (first, second):
            assert [await screen.previews.get() for _ in shown] == shown


async def test_ask_is_shown_the_text_with_how_the_turn_ended(bot: Bench) -> None:
    shown: list[dict[str, Any]] = []
    async with bot.asker(shown) as peer:
        asking = asyncio.create_task(peer.request("ask", {"inbound": encode(said("hi"))}))
        _, result = await bot.accepted.get()
        stored = await bot.tape.append(
            [event("turn/start", {"attempt": 1}, turn="t1"), event("turn/end", {"status": "answered"}, turn="t1")]
        )
        await bot.remote.send(answer_to("1"))
        ended = encode(AskResult("t1", "answered", "hello", (1, 2)))
        assert [one["result"] for one in shown] == [json.loads(json.dumps(ended))]
        result.set_result(TurnResult("t1", "answered", "hello", stored))
        assert await asking == {"result": json.loads(json.dumps(ended))}
        asking = asyncio.create_task(peer.request("ask", {"inbound": encode(said("hi", "2"))}))
        _, result = await bot.accepted.get()
        result.set_result(TurnResult("t2", "silent"))
        assert await asking == {"result": json.loads(json.dumps(encode(AskResult("t2", "silent", ""))))}


async def test_who_repeats_a_message_does_not_get_the_answer_of_the_one_that_waits_for_it(bot: Bench) -> None:
    shown: list[dict[str, Any]] = []
    async with bot.asker(shown) as peer, bot.asker([]) as other:
        asking = asyncio.create_task(peer.request("ask", {"inbound": encode(said("hi"))}))
        _, result = await bot.accepted.get()
        with pytest.raises(ConfigError, match="accepted before"):
            await other.request("ask", {"inbound": encode(said("again"))})
        await other.request("event", {"event": encode(said("hi"))})
        await bot.remote.send(answer_to("1"))
        result.set_result(TurnResult("t1", "answered", "hello"))
        assert (await asking)["result"]["text"] == shown[0]["result"]["text"] == "hello"


async def test_a_notice_is_not_taken_for_the_answer(bot: Bench) -> None:
    shown: list[dict[str, Any]] = []
    async with bot.asker(shown) as peer:
        asking = asyncio.create_task(peer.request("ask", {"inbound": encode(said("hi"))}))
        _, result = await bot.accepted.get()
        with pytest.raises(DeliveryFailed, match="nobody has this chat open"):
            await bot.remote.send(structs.replace(answer_to("1", "2 answers are before yours"), key=""))
        await bot.remote.send(answer_to("1"))
        result.set_result(TurnResult("t1", "answered", "hello"))
        assert (await asking)["result"]["text"] == shown[0]["result"]["text"] == "hello"
        assert len(shown) == 1


async def test_a_message_that_was_not_accepted_is_not_remembered(bot: Bench) -> None:
    async with bot.asker([]) as peer:
        with pytest.raises(ConfigError, match="accepted before"):
            await peer.request("ask", {"inbound": encode(said("again"))})
        with pytest.raises(DeliveryFailed, match="nobody"):
            await bot.remote.send(answer_to("1"))


async def test_ask_is_answered_when_the_answer_was_shown_even_where_it_is_delivered_later(bot: Bench) -> None:
    shown: list[dict[str, Any]] = []
    async with bot.asker(shown) as peer:
        asking = asyncio.create_task(peer.request("ask", {"inbound": encode(said("hi"))}))
        _, result = await bot.accepted.get()
        result.set_result(TurnResult("t1", "answered", "hello"))
        await peer.request("event", {"event": encode(StopRequest("stdin", "home"))})  # answers come in order
        assert not asking.done()
        await bot.remote.send(answer_to("1"))
        assert (await asking)["result"]["text"] == shown[0]["result"]["text"] == "hello"


async def test_what_is_not_of_this_channel_is_refused(bot: Bench) -> None:
    async with bot.asker([]) as peer:
        for do in ("open", "owed", "idle"):
            for session in ("telegram:42", 7, None):
                with pytest.raises(ControlError, match="is not a session of the channel"):
                    await peer.request(do, {"session": session})
        with pytest.raises(ControlError, match="of the channel 'telegram'"):
            await peer.request("event", {"event": encode(StopRequest("telegram", "42"))})
        file = structs.replace(said("x"), channel="telegram", attachments=(Attachment("a"),))
        with pytest.raises(ControlError, match="of the channel 'telegram'"):
            await peer.request("ask", {"inbound": encode(file), "files": {"a": b64encode(b"hello").decode()}})
        with pytest.raises(EntryNotFound):  # and leaves nothing on a tape
            await bot.tape.get_blob(sha256(b"hello").hexdigest())
        with pytest.raises(ControlError, match="none of"):
            await peer.request("event", {})
        with pytest.raises(ConfigError, match="accepted before"):
            await peer.request("ask", {"inbound": encode(said("again"))})
    assert bot.events == []


async def test_who_asked_is_forgotten_in_the_end(bot: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.server.remote.MAX_REMEMBERED_SENDERS", 2)
    async with bot.asker([]) as peer:
        for number in range(5):
            asking = peer.request("ask", {"inbound": encode(said("hi", str(number)))}, timeout=0.01)
            with pytest.raises(ControlError, match="no answer within"):
                await asking
        for number, is_known in enumerate((False, False, False, True, True)):
            with nullcontext() if is_known else pytest.raises(DeliveryFailed, match="nobody"):
                await bot.remote.send(answer_to(str(number)))


async def test_who_asked_by_an_id_sees_its_own_turn_and_no_other(bot: Bench) -> None:
    """The turn of a message that has an id of its own is shown to its sender, who has not opened the session."""

    class Watcher:
        def __init__(self) -> None:
            self.seen: list[Preview] = []
            self.is_closed = False

        def close(self) -> None:
            self.is_closed = True

        async def show(self, part: MessagePart, data: bytes | None, result: AskResult | None) -> str:
            return "r2"

        def copy(self, part: MessagePart, data: bytes | None) -> None:
            raise AssertionError("it has not opened the session")

        def preview(self, event: Preview) -> None:
            self.seen.append(event)

    async def never(_: object) -> None: ...

    watcher = Watcher()
    service = ChatService(bot.accept, never, never, never, never, lambda: (), lambda _: bot.tape)  # type: ignore[arg-type]
    durable = asyncio.Event()
    asking = asyncio.create_task(
        bot.remote.ask(watcher, structs.replace(said("hi"), message="1"), service, on_accepted=durable.set)
    )
    await durable.wait()
    mine: list[Preview] = [TurnStarted(7, "1"), TextStreamed("mine"), TurnFinished("answered")]
    others: list[Preview] = [TurnStarted(8, "2"), TextStreamed("not mine"), TurnFinished("answered")]
    for shown in (*others, *mine, *others):
        bot.remote.preview(HOME, shown)
    for shown in mine:  # a program in another session has chosen the same id
        bot.remote.preview("stdin:work", shown)
    assert watcher.seen == mine
    assert await bot.remote.send(answer_to("1")) == Receipt("r2")
    with pytest.raises(DeliveryFailed, match="nobody"):
        await bot.remote.send(MessagePart("home", "unasked"))
    (await bot.accepted.get())[1].set_result(TurnResult("t1", "answered", "hello"))
    assert (await asking).text == "hello"
    bot.remote.forget_client(watcher)
    with pytest.raises(DeliveryFailed, match="nobody"):
        await bot.remote.send(answer_to("1"))
