"""Several events passed on at once: messages together, everything else after what came before it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bubbot.errors import StoreUnavailable
from bubbot.ports.channel import ChannelEvent, Edit, Inbound, Sender, UnparsedUpdate
from channels.platform.ordered import receive_together

ANN = Sender("1", "Ann")


def message(text: str) -> Inbound:
    return Inbound("test", text, "7", ANN, text, "")


class Receiving:
    """Notes when a call begins and ends; a call lasts until nothing else can begin."""

    def __init__(self, **errors: Exception) -> None:
        self.trace: list[str] = []
        self.began = asyncio.Event()
        self._errors = errors

    async def __call__(self, event: ChannelEvent) -> bool | None:
        name = event.text if isinstance(event, (Inbound, Edit)) else "unparsed"
        self.trace.append(f"+{name}")
        if name == "b":
            self.began.set()
        if name in self._errors:
            raise self._errors[name]
        try:
            for _ in range(20):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.trace.append(f"!{name}")
            raise
        self.trace.append(f"-{name}")
        return True


async def test_messages_begin_in_order_and_do_not_wait_for_each_other() -> None:
    receive = Receiving()
    await receive_together(receive, [message("a"), None, message("b"), message("c")])
    assert receive.trace == ["+a", "+b", "+c", "-a", "-b", "-c"]


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (Edit("test", "e", "7", "m", ANN, "edit", ""), "edit"),
        (message(",stop"), ",stop"),
        (UnparsedUpdate("test", "u", "7", b"", ""), "unparsed"),
    ],
)
async def test_anything_else_waits_for_what_came_before_and_is_waited_for(event: ChannelEvent, name: str) -> None:
    receive = Receiving()
    await receive_together(receive, [message("a"), message("b"), event, message("c")])
    assert receive.trace == ["+a", "+b", "-a", "-b", f"+{name}", f"-{name}", "+c", "-c"]


async def test_an_error_comes_once_everything_has_ended_and_nothing_after_it_is_passed_on() -> None:
    receive = Receiving(b=StoreUnavailable("full"))
    with pytest.raises(StoreUnavailable):
        await receive_together(receive, [message("a"), message("b"), message("c"), message(",d"), message("e")])
    assert receive.trace == ["+a", "+b", "+c", "-a", "-c"]


async def test_an_event_is_made_while_those_before_it_are_on_their_way() -> None:
    receive = Receiving()

    def make() -> Iterator[Inbound]:
        for name in "ab":
            receive.trace.append(f"make {name}")
            yield message(name)

    await receive_together(receive, make())
    assert receive.trace == ["make a", "+a", "make b", "+b", "-a", "-b"]


async def test_an_event_that_cannot_be_made_ends_those_on_their_way() -> None:
    receive = Receiving()

    def make() -> Iterator[Inbound]:
        yield from (message("a"), message("b"))
        raise TypeError("a list was sent instead of a text")

    with pytest.raises(TypeError, match="instead of a text"):
        await receive_together(receive, make())
    assert receive.trace == ["+a", "+b", "!a", "!b"]


async def test_a_cancelled_caller_cancels_what_is_under_way_and_waits_for_it() -> None:
    receive = Receiving()
    task = asyncio.create_task(receive_together(receive, [message("a"), message("b")]))
    await receive.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(receive.trace) == ["!a", "!b", "+a", "+b"]
