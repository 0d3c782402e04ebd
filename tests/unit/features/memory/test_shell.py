"""The memory of a session, from the shell."""

from __future__ import annotations

import pytest

from bubbot.errors import ConfigError
from bubbot.features.memory.arguments import SaveOwnerArgs, ShowOwnerArgs, parse_entry_id
from bubbot.features.memory.scopes import MemoryCommandOptions, SeparateAccounts
from bubbot.features.memory.settings import MemorySettings
from bubbot.features.memory.shell import MEMORY_COMMANDS
from bubbot.ports.command import CommandContext
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock

COMMANDS = {command.action: command for command in MEMORY_COMMANDS.commands}


@pytest.mark.law("T8")
async def test_memory_is_shown_as_it_was_at_an_entry(chat: TapeService, store: TapeStore, ids: CountingIds) -> None:
    await chat.ensure_bootstrap_anchor()
    options = MemoryCommandOptions(MemorySettings(), lambda _: SeparateAccounts())
    context = CommandContext(store, "w", SteppingClock(), ids, settings=options)
    heads, show = [], COMMANDS["show"]
    for text in ("Likes tea.", "Likes coffee."):
        await COMMANDS["save"].run(context, SaveOwnerArgs(chat.name, content=text))
        heads.append(await chat.head())
    for as_of, word, versions in ((None, "coffee", [1, 2]), (heads[1], "coffee", [1, 2]), (heads[0], "tea", [1])):
        shown = await show.run(context, ShowOwnerArgs(chat.name, as_of=as_of))
        assert shown.data is not None
        assert (shown.data["memory"]["long_term"], [*shown.data["versions"]]) == (f"Likes {word}.", versions)
    # In the midst of the batch of a version that version is not sealed yet.
    shown = await show.run(context, ShowOwnerArgs(chat.name, as_of=heads[1] - 1))
    assert "Likes tea." in shown.text
    assert "Nothing is remembered" in (await show.run(context, ShowOwnerArgs(chat.name, as_of=1))).text
    with pytest.raises(ConfigError, match="--as-of 999: the newest entry"):
        await show.run(context, ShowOwnerArgs(chat.name, as_of=999))
    assert await chat.head() == heads[1]


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "9" * 30])
def test_what_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the number of an entry"):
        parse_entry_id(text)
