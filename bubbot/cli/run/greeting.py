"""The greeting of `bubbot run` on a terminal: the bot's accounts and how to stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from bubbot.cli.output import show
from bubbot.ops.service.report import WatchedChannels
from bubbot.ports.channel import ChannelHealth, ReportsHealth
from bubbot.texts import Texts

CONNECTING_SECONDS = 10.0
"""Seconds before the greeting names the channels that have not connected yet."""
POLL_SECONDS = 0.25


async def greet(
    watched: Callable[[], WatchedChannels],
    kinds: Mapping[str, str],
    texts: Texts,
    *,
    patience: float = CONNECTING_SECONDS,
) -> None:
    """Print the greeting once all channels have connected or `patience` is over; then again for late ones.

    Args:
        watched: returns the channels with their states.
        kinds: the kinds of the channels by name.
        patience: seconds before the greeting names unconnected channels.
    """
    clock = asyncio.get_running_loop().time
    limit, greeted = clock() + patience, False
    while True:
        channels = watched()
        connected, waiting = _divide(channels)
        if not waiting or (clock() >= limit and not greeted):
            show(_write(channels, kinds, texts, connected, waiting), flush=True)
            greeted = True
        if not waiting:
            return
        await asyncio.sleep(POLL_SECONDS)


def _divide(watched: WatchedChannels) -> tuple[list[str], list[str]]:
    """Return the names of the connected channels and of those that still try."""
    running = [name for name in sorted(watched.channels) if watched.states.get(name, "running") == "running"]
    connected = [name for name in running if (health := _health(watched, name)) is None or health.is_connected]
    return connected, [name for name in running if name not in connected]


def _health(watched: WatchedChannels, name: str) -> ChannelHealth | None:
    channel = watched.channels[name]
    return channel.health() if isinstance(channel, ReportsHealth) else None


def _write(
    watched: WatchedChannels, kinds: Mapping[str, str], texts: Texts, connected: list[str], waiting: list[str]
) -> str:
    places, late = [], []
    for name in connected:
        health, title = _health(watched, name), _title(name, kinds)
        account = health.account if health else ""
        places.append(
            texts.say("run_place", title=title, account=account) if account else texts.say("run_on", title=title)
        )
    for name in waiting:
        note = health.note if (health := _health(watched, name)) else ""
        late.append(f"{_title(name, kinds)} ({note})" if note else _title(name, kinds))
    separator = texts.say("run_separator")
    said = [texts.say("run_answering", places=separator.join(places))] if places else []
    said += [texts.say("run_waiting", channels=separator.join(late))] if late else []
    return " ".join([*(said or [texts.say("run_alone")]), texts.say("run_stop")])


def _title(name: str, kinds: Mapping[str, str]) -> str:
    return kinds.get(name, name).capitalize()
