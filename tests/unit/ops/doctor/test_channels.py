"""Doctor findings of channels: by their settings, and by asking their platforms. Each fault is planted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bubbot.home import Home
from bubbot.ops.doctor.channels import ChannelProbe, check_channels, probe_channels
from bubbot.ports.checks import Finding
from bubbot.settings.loader import Settings
from tests.fakes.botapi.server import Server as Telegram
from tests.fakes.discordapi.server import Server as Discord
from tests.fakes.platform.faults import Html, Wedge
from tests.installed import installed
from tests.planting import found, plants

TOKEN = "12345678:" + "c" * 35
ODD = """
class Odd:
    def __init__(self, options):
        self.options = options

    async def verify_token(self):
        raise ZeroDivisionError("a fault of the adapter")

    async def aclose(self):
        (self.options.home / "closed").touch()
"""
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
async def telegram() -> AsyncIterator[Telegram]:
    async with Telegram() as server:
        yield server


@pytest.fixture
async def discord() -> AsyncIterator[Discord]:
    async with Discord() as server:
        yield server


@pytest.fixture
def asking(tmp_path: Path) -> ChannelProbe:
    return ChannelProbe(Home(tmp_path), tmp_path / "config.toml", lambda: "now", lambda: "id")


def settings(**tables: dict[str, Any]) -> Settings:
    return Settings(channels=tables)


def on(server: Telegram, **more: Any) -> dict[str, Any]:
    return {"kind": "telegram", "token": server.bot.token, "base_url": server.base_url, **more}


async def told(asking: ChannelProbe, **tables: dict[str, Any]) -> dict[str, Finding]:
    """What is found, without a token in it."""
    made = found(await probe_channels(settings(**tables), asking))
    assert not [one for table in tables.values() if isinstance(one := table.get("token"), str) and one in repr(made)]
    return made


class TestSettings:
    @plants("channel.ok", "channel.no_token", "channel.same_token")
    async def test_tokens_that_are_missing_or_used_twice(self, asking: ChannelProbe) -> None:
        offline = replace(asking, online=False)
        assert list(await told(offline, telegram={"token": TOKEN}, stdin={}, terminal={})) == ["channel.ok"]
        missing = (await told(offline, discord={}))["channel.no_token"]
        assert (missing.level, "[channels.discord]" in missing.cause) == ("warning", True)
        assert missing.fix == f"bubbot init --home {asking.home.path}"
        twice = await told(offline, a={"kind": "telegram", "token": TOKEN}, b={"kind": "telegram", "token": TOKEN})
        assert "[channels.b] token is that of [channels.a]" in twice["channel.same_token"].cause

    @plants("channel.invalid")
    async def test_settings_that_the_channel_does_not_take(self, asking: ChannelProbe) -> None:
        for table in (
            {"token": "not a token"}, {"token": TOKEN, "mdoe": "polling"}, {"token": TOKEN, "owners": ["@ada"]},
            {"token": TOKEN, "mode": "webhook"}, {"token": TOKEN, "kind": "nobody"},
            {"token": [TOKEN, "x"]},
        ):  # fmt: skip
            finding = (await told(replace(asking, online=False), telegram=table))["channel.invalid"]
            assert finding.level == "problem"
            assert finding.fix.endswith(" " + str(asking.file))

    def test_it_can_be_asked_without_a_loop(self, asking: ChannelProbe) -> None:
        assert list(found(check_channels(settings(discord={}), asking))) == ["channel.no_token"]


class TestPlatforms:
    @plants("platform.ok")
    async def test_each_says_who_the_bot_is(self, asking: ChannelProbe, telegram: Telegram, discord: Discord) -> None:
        other = {"kind": "discord", "token": discord.bot.token, "rest_url": discord.rest_url}
        findings = await probe_channels(settings(tg=on(telegram), dc=other), asking)
        assert list(found(findings)) == ["platform.ok"]
        assert [one.cause for one in findings] == [
            f"[channels.tg] is bubbot_bot ({telegram.bot.user.id}) on telegram, which accepted the token.",
            f"[channels.dc] is Bubbot ({discord.bot.user.id}) on discord, which accepted the token.",
        ]

    async def test_nobody_is_asked_offline(self, asking: ChannelProbe, telegram: Telegram) -> None:
        assert list(await told(replace(asking, online=False), tg=on(telegram))) == ["channel.ok"]
        assert telegram.log == []

    @plants("clock.off", "platform.ok")
    async def test_a_clock_that_differs_from_theirs(
        self, asking: ChannelProbe, telegram: Telegram, discord: Discord
    ) -> None:
        other = {"kind": "discord", "token": discord.bot.token, "rest_url": discord.rest_url}
        for minutes, words in ((-10, "behind that of"), (10, "ahead of that of")):
            moment = datetime.now(UTC) + timedelta(minutes=minutes)
            for table in (on(telegram), other):
                told_of = await told(replace(asking, now=moment.isoformat), one=table)
                assert words in told_of["clock.off"].cause
                assert re.search(r"\b(59\d|60\d) s\b", told_of["clock.off"].cause)
        right = replace(asking, now=lambda: datetime.now(UTC).isoformat())
        assert list(await told(right, tg=on(telegram), dc=other)) == ["platform.ok"]

    @plants("platform.refused")
    async def test_one_that_does_not_take_the_token(self, asking: ChannelProbe, telegram: Telegram) -> None:
        finding = (await told(asking, tg=on(telegram, token=TOKEN)))["platform.refused"]
        assert finding.level == "problem"
        assert "@BotFather" in finding.cause

    @plants("platform.unreachable")
    async def test_one_that_is_not_reached(self, asking: ChannelProbe, telegram: Telegram) -> None:
        finding = (await told(asking, tg=on(telegram, base_url=NOWHERE)))["platform.unreachable"]
        assert (finding.level, finding.fix) == ("warning", f"curl -sSI {NOWHERE}/")
        telegram.fail("getMe", Html())
        assert "platform.unreachable" in await told(asking, tg=on(telegram))

    @plants("platform.silent", "platform.ok")
    async def test_one_that_hangs_keeps_nobody_waiting_and_the_others_answer(
        self, asking: ChannelProbe, telegram: Telegram, discord: Discord
    ) -> None:
        discord.fail("GET /applications/@me", Wedge())
        hangs = {"kind": "discord", "token": discord.bot.token, "rest_url": discord.rest_url}
        async with asyncio.timeout(60):  # the server would hold it for ever
            both = await told(replace(asking, timeout_seconds=2.0), tg=on(telegram), dc=hangs)
        assert list(both) == ["platform.ok", "platform.silent"]

    @plants("platform.remark")
    async def test_what_keeps_it_from_hearing(self, asking: ChannelProbe, telegram: Telegram) -> None:
        finding = (await told(asking, tg=on(telegram, record_only=["-100"])))["platform.remark"]
        assert finding.level == "warning"
        assert "bubbot_bot" in finding.cause
        assert "/setprivacy" in finding.cause

    @plants("doctor.failed", "platform.ok")
    async def test_an_adapter_of_others_that_breaks_leaves_the_rest(
        self, asking: ChannelProbe, telegram: Telegram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        installed(tmp_path, "odd_channel", "1.0", "[bubbot.channels]\nodd = odd_channel:Odd\n")
        (tmp_path / "odd_channel.py").write_text(ODD)
        monkeypatch.syspath_prepend(tmp_path)
        both = await told(asking, odd={"token": "a-token-of-theirs"}, tg=on(telegram))
        assert "[channels.odd]" in both["doctor.failed"].cause
        assert "platform.ok" in both
        assert (tmp_path / "closed").exists()
