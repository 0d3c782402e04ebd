"""A bot can be asked who it is before it runs: on Telegram and on Discord, and when they do not answer."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import ChannelError, ChannelRefused
from bubbot.ports.channel import BotIdentity, ChannelOptions
from channels.discord import channel as discord
from channels.discord.api import DiscordApiTiming as DiscordTiming
from channels.discord.channel import DiscordChannel
from channels.discord.retry import DiscordReceiveTiming
from channels.discord.settings import DiscordSettings
from channels.platform.http_date import parse_http_date
from channels.telegram import channel as telegram
from channels.telegram.api import TelegramApiTiming as TelegramTiming
from channels.telegram.channel import TelegramChannel, TelegramWebhookChannel
from channels.telegram.settings import TelegramSettings
from tests.fakes.botapi import errors as bot_errors
from tests.fakes.botapi.server import Server as Telegram
from tests.fakes.connections import accepting
from tests.fakes.discordapi import errors as discord_errors
from tests.fakes.discordapi.server import Server as Discord
from tests.fakes.platform.faults import Cut, Drop, Html, Wedge
from tests.fakes.telegram_server import ME, TOKEN, scripted_server

HOOKED: dict[str, Any] = {
    "mode": "webhook",
    "webhook_url": "http://127.0.0.1:8081/telegram",
    "webhook_secret": "0123456789abcdef",
}
NOWHERE = "http://127.0.0.1:9"
WRONG = "7777:" + "w" * 35


def _options(table: dict[str, Any], *, overhears: bool = False) -> ChannelOptions:
    return ChannelOptions("one", Path(), lambda: "now", lambda: "id", table, overhears=overhears)


async def on_telegram(
    url: str, token: str, *, overhears: bool = False, within: float = 4.0, **more: Any
) -> BotIdentity:
    options = _options({"token": token, "base_url": url, **more}, overhears=overhears)
    settings = TelegramSettings.read("one", options.settings)
    kind = TelegramWebhookChannel if settings.uses_webhook else TelegramChannel
    channel = kind(options, settings, structs.replace(TelegramTiming(), verify_timeout=within))
    try:
        return await channel.verify_token()
    finally:
        await channel.aclose()


async def on_discord(url: str, token: str, *, within: float = 4.0, **more: Any) -> BotIdentity:
    options = _options({"token": token, "rest_url": url, **more})
    timing = structs.replace(DiscordTiming(), verify_timeout=within)
    channel = DiscordChannel(options, DiscordSettings.read("one", options.settings), timing, DiscordReceiveTiming())
    try:
        return await channel.verify_token()
    finally:
        await channel.aclose()


@asynccontextmanager
async def hooked(server: Telegram, url: str) -> AsyncIterator[None]:
    await _call(server, "setWebhook", {"url": url})
    yield
    await _call(server, "deleteWebhook", {})


async def _call(server: Telegram, method: str, parameters: dict[str, Any]) -> None:
    settings = TelegramSettings.read("one", {"token": server.bot.token, "base_url": server.base_url})
    channel = TelegramChannel(_options({}), settings, TelegramTiming())
    await channel.api.call(method, parameters)
    await channel.aclose()


class TestOnTelegram:
    async def test_it_says_its_name_and_nothing_is_polled(self) -> None:
        async with Telegram() as server:
            found = await on_telegram(server.base_url, server.bot.token)
            assert found == BotIdentity(str(server.bot.user.id), "bubbot_bot")
            assert [call.method for call in server.log] == ["getMe", "getWebhookInfo"]

    @pytest.mark.parametrize(("privacy", "overhears", "remarked"), [(1, 1, True), (1, 0, False), (0, 1, False)])
    async def test_privacy_mode_is_remarked_where_others_are_to_be_heard(
        self, privacy: int, overhears: int, *, remarked: bool
    ) -> None:
        async with Telegram(privacy=bool(privacy)) as server:
            found = await on_telegram(server.base_url, server.bot.token, overhears=bool(overhears))
        assert any("/setprivacy" in one for one in found.warnings) is remarked

    async def test_a_bot_that_nobody_may_put_into_groups_says_so(self) -> None:
        async with scripted_server() as server:
            server.usual |= {"getMe": {**ME, "can_join_groups": False}, "getWebhookInfo": {"url": ""}}
            found = await on_telegram(server.url, TOKEN)
        assert len(found.warnings) == 1
        assert "/setjoingroups" in found.warnings[0]

    async def test_a_webhook_is_remarked_where_it_polls_and_stays(self) -> None:
        async with Telegram() as server, hooked(server, "http://127.0.0.1:9/a-secret-path"):
            found = await on_telegram(server.base_url, server.bot.token)
            assert server.bot.webhook is not None
        assert len(found.warnings) == 1
        assert "webhook at 127.0.0.1" in found.warnings[0]
        assert "a-secret-path" not in found.warnings[0]

    async def test_the_webhook_of_another_program_is_remarked(self) -> None:
        async with Telegram() as server, hooked(server, "http://127.0.0.1:9/other"):
            found = await on_telegram(server.base_url, server.bot.token, **HOOKED)
        assert len(found.warnings) == 1
        assert "not webhook_url" in found.warnings[0]

    async def test_no_webhook_or_the_right_one_is_no_remark(self) -> None:
        async with Telegram() as server:
            before = await on_telegram(server.base_url, server.bot.token, **HOOKED)
            async with hooked(server, HOOKED["webhook_url"]):
                after = await on_telegram(server.base_url, server.bot.token, **HOOKED)
        assert before.warnings == after.warnings == ()

    async def test_a_webhook_that_telegram_does_not_reach_is_remarked(self) -> None:
        async with scripted_server() as server:
            failed = f"Wrong response: 502 at {TOKEN}"
            server.usual["getWebhookInfo"] = {"url": HOOKED["webhook_url"], "last_error_message": failed}
            found = await on_telegram(server.url, TOKEN, **HOOKED)
        assert len(found.warnings) == 1
        assert "Wrong response: 502 at [token]" in found.warnings[0]

    @pytest.mark.parametrize("what", [{}, {"id": "x", "username": "y"}, {"id": 1}, [], True, None])
    async def test_an_answer_that_names_no_bot_is_a_failure(self, what: Any) -> None:
        async with scripted_server() as server:
            server.usual["getMe"] = what
            with pytest.raises(ChannelError, match="names no bot") as caught:
                await on_telegram(server.url, TOKEN)
        assert not isinstance(caught.value, ChannelRefused)


class TestOnDiscord:
    async def test_it_says_the_name_of_the_bot_and_does_not_connect(self) -> None:
        async with Discord() as server:
            found = await on_discord(server.rest_url, server.bot.token)
            assert found == BotIdentity(str(server.bot.user.id), "Bubbot")
            assert [call.route for call in server.log] == ["GET /applications/@me"]

    @pytest.mark.parametrize(("intent", "content", "remarked"), [(0, "all", True), (0, "mentions", False), (1, "all", False)])  # fmt: skip
    async def test_the_missing_intent_is_remarked_where_it_is_needed(
        self, intent: int, content: str, *, remarked: bool
    ) -> None:
        async with Discord(content_intent=bool(intent)) as server:
            found = await on_discord(server.rest_url, server.bot.token, content=content)
        assert any("Message Content Intent" in one for one in found.warnings) is remarked

    @pytest.mark.parametrize("slash", [True, False])
    async def test_commands_that_go_elsewhere_are_remarked_where_there_are_any(self, *, slash: bool) -> None:
        async with Discord() as server:
            server.bot.endpoint = "https://elsewhere.example/interactions"
            found = await on_discord(server.rest_url, server.bot.token, slash=slash)
        assert any("Interactions Endpoint URL" in one for one in found.warnings) is slash


class TestFailures:
    async def test_a_token_that_telegram_does_not_take_is_refused(self) -> None:
        async with Telegram() as server:
            for token in (WRONG, "1234:short"):  # 401, and 404 for what is no token at all
                with pytest.raises(ChannelRefused, match="@BotFather") as caught:
                    await on_telegram(server.base_url, token)
                _hidden(caught.value, token)

    async def test_a_token_that_discord_does_not_take_is_refused(self) -> None:
        token = "wrong-one.twin.wrong-wrong-wrong"
        async with Discord() as server:
            with pytest.raises(ChannelRefused, match="reset it on the page Bot") as caught:
                await on_discord(server.rest_url, token)
        _hidden(caught.value, token)

    @pytest.mark.parametrize(
        "fault",
        [
            Drop(), Html(), Cut(), bot_errors.Refuse(500, f"Oops {WRONG}"),
            bot_errors.Refuse(429, "Too Many Requests", 60),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("method", ["getMe", "getWebhookInfo"])
    async def test_any_other_failure_of_telegram_is_no_refusal(self, fault: Any, method: str) -> None:
        async with Telegram() as server:
            server.fail(method, fault)
            with pytest.raises(ChannelError) as caught:
                await on_telegram(server.base_url, server.bot.token)
            assert not isinstance(caught.value, ChannelRefused)
            _hidden(caught.value, server.bot.token)

    @pytest.mark.parametrize(
        "fault",
        [
            Drop(), Html(403), Cut(), discord_errors.TooMany(60),
            discord_errors.Refuse(403, "Missing Access", 50001), Html(200, "<html>"),
        ],
    )  # fmt: skip
    async def test_any_other_failure_of_discord_is_no_refusal(self, fault: Any) -> None:
        async with Discord() as server:
            server.fail("GET /applications/@me", fault, times=9)
            with pytest.raises(ChannelError) as caught:
                await on_discord(server.rest_url, server.bot.token, within=0.5)
            assert not isinstance(caught.value, ChannelRefused)
            _hidden(caught.value, server.bot.token)

    async def test_a_refused_connection_is_told_without_the_token(self) -> None:
        for work, token in ((on_telegram(NOWHERE, WRONG), WRONG), (on_discord(NOWHERE, "aaaaaa.bbb.ccccc", within=0.5), "aaaaaa.bbb.ccccc")):  # fmt: skip
            with pytest.raises(ChannelError, match=r"\[channels.one\]") as caught:
                await work
            assert not isinstance(caught.value, ChannelRefused)
            _hidden(caught.value, token)

    async def test_a_server_that_hangs_is_given_up_soon(self) -> None:
        async with Telegram() as telegrams, Discord() as discords:
            telegrams.fail("getMe", Wedge())
            discords.fail("GET /applications/@me", Wedge())
            async with asyncio.timeout(60):  # the servers would hold both for ever
                found = await asyncio.gather(
                    on_telegram(telegrams.base_url, telegrams.bot.token, within=0.3),
                    on_discord(discords.rest_url, discords.bot.token, within=0.3),
                    return_exceptions=True,
                )
        assert [type(one) for one in found] == [ChannelError, ChannelError]
        assert all("within 0.3 s" in str(one) for one in found)

    async def test_a_server_that_takes_connections_and_says_nothing_is_given_up(self) -> None:
        async def hold(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        async with accepting(hold) as port:
            url = f"http://127.0.0.1:{port}"
            for work in (on_telegram(url, WRONG, within=0.2), on_discord(url, "aaaaaa.bbb.ccccc", within=0.2)):
                with pytest.raises(ChannelError):
                    await work


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("Sat, 21 Nov 2026 20:21:00 GMT", "2026-11-21T20:21:00+00:00"), ("", ""), ("soon", ""),
        ("Sat, 99 Nov 99999 20:21:00 GMT", ""), ("Sat, 21 Nov 2026 20:21:00 +0200", "2026-11-21T18:21:00+00:00"),
    ],
)  # fmt: skip
def test_the_time_of_a_platform_is_read_where_it_can_be(header: str, told: str) -> None:
    assert parse_http_date(header) == told


async def test_the_factories_make_channels_that_introduce_themselves() -> None:
    """What others make over the entry points has the power, with limits of a few seconds."""
    async with Telegram() as telegrams, Discord() as discords:
        given = {"token": telegrams.bot.token, "base_url": telegrams.base_url}
        made = telegram.create(_options(given))
        other = discord.create(_options({"token": discords.bot.token, "rest_url": discords.rest_url}))
        for channel in (made, other):
            me = await channel.verify_token()
            assert me.name
            assert abs((datetime.now(UTC) - datetime.fromisoformat(me.server_date)).total_seconds()) < 5
            await channel.aclose()
    assert TelegramTiming().verify_timeout <= 5
    assert DiscordTiming().verify_timeout <= 5


def _hidden(error: BaseException, token: str) -> None:
    assert token not in f"{error!r} {''.join(traceback.format_exception(error))}"
