"""Writing commands: one at a time with the turns of a session, and known by name."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bubbot.app.command_table import COMMANDS
from bubbot.app.commands import bind_context, find_feature
from bubbot.app.own_features import find_parts
from bubbot.app.tapes import new_id, now
from bubbot.cli.commands import answer_command
from bubbot.errors import CommandRefused, ConfigError, ControlError, EntryNotFound
from bubbot.settings.loader import Settings
from bubbot.shell_command import CommandContext, CommandGroup
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.provenance import Source, source_of
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import session_tape

WAIT = 60.0


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
            yield CommandContext(store, await store.workspace("w"), now, new_id, exclusive=turns.exclusive)
    finally:
        await store.aclose()


async def do(desk: CommandContext, name: str, **arguments: object) -> str:
    """What the running bot prints for a command."""
    reply = await answer_command(desk, Settings(), {"name": name, "arguments": arguments})
    return str(reply["told"]["text"])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memory save", {"session": "work", "text": "tea"}),
        ("memory import", {"session": "work", "long_term": "tea", "notes": (), "left_out": (), "replace": False}),
        ("tape import", {"session": "stdin:work", "repair": False, "data": b64encode(b'{"kind":"event","payload":{"name":"x","data":{}}}\n').decode()}),
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


@pytest.mark.law("T22")
async def test_what_comes_from_a_file_is_of_the_world_whatever_the_file_says(
    desk: CommandContext, turns: Turns
) -> None:
    turns.over.set()
    line = b'{"kind":"message","payload":{"role":"user","content":"hi"},"meta":{"provenance":"own","origin":"human"}}\n'
    await do(desk, "tape import", session="stdin:work", repair=False, data=b64encode(line).decode())
    await do(desk, "memory import", session="telegram:1", long_term="tea", notes=(), left_out=(), replace=False)
    tapes = [session_tape(desk.workspace, session) for session in ("stdin:work", "telegram:1")]
    imported, remembered = await desk.store.fetch([TapeQuery(tape) for tape in tapes])
    assert [source_of(entry) for entry in imported] == [Source.WORLD]
    assert [source_of(entry) for entry in remembered if entry.name == "memory.long_term"] == [Source.WORLD]


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
    monkeypatch.setattr("bubbot.shell_command.WRITE_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(ConfigError, match=",stop ends it; nothing was written"):
        await do(desk, "memory save", session="work", text="tea")


async def test_a_command_that_fails_leaves_the_session_to_its_turns(desk: CommandContext, turns: Turns) -> None:
    turns.over.set()
    await do(desk, "memory save", session="work", text="tea")
    with pytest.raises(EntryNotFound):
        await do(desk, "memory restore", session="work", version=9)
    assert turns.inside == 0


async def test_what_is_no_writing_command_is_refused(desk: CommandContext) -> None:
    for name in ("tape show", "memory show", "memory", "os.system", "", 7, None):
        with pytest.raises(ControlError, match="has no command"):
            await answer_command(desk, Settings(), {"name": name, "arguments": {}})
    wrong: tuple[object, ...] = ({"session": "work", "text": "tea", "else": 1}, {"session": 1}, [], None)
    for arguments in wrong:
        with pytest.raises((ConfigError, ControlError), match="memory save"):
            await answer_command(desk, Settings(), {"name": "memory save", "arguments": arguments})
    with pytest.raises(ConfigError, match="path"):
        await do(desk, "memory import", session="work", path="/etc/passwd")


async def test_a_program_is_asked_before_and_confirms(desk: CommandContext, turns: Turns) -> None:
    turns.over.set()
    request = {"name": "memory save", "arguments": {"session": "work", "text": "Likes tea."}}
    assert await answer_command(desk, Settings(), request)
    other = {**request, "arguments": {"session": "work", "text": "Likes water."}}
    with pytest.raises(CommandRefused, match="- Likes tea"):
        await answer_command(desk, Settings(), other)
    assert await answer_command(desk, Settings(), {**other, "confirmed": True})


def test_the_commands_of_a_feature_stand_behind_its_word() -> None:
    for feature, group in find_parts("commands", "COMMANDS"):
        assert isinstance(group, CommandGroup)
        assert {each.name.partition(" ")[0] for each in group.commands} == {group.name}
        assert len({each.name for each in group.commands}) == len(group.commands)
        assert not [each.name for each in group.commands if each.writes and each.on_missing_home is not None]
        assert {find_feature(each.name) for each in group.commands} == {feature}


@pytest.mark.parametrize(
    "word", ["tape anchors", "tape graph", "tape search", *(word for word in COMMANDS if find_feature(word))]
)
def test_the_settings_of_a_command_are_those_of_its_feature(word: str, desk: CommandContext) -> None:
    settings = Settings()
    bound = bind_context(desk, word, settings)
    assert str(bound.zone) == settings.bot.timezone
    assert bound.settings is not settings
    assert (bound.settings is None) == (word in ("eval", "explain", "replay", "why", "tape anchors", "tape graph")), (
        "those have no settings"
    )
