"""Passing on several events at once, so that they are made durable together, without changing their order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from bubbot.ports.channel import ChannelEvent, Inbound, Receive

COMMAND_PREFIX = ","
"""The beginning of a command in the port's form. Adapters do not import the bot's sentences, which also define it."""


async def receive_together(receive: Receive, events: Iterable[ChannelEvent | None]) -> None:
    """Pass events to `receive` in their order; return when all of them are durable or discarded.

    Messages do not wait for each other: `receive` takes them in the order of the calls, and they share its commits.
    Events that refer to earlier ones (commands, edits, reactions, moved chats) wait for all of them, and later events wait for
    these.

    Args:
        receive: see `Channel.run`.
        events: None is skipped. The next event is built while earlier ones are being stored.

    Raises:
        Exception: the first error of `receive`, after all calls have ended.
    """
    under_way: list[asyncio.Future[bool | str | None]] = []
    try:
        for event in events:
            if isinstance(event, Inbound) and not event.text.startswith(COMMAND_PREFIX):
                under_way.append(asyncio.ensure_future(receive(event)))
                await asyncio.sleep(0)  # start it before the next one, and let everything else run in between
            elif event is not None:
                await _settle(under_way)
                await receive(event)
        await _settle(under_way)
    except BaseException:
        for call in under_way:
            call.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        raise


async def _settle(calls: list[asyncio.Future[bool | str | None]]) -> None:
    """Wait for all calls and forget them; raise the first error, if any."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    calls.clear()
    for result in results:
        if isinstance(result, BaseException):
            raise result
