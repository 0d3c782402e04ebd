"""Doctor findings of channels: by their settings, and by asking their platforms. Each fault is planted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bubbot.home import Home
from bubbot.ports.checks import Finding
from tests.doubles import START
from tests.fakes.botapi.server import Server as Telegram
from tests.fakes.discordapi.server import Server as Discord
from tests.fakes.platform.faults import Html, Wedge
from tests.installed import installed
from tests.planting import examine, found, plants, table

pytestmark = pytest.mark.usefixtures("no_plugins", "no_systemd")
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


def on(server: Telegram, **more: Any) -> dict[str, Any]:
    return {"kind": "telegram", "token": server.bot.token, "base_url": server.base_url, **more}


async def look(home: Home, *, now: datetime = START, online: bool = True, **tables: dict[str, Any]) -> list[Finding]:
    """What the doctor says of these channels, without a token in it. It has a loop itself, and runs beside this one."""
    home.config.write_text("".join(f"[channels.{name}]\n{table(**each)}" for name, each in tables.items()))
    areas = ("channel.", "platform.", "clock.off", "doctor.")
    made = await asyncio.to_thread(examine, home, *areas, now=now, online=online)
    assert not [one for each in tables.values() if isinstance(one := each.get("token"), str) and one in repr(made)]
    return made


async def told(home: Home, **more: Any) -> dict[str, Finding]:
    """The same by id."""
    return found(await look(home, **more))


class TestSettings:
    @plants("channel.ok", "channel.no_token", "channel.same_token")
    async def test_tokens_that_are_missing_or_used_twice(self, home: Home) -> None:
        assert list(await told(home, online=False, telegram={"token": TOKEN}, stdin={}, terminal={})) == ["channel.ok"]
        missing = (await told(home, online=False, discord={}))["channel.no_token"]
        assert (missing.level, "[channels.discord]" in missing.cause) == ("warning", True)
        assert missing.fix == f"bubbot init --home {home.path}"
        twice = await told(
            home, online=False, a={"kind": "telegram", "token": TOKEN}, b={"kind": "telegram", "token": TOKEN}
        )
        assert "[channels.b] token is that of [channels.a]" in twice["channel.same_token"].cause

    @plants("channel.invalid")
    async def test_settings_that_the_channel_does_not_take(self, home: Home) -> None:
        for settings in (
            {"token": "not a token"}, {"token": TOKEN, "mdoe": "polling"}, {"token": TOKEN, "owners": ["@ada"]},
            {"token": TOKEN, "mode": "webhook"}, {"token": TOKEN, "kind": "nobody"},
            {"token": [TOKEN, "x"]},
        ):  # fmt: skip
            finding = (await told(home, online=False, telegram=settings))["channel.invalid"]
            assert finding.level == "problem"
            assert finding.fix.endswith(" " + str(home.config))


class TestPlatforms:
    @plants("platform.ok")
    async def test_each_says_who_the_bot_is(self, home: Home, telegram: Telegram, discord: Discord) -> None:
        other = {"kind": "discord", "token": discord.bot.token, "rest_url": discord.rest_url}
        findings = await look(home, now=datetime.now(UTC), tg=on(telegram), dc=other)
        assert list(found(findings)) == ["platform.ok"]
        assert [one.cause for one in findings] == [
            f"[channels.tg] is bubbot_bot ({telegram.bot.user.id}) on telegram, which accepted the token.",
            f"[channels.dc] is Bubbot ({discord.bot.user.id}) on discord, which accepted the token.",
        ]

    async def test_nobody_is_asked_offline(self, home: Home, telegram: Telegram) -> None:
        assert list(await told(home, online=False, tg=on(telegram))) == ["channel.ok"]
        assert telegram.log == []

    @plants("clock.off", "platform.ok")
    async def test_a_clock_that_differs_from_theirs(self, home: Home, telegram: Telegram, discord: Discord) -> None:
        other = {"kind": "discord", "token": discord.bot.token, "rest_url": discord.rest_url}
        for minutes, words in ((-10, "behind that of"), (10, "ahead of that of")):
            moment = datetime.now(UTC) + timedelta(minutes=minutes)
            for settings in (on(telegram), other):
                told_of = await told(home, now=moment, one=settings)
                assert words in told_of["clock.off"].cause
                assert re.search(r"\b(59\d|60\d) s\b", told_of["clock.off"].cause)
        assert list(await told(home, now=datetime.now(UTC), tg=on(telegram), dc=other)) == ["platform.ok"]

    @plants("platform.refused")
    async def test_one_that_does_not_take_the_token(self, home: Home, telegram: Telegram) -> None:
        finding = (await told(home, tg=on(telegram, token=TOKEN)))["platform.refused"]
        assert finding.level == "problem"
        assert "@BotFather" in finding.cause

    @plants("platform.unreachable")
    async def test_one_that_is_not_reached(self, home: Home, telegram: Telegram) -> None:
        finding = (await told(home, tg=on(telegram, base_url=NOWHERE)))["platform.unreachable"]
        assert (finding.level, finding.fix) == ("warning", f"curl -sSI {NOWHERE}/")
        telegram.fail("getMe", Html())
        assert "platform.unreachable" in await told(home, tg=on(telegram))

    @plants("platform.silent", "platform.ok")
    async def test_one_that_hangs_keeps_nobody_waiting_and_the_others_answer(
        self, home: Home, telegram: Telegram, discord: Discord, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bubbot.ops.doctor.channels.PROBE_TIMEOUT_SECONDS", 2.0)
        discord.fail("GET /applications/@me", Wedge())
        hangs = {"kind": "discord", "token": discord.bot.token, "rest_url": discord.rest_url}
        async with asyncio.timeout(60):  # the server would hold it for ever
            both = await told(home, now=datetime.now(UTC), tg=on(telegram), dc=hangs)
        assert list(both) == ["platform.ok", "platform.silent"]

    @plants("platform.remark")
    async def test_what_keeps_it_from_hearing(self, home: Home, telegram: Telegram) -> None:
        finding = (await told(home, tg=on(telegram, record_only=["-100"])))["platform.remark"]
        assert finding.level == "warning"
        assert "bubbot_bot" in finding.cause
        assert "/setprivacy" in finding.cause

    @plants("doctor.failed", "platform.ok")
    async def test_an_adapter_of_others_that_breaks_leaves_the_rest(
        self, home: Home, telegram: Telegram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        installed(tmp_path, "odd_channel", "1.0", "[bubbot.channels]\nodd = odd_channel:Odd\n")
        (tmp_path / "odd_channel.py").write_text(ODD)
        monkeypatch.syspath_prepend(tmp_path)
        both = await told(home, odd={"token": "a-token-of-theirs"}, tg=on(telegram))
        assert "[channels.odd]" in both["doctor.failed"].cause
        assert "platform.ok" in both
        assert (home.path / "closed").exists()
