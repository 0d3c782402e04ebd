"""Lanes, positions and paces of the Discord channel, without a server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from discord.http import HTTPClient

from bubbot.ports.channel import BackfillCursor, ChannelOptions, no_commands
from channels.discord.backfill import Backfill, parse_unix_time, snowflake_at
from channels.discord.chats import ChatDirectory
from channels.discord.client import DiscordGateway, GatewaySession, close_code_error, gateway_intents
from channels.discord.lanes import ChatLanes
from channels.discord.retry import DiscordReceiveTiming
from channels.discord.settings import DiscordSettings

MAX_SESSIONS_PER_HOUR = 20


SETTINGS = {"token": "aaaaaaaa.bbbbbb.cccccccccccc"}


class Taken:
    """What lanes took and filled, in order; `go` lets a lane's first item through."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []
        self.go: dict[str, asyncio.Event] = {}

    async def take(self, lane: str, item: Any) -> None:
        if lane in self.go:
            await self.go[lane].wait()
        if item == "bad":
            raise OSError("the disk is full")
        self.done.append((lane, item))

    async def fill(self, lane: str) -> None:
        await asyncio.sleep(0)
        self.done.append((lane, "filled"))

    async def until_idle(self, lanes: ChatLanes[Any]) -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        assert not lanes.lane_count


def _is_number(_lane: str, item: Any) -> bool:
    """Numbers stand for messages, which a gap brings again."""
    return isinstance(item, int)


async def test_a_lane_keeps_its_order_and_fills_its_gap_first() -> None:
    taken = Taken()
    lanes: ChatLanes[Any] = ChatLanes("dc", taken.take, taken.fill, _is_number, max_items=10)
    lanes.mark_gap("a")
    for number in range(3):
        lanes.put("a", number)
    await taken.until_idle(lanes)
    assert taken.done == [("a", "filled"), ("a", 0), ("a", 1), ("a", 2)]
    lanes.put("a", 3)
    await taken.until_idle(lanes)
    assert taken.done[-1] == ("a", 3)
    await lanes.close()


async def test_a_lane_that_waits_holds_no_other_up() -> None:
    taken = Taken()
    taken.go["a"] = asyncio.Event()
    lanes: ChatLanes[Any] = ChatLanes("dc", taken.take, taken.fill, _is_number, max_items=10)
    lanes.put("a", 1)
    lanes.put("b", 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert taken.done == [("b", 2)]
    taken.go["a"].set()
    await taken.until_idle(lanes)
    assert taken.done == [("b", 2), ("a", 1)]
    await lanes.close()


async def test_too_many_become_a_gap_after_what_is_under_way() -> None:
    taken = Taken()
    taken.go["a"] = asyncio.Event()
    lanes: ChatLanes[Any] = ChatLanes("dc", taken.take, taken.fill, _is_number, max_items=3)
    lanes.put("a", 0)
    await asyncio.sleep(0)
    for number in range(1, 6):
        lanes.put("a", number)
    taken.go["a"].set()
    await taken.until_idle(lanes)
    assert taken.done == [("a", 0), ("a", "filled"), ("a", 5)]
    await lanes.close()


@pytest.mark.parametrize(
    ("queued", "left", "counts"),
    [
        ([1, "edit", 2, 3, 4], ["filled", "edit"], "messages=4 lost_events=0"),
        (["edit", "reaction", "edit", 2, 3], ["filled"], "messages=2 lost_events=3"),
        (["edit", "edit", "edit", "edit", "edit"], [], "messages=0 lost_events=5"),
    ],
)
async def test_a_full_lane_keeps_what_cannot_be_fetched_again_or_says_how_much_is_lost(
    queued: list[Any], left: list[Any], counts: str, caplog: pytest.LogCaptureFixture
) -> None:
    taken = Taken()
    taken.go["a"] = asyncio.Event()
    lanes: ChatLanes[Any] = ChatLanes("dc", taken.take, taken.fill, _is_number, max_items=4)
    lanes.put("a", 0)
    await asyncio.sleep(0)
    for item in [*queued, 9]:
        lanes.put("a", item)
    taken.go["a"].set()
    await taken.until_idle(lanes)
    assert taken.done == [("a", item) for item in [0, *left, 9]]
    assert [record.getMessage().partition("chat=a ")[2] for record in caplog.records] == [counts]
    await lanes.close()


async def test_what_fails_is_told_once_and_the_end_waits_for_nothing() -> None:
    taken = Taken()
    taken.go["b"] = asyncio.Event()
    lanes: ChatLanes[Any] = ChatLanes("dc", taken.take, taken.fill, _is_number, max_items=3)
    for lane, item in (("a", "bad"), ("a", 1), ("b", 2), ("c", "bad")):
        lanes.put(lane, item)
    with pytest.raises(OSError, match="the disk is full"):
        await lanes.failure
    await lanes.close()
    assert taken.done == []


def test_a_snowflake_has_its_time_in_it() -> None:
    assert snowflake_at(1_420_070_400.0) == 0
    assert snowflake_at(0.0) == 0
    assert snowflake_at(1_462_015_105.796) >> 22 == 41_944_705_796
    assert parse_unix_time("2015-01-01T00:00:00+00:00") == 1_420_070_400.0
    assert parse_unix_time("yesterday") is None


async def _never(*given: Any, **named: Any) -> Any:
    raise AssertionError("asked")


def missed(known: BackfillCursor, now: str = "2026-11-22T10:00:00+00:00") -> Backfill:
    options = ChannelOptions("dc", Path(), lambda: now, lambda: "id")
    places = ChatDirectory(_never, no_commands)  # type: ignore[arg-type]
    return Backfill(options, known, places, _never, DiscordReceiveTiming())  # type: ignore[arg-type]


def at(time: str) -> int:
    seconds = parse_unix_time(time)
    assert seconds is not None
    return snowflake_at(seconds)


def guild(**last: str | None) -> dict[str, Any]:
    channels = [{"id": number[1:], "type": 0, "last_message_id": newest} for number, newest in last.items()]
    return {"id": "5", "joined_at": "2020-01-01T00:00:00+00:00", "channels": channels}


def test_a_chat_has_a_gap_where_it_has_something_newer_than_what_is_durable() -> None:
    heard = at("2026-11-22T09:00:00+00:00")
    old, new = str(at("2026-11-22T08:49:59+00:00")), str(at("2026-11-22T08:50:01+00:00"))
    one = missed(BackfillCursor({("50", ""): str(heard), ("40", "51"): str(heard)}, "2026-11-22T09:00:00+00:00"))
    one.start_session()
    found = guild(c50=str(heard), c51=str(heard + 1), c52=old, c53=new, c54=None)
    assert list(one.find_guild_gaps(found)) == ["51", "53"]
    one.mark_durable("51", str(heard + 1))
    one.mark_durable("53", new)
    one.start_session()
    assert list(one.find_guild_gaps(found)) == []


def test_a_new_bot_has_no_gaps() -> None:
    one = missed(BackfillCursor())
    one.start_session()
    assert list(one.find_guild_gaps(guild(c50=str(at("2026-11-22T09:59:59+00:00"))))) == []
    assert not one.check_first_event("60")


def test_the_first_that_happens_in_a_chat_nobody_looked_at_is_noticed_once() -> None:
    one = missed(BackfillCursor({}, "2026-11-22T09:00:00+00:00"))
    one.start_session()
    assert one.check_first_event("60")
    assert not one.check_first_event("60")
    one.mark_created("61")
    assert not one.check_first_event("61")
    one.start_session()
    assert one.check_first_event("60")


async def _gateway(pace: DiscordReceiveTiming) -> DiscordGateway:
    http = HTTPClient(asyncio.get_running_loop())
    return DiscordGateway(http, settings(), pace, on_event=lambda *_: None, now=lambda: "now")


def settings(**more: Any) -> DiscordSettings:
    return DiscordSettings.read("dc", {**SETTINGS, **more})


async def test_new_sessions_are_rationed_and_resumed_ones_are_not() -> None:
    now = [0.0]
    gateway = await _gateway(DiscordReceiveTiming(monotonic=lambda: now[0], jitter=lambda: 1.0))
    fresh, lasting = GatewaySession(), GatewaySession("id", 3)
    assert gateway.seconds_before_connecting(fresh, 0) == 5.0
    for _ in range(MAX_SESSIONS_PER_HOUR):
        await gateway.before_identify_hook(None)
    assert gateway.seconds_before_connecting(fresh, 0) == 180.0
    assert gateway.seconds_before_connecting(lasting, 0) == 1.0
    now[0] = 3601.0
    assert gateway.seconds_before_connecting(fresh, 0) == 5.0


@pytest.mark.parametrize("jitter", [0.0, 0.25, 1.0])
async def test_a_connection_that_was_fine_is_resumed_within_the_first_wait(jitter: float) -> None:
    gateway = await _gateway(DiscordReceiveTiming(initial_backoff=2.0, jitter=lambda: jitter))
    assert gateway.seconds_before_connecting(GatewaySession("id", 3), 0) == 2.0 * jitter


async def test_waits_grow_and_have_an_end() -> None:
    pace = DiscordReceiveTiming(jitter=lambda: 1.0)
    assert [pace.backoff_seconds(failures) for failures in (1, 2, 3, 7, 1000)] == [1, 2, 4, 60, 60]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (4004, "token"),
        (4014, "Message Content Intent"),
        (4013, "intents"),
        (4010, "too many servers"),
        (4012, "update"),
    ],
)
def test_what_only_people_can_mend_is_named(code: int, says: str) -> None:
    found = close_code_error(settings(), code)
    assert found is not None
    assert says in str(found)
    assert str(found).startswith("[channels.dc]")


@pytest.mark.parametrize("code", [None, 1000, 1006, 4000, 4007, 4008, 4009])
def test_everything_else_is_tried_again(code: int | None) -> None:
    assert close_code_error(settings(), code) is None


def test_little_is_asked_of_discord() -> None:
    asked = {name for name, on in gateway_intents(settings(content="mentions")) if on}
    assert asked == {"guilds", "guild_messages", "dm_messages", "guild_reactions", "dm_reactions"}
    assert {name for name, on in gateway_intents(settings()) if on} - asked == {"message_content"}
