"""A group that became a supergroup has two ids: every command of the shell knows it by both."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from bubbot.app.own_features import find_parts
from bubbot.gateway.inbox import Inbox
from bubbot.home import Home
from bubbot.ports.channel import ChatMigration
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.e2e.inside import run, said

FIRST, NOW = "telegram:-1", "telegram:-1001"
CONFIG = '[channels.telegram]\ntoken = "12345678:' + "c" * 35 + '"\n'
CHAT_FIELDS = {"session", "chat", "source", "reader", "to", "tape"}
"""The names of arguments that are chats."""
THROUGH_THE_TAPE = {"tape", "memory", "context", "why", "agent", "explain", "replay", "judge"}
"""Commands that open the tape of the chat (`find_tape`); `tests/unit/ports/test_session_names.py` is about that."""
OF_THE_TERMINAL = {"task run"}
"""Commands for chats of the terminal alone, which do not move."""
IN_A_BOT = {"mcp client-send"}
"""It needs a running bot, and looks among the chats that a program was granted, by what they were granted as: tests/e2e/test_mcp_send.py."""
NAMED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "access grant-reading": (("telegram:7", NOW), ("reader",)),
    "view add": ((NOW, "telegram:7"), ("chat",)),
    "view list": ((NOW,), ("views", "0", "chat")),
    "view remove": ((NOW, "telegram:7"), ("chat",)),
    "access revoke-reading": (("telegram:7", NOW), ()),
    "access grant-audit": (("anna", NOW), ("session",)),
    "access revoke-audit": (("anna", NOW), ()),
    "schedule add": ((NOW, "every 1h", "--text", "tea", "--to", f"{NOW}:3", "--name", "tea"), ("jobs", "0", "session")),
    "schedule edit": (("tea", "--to", f"{NOW}:4"), ("jobs", "0", "to")),
    "schedule chat": ((NOW, "--quiet", "22:00-07:00"), ("session",)),
}
"""Each command that takes a chat, in the order of the test: its arguments, and where its answer names the chat."""


async def _moved(home: Home) -> None:
    store = await open_store(home.database, salt=CountingSalt(), now=SteppingClock())
    tape = TapeService(store, "bubbot/inbox/telegram", now=SteppingClock(), new_id=CountingIds("i"))
    moved = ChatMigration("telegram", "u", FIRST.partition(":")[2], NOW.partition(":")[2], "2026-11-21T20:21:00+00:00")
    await Inbox(tape, CountingIds("i")).record_migration(moved)
    await store.aclose()


def test_every_command_knows_a_chat_that_moved_by_both_ids(tmp_path: Path) -> None:
    home = tmp_path / "home"
    said(home, "hello")
    (home / "config.toml").write_text(CONFIG)
    asyncio.run(_moved(Home(home)))
    for name, (arguments, place) in NAMED.items():
        done = run(home, *name.split(), *arguments, "--json")
        assert done.returncode == 0, (name, done.stderr.decode())
        found = json.loads(done.stdout)
        for key in place:
            found = found[int(key) if key.isdecimal() else key]
        assert not place or str(found).startswith(FIRST), (name, found)
    assert json.loads(run(home, "access", "readings", "--json").stdout)["readings"] == []
    for named, limit in (("each", "5"), (FIRST, "6"), (NOW, "7")):
        (home / "config.toml").write_text(f'{CONFIG}[budget.chats."{named}"]\nday = {limit}\n')
        limits = run(home, "usage", "--chat", NOW).stdout.decode()
        assert FIRST in limits
        assert NOW not in limits
        assert f" of {limit}.00 USD" in limits
    assert json.loads(run(home, "access", "audits", "--json").stdout)["audits"] == []


def test_no_command_that_takes_a_chat_is_left_out() -> None:
    taking = set()
    for _, group in find_parts("commands", "COMMANDS"):
        for command in group.commands:
            if group.name not in THROUGH_THE_TAPE and CHAT_FIELDS & set(command.fields):
                taking.add(command.name)
    assert taking == {*NAMED, *OF_THE_TERMINAL, *IN_A_BOT, "usage"}
