"""The filters that keep tokens out of the lines of libraries, which are there as long as a channel is open."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from channels.discord.api import DiscordApi, DiscordApiTiming
from channels.discord.settings import DiscordSettings
from channels.telegram.api import TelegramApi, TelegramApiTiming
from channels.telegram.settings import TelegramSettings

Api = DiscordApi | TelegramApi


def on_discord() -> Api:
    return DiscordApi(DiscordSettings.read("dc", {"token": "MTIzNDU2.AbCdEf.0123456789"}), DiscordApiTiming())


def on_telegram() -> Api:
    return TelegramApi(
        TelegramSettings.read("tg", {"token": "1:AAcanary-canary-canary-canary-canar"}), TelegramApiTiming()
    )


@pytest.mark.parametrize("create", [on_discord, on_telegram])
async def test_a_channel_that_is_closed_leaves_no_filter_with_its_token_at_the_loggers_of_libraries(
    create: Callable[[], Api],
) -> None:
    loggers = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
    before = [list(logger.filters) for logger in loggers]
    api = create()
    added = [logger for logger, filters in zip(loggers, before, strict=True) if logger.filters != filters]
    assert added
    await api.aclose()
    assert [logger.filters for logger in loggers] == before
