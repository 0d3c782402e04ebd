"""Writing commands at their desk: one at a time with the turns of a session, and known by name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from bubbot.app.bot import now
from bubbot.cli import write_command
from bubbot.cli.main import COMMANDS
from bubbot.cli.write_command import WRITE_COMMANDS, CommandContext, answer_command
from bubbot.errors import ConfigError, ControlError, EntryNotFound
from bubbot.server.codec import encode
from bubbot.settings.loader import Settings
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.service import session_tape

WAIT = 10.0


class Turns:
    """Lets a command at a session when no turn runs there."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self.waiting = asyncio.Event()
        self.asked: list[str] = []
        self.inside = 0

    @asynccontextmanager
    async def exclusive(self, session: str) -> AsyncIterator[None]:
        """See `CommandContext`."""
        self.asked.append(session)
        self.waiting.set()
        await self.over.wait()
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
async def desk(tmp_path: Path, turns: Turns) -> AsyncIterator[CommandContext]:
    store = await open_store(tmp_path / "bubbot.db", salt=os.urandom, now=now)
    try:
        async with asyncio.timeout(WAIT):
            yield CommandContext(store, await store.workspace("w"), Settings(), turns.exclusive)
    finally:
        await store.aclose()


async def do(desk: CommandContext, name: str, **arguments: object) -> str:
    """What the running bot prints for a command."""
    kind, _ = write_command._load_command(name)
    return str((await answer_command(desk, {"name": name, "arguments": encode(kind(**arguments))}))["told"]["text"])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memory save", {"session": "work", "text": "tea"}),
        ("memory import", {"session": "work", "long_term": "tea", "notes": (), "left_out": (), "replace": False}),
        ("tape import", {"session": "stdin:work", "repair": False, "data": b'{"kind":"event","payload":{"name":"x","data":{}}}\n'}),
    ],
)  # fmt: skip
async def test_a_command_writes_only_between_turns(
    desk: CommandContext, turns: Turns, name: str, arguments: dict[str, object]
) -> None:
    doing = asyncio.create_task(do(desk, name, **arguments))
    await turns.waiting.wait()
    assert (turns.asked, await desk.store.head(session_tape(desk.workspace, "stdin:work"))) == (["stdin:work"], 0)
    turns.over.set()
    await doing
    assert await desk.store.head(session_tape(desk.workspace, "stdin:work")) > 0
    assert turns.inside == 0


async def test_every_change_of_a_tape_that_is_there_waits_for_its_session(desk: CommandContext, turns: Turns) -> None:
    turns.over.set()
    await do(desk, "memory save", session="telegram:42", text="tea\nmilk")
    await do(desk, "memory forget", session="telegram:42", text="milk")
    await do(desk, "memory restore", session="telegram:42", version=1)
    await do(desk, "tape archive", tape=session_tape(desk.workspace, "telegram:42"))
    assert (turns.asked, turns.inside) == (["telegram:42"] * 4, 0)


async def test_a_turn_that_does_not_end_is_not_waited_for_for_ever(
    desk: CommandContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_command, "WRITE_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(ConfigError, match=",stop ends it; nothing was written"):
        await do(desk, "memory save", session="work", text="tea")


async def test_a_command_that_fails_leaves_the_session_to_its_turns(desk: CommandContext, turns: Turns) -> None:
    turns.over.set()
    await do(desk, "memory save", session="work", text="tea")
    with pytest.raises(EntryNotFound):
        await do(desk, "memory restore", session="work", version=9)
    assert turns.inside == 0


async def test_what_is_no_writing_command_is_refused(desk: CommandContext) -> None:
    for name in ("tape show", "os.system", 7, None):
        with pytest.raises(ControlError, match="has no command"):
            await answer_command(desk, {"name": name, "arguments": {}})
    with pytest.raises(ControlError, match="is none of SaveMemory"):
        await answer_command(desk, {"name": "memory save", "arguments": {"is": "ForgetMemory"}})


@pytest.mark.parametrize("name", WRITE_COMMANDS)
def test_every_writing_command_is_there(name: str) -> None:
    kind, work = write_command._load_command(name)
    assert is_dataclass(kind)
    assert callable(work)
    assert name.partition(" ")[0] in COMMANDS
