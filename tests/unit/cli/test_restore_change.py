"""The end of a quarantine: what was open is ended on the tapes that it is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.app.offline import offline_snapshot
from bubbot.app.tapes import new_id, now, tape_service
from bubbot.cli.restore_change import ReleaseHome, release
from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.gateway.outbox import Outbox, outbox_tape
from bubbot.gateway.quarantine import Quarantine
from bubbot.home import Home
from bubbot.ports.channel import Inbound, MessagePart, Sender
from bubbot.settings.loader import Settings
from bubbot.shell_command import CommandContext
from bubbot.tape.store import TapeStore
from tests.tapes import note, whole


@pytest.fixture(params=["memory", "sharded"])
def store(request: pytest.FixtureRequest) -> TapeStore:
    """A store with one tape for each inbox, and one with eight."""
    found: TapeStore = request.getfixturevalue(f"{request.param}_store")
    return found


async def test_a_release_ends_the_work_of_every_chat_and_counts_it(store: TapeStore, tmp_path: Path) -> None:
    inbox = Inbox(tape_service(store, inbox_tape("telegram")), new_id)
    outbox = Outbox(tape_service(store, outbox_tape("telegram")))
    for chat in ("1", "2", "3"):
        sent = Inbound("telegram", f"e{chat}", chat, Sender("7"), "hello", "2026-11-21T20:21:00Z")
        accepted = await inbox.accept(sent)
        assert accepted is not None
        await outbox.enqueue(sent.session, f"k{chat}", (MessagePart(chat, "hi"),), {})
        await outbox.begin_live(accepted.id, sent.session, MessagePart(chat, "half …"))
    alone = await offline_snapshot(store, Home(tmp_path), Settings(), now=now)
    assert (alone.load.waiting, [(one.channel, one.count) for one in alone.owed]) == (3, [("telegram", 3)])
    await Quarantine(tape_service(store, "bubbot/home")).record_restore("b", created="c", head="h", bubbot="0")
    context = CommandContext(store, "w", now, new_id, Settings())
    result = await release(context, ReleaseHome(deliver=False))
    assert "3 messages to people; ended without an answer: 3 messages" in result.text
    assert (await inbox.open_inbounds(), await outbox.pending(), await outbox.unanswered_live()) == ((), (), ())
    assert (await inbox.read_cursor()).handled_until


async def test_a_release_merges_a_turn_that_was_cut_off_in_the_backup(store: TapeStore) -> None:
    for channel in ("telegram", "stdin"):
        inbox = Inbox(tape_service(store, inbox_tape(channel)), new_id)
        assert await inbox.accept(Inbound(channel, "e1", "1", Sender("7"), "hello", "2026-11-21T20:21:00Z"))
        await tape_service(store, f"tape-{channel}", f"{channel}:1").open_fork([note("half an answer")])
    await Quarantine(tape_service(store, "bubbot/home")).record_restore("b", created="c", head="h", bubbot="0")
    await release(CommandContext(store, "w", now, new_id, Settings()), ReleaseHome(deliver=False))
    assert await store.forks("tape-telegram") == []
    assert [entry.name for entry in await whole(store, "tape-telegram")][-1] == "turn/interrupted"
    assert len(await store.forks("tape-stdin")) == 1  # the terminal takes it up


async def test_a_release_ends_turns_of_a_yes_in_the_terminal_and_nothing_else_there(
    store: TapeStore, tmp_path: Path
) -> None:
    inbox = Inbox(tape_service(store, inbox_tape("stdin")), new_id)
    for origin in ("human", "approval"):
        now_ = "2026-11-21T20:21:00Z"
        await inbox.accept(Inbound("stdin", f"{origin}:1", "default", Sender("0"), "on", now_, origin=origin))
    await Quarantine(tape_service(store, "bubbot/home")).record_restore("b", created="c", head="h", bubbot="0")
    result = await release(CommandContext(store, "w", now, new_id, Settings()), ReleaseHome(deliver=False))
    assert [one.inbound.origin for one in await inbox.open_inbounds()] == ["human"]
    assert "approvals that run nothing: 1." in result.text
