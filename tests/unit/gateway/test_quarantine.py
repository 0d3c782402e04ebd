"""The quarantine of a restored home: what stands, and what a channel knows after the release."""

from __future__ import annotations

from bubbot.gateway.inbox import Inbox, restart_entry
from bubbot.gateway.quarantine import Quarantine, release_entry
from bubbot.ports.channel import BackfillCursor, ChannelOptions
from bubbot.tape.service import TapeService
from channels.discord.backfill import Backfill, snowflake_at
from channels.discord.retry import DiscordReceiveTiming
from tests.doubles import CountingIds


async def test_it_stands_from_the_restore_to_the_release_and_again(tape: TapeService) -> None:
    quarantine = Quarantine(tape)
    assert await quarantine.current_restore() is None
    for backup in ("one", "two"):
        await quarantine.record_restore(backup, created="2026-11-21T20:21:00+00:00", head="1:0f", bubbot="0.1.0")
        found = await quarantine.current_restore()
        assert found is not None
        assert (found.id, found.fact.backup, found.fact.created) == (
            await tape.head(),
            backup,
            "2026-11-21T20:21:00+00:00",
        )
        await tape.append([release_entry(deliver=False, intents=0, inbounds=0, jobs=0)])
        assert await quarantine.current_restore() is None


async def test_a_channel_knows_from_when_on_it_listens_again(tape: TapeService) -> None:
    inbox = Inbox(tape, CountingIds())
    await inbox.record_begin("2026-11-21T20:21:00+00:00")
    assert (await inbox.read_cursor()).handled_until == ""
    await tape.append([restart_entry("2026-11-22T09:00:00+00:00", 7)])
    known = await inbox.read_cursor()
    assert (known.handled_until, known.last_message_at) == ("2026-11-22T09:00:00+00:00",) * 2
    await inbox.record_begin("2026-11-23T00:00:00+00:00")
    assert await inbox.read_cursor() == known


def test_nothing_from_before_is_fetched_not_even_what_is_fetched_twice_for_safety() -> None:
    unused: object = None
    known = BackfillCursor({("1", ""): "5"}, "2026-11-22T09:00:00+00:00", handled_until="2026-11-22T09:00:00+00:00")
    options = ChannelOptions("discord", unused, lambda: "2026-11-22T09:00:10+00:00", CountingIds(), {})  # type: ignore[arg-type]
    missed = Backfill(options, known, unused, unused, DiscordReceiveTiming())  # type: ignore[arg-type]
    missed.start_session()
    since = snowflake_at(1795338000.0)
    assert [missed.position(chat) for chat in ("1", "unknown")] == [since, since]
    missed.mark_durable("1", str(since + 9))
    assert missed.position("1") == since + 9
